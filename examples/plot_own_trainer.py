"""
A custom trainer, with Accelerate
=================================

A large encoder is trained elsewhere: in a loop of its own, on several GPUs or machines. This
tutorial trains one under `Accelerate <https://huggingface.co/docs/accelerate>`_ and hands it to
:class:`~collidescope.CollisionClassifier`, which says what its features can and cannot tell apart.

The loop runs as it is on a laptop and, started with ``torchrun``, on as many processes as there are
GPUs.
"""

import copy

import matplotlib.pyplot as plt
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import collidescope as cs

# %%
# Two sets of rows
# ----------------
# S is right only where every row is scored by a model that did not learn from it. The classifier
# sees to that with its folds, but it cannot know which rows an encoder has seen before it came. So
# those rows are kept apart: on one part the encoder is trained, on the other S is estimated.

digits = load_digits()
images = digits.images[:, None] / 16
X_encoder, X, y_encoder, y = train_test_split(
    images, digits.target, train_size=0.6, stratify=digits.target, random_state=0
)
print(f"{len(X_encoder)} images train the encoder, {len(X)} others estimate S.")

# %%
# The encoder
# -----------
# It ends in 32 features. Its first layer brings every image to mean 0 and variance 1, so that it
# does not matter in which units pixels come: the classifier standardises what it is given.


def new_encoder():
    return nn.Sequential(
        nn.LayerNorm((1, 8, 8), elementwise_affine=False),
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 32), nn.ReLU()),
    )


# %%
# The loop
# --------
# An ordinary loop of Accelerate.

BATCH, EPOCHS = 64, 40


def train(images, labels):
    torch.manual_seed(0)
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available()
    )  # without a GPU it must be told, to share work
    encoder = new_encoder()
    model = nn.Sequential(encoder, nn.Linear(32, 10))
    rows = torch.utils.data.TensorDataset(
        torch.from_numpy(images).float(), torch.from_numpy(labels)
    )
    # With a generator, Accelerate gives every process its part of the same order; and each must
    # bring as many rows as the others, so the last, smaller batch is left out.
    share, order = BATCH // accelerator.num_processes, torch.Generator().manual_seed(0)
    loader = torch.utils.data.DataLoader(
        rows, share, shuffle=True, drop_last=True, generator=order
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    model, optimiser, loader = accelerator.prepare(model, optimiser, loader)
    losses = []
    for _ in range(EPOCHS):
        for x, classes in loader:
            loss = nn.functional.cross_entropy(model(x), classes)
            accelerator.backward(loss)
            optimiser.step()
            optimiser.zero_grad()
        losses.append(loss.item())
    accelerator.free_memory()
    return encoder.cpu().eval().requires_grad_(False), losses


encoder, losses = train(X_encoder, y_encoder)
plt.plot(range(1, EPOCHS + 1), losses)
plt.xlabel("epoch")
plt.ylabel("cross-entropy of the last batch")
plt.show()

# %%
# Back to the classifier
# ----------------------
# An entry of ``members`` may be a function that builds a network. Here it puts a new linear layer
# on the encoder, whose weights stay fixed: each fold learns a few numbers only, and neither encoder
# nor layer has seen the rows that the fold is scored on.


def on_top_of(trained):
    return lambda d, k: nn.Sequential(copy.deepcopy(trained), nn.Linear(32, k))


# Two folds keep this page quick: the default is five.
quick = {"cv": 2, "limit": False, "random_state": 0}
settings = {"training": {"max_epochs": 40, "learning_rate": 0.01}, **quick}
clf = cs.CollisionClassifier(members=[on_top_of(encoder)], **settings).fit(X, y)
print(clf.collision_matrix_)

cs.CollisionMatrixDisplay.from_matrix(clf.collision_matrix_, order="cluster").plot()
plt.show()

# %%
# Was it worth it?
# ----------------
# The PBER is the held-out Brier score, so the lower one belongs to the better network. From scratch
# the same network knows the rows of S alone:

scratch = cs.CollisionClassifier(
    members=[lambda d, k: nn.Sequential(new_encoder(), nn.Linear(32, k))],
    training={"max_epochs": 40},
    **quick,
).fit(X, y)
print(
    f"PBER: encoder from elsewhere {clf.one_step_.pber:.2%}, "
    f"from scratch {scratch.one_step_.pber:.2%}"
)

# %%
# The mistake to avoid
# --------------------
# An encoder that was trained on the rows of S has learned their labels. Nothing in the result shows
# it, except that it is too good to be true; only new rows would reveal it.

seen, _ = train(X, y)
wrong = cs.CollisionClassifier(members=[on_top_of(seen)], **settings).fit(X, y)
print(f"PBER of an encoder that has seen these very rows: {wrong.one_step_.pber:.2%}")

# %%
# More processes
# --------------
# The script as it stands, on two GPUs of one machine or, without any, on two of its cores::
#
#     torchrun --nproc-per-node 2 plot_own_trainer.py
#     accelerate launch --num_processes 2 plot_own_trainer.py  # --cpu without GPUs
#
# Each process takes half of every batch, so the encoder is that of one process up to rounding.
# The classifier shares its batches out in the same way: call ``fit`` in every process with the same
# ``random_state``, for one that leaves it out keeps the others waiting.
#
# To let every fold change the encoder too, starting from its trained weights, leave out
# ``requires_grad_(False)``.
