"""
Images with a custom network
============================

Images need nothing else than ``CollisionClassifier().fit(images, y)``, where a convolutional network joins the
pool (:doc:`/images`). For text, sound, or a network that you know to be better, bring your own:
:class:`~collidescope.CollisionClassifier` takes any function ``(d, k) -> torch.nn.Module`` that builds an encoder with
``k`` logits, trains it fold by fold and scores every input with a network that did not see it.

Here a small convolutional network reads scikit-learn's digits as images. For MNIST in full size the same code with a
larger network is in the repository (``studies/reproduction/mnist.py``), and its result on :doc:`/reproduction`.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from torch import nn

import collidescope as cs

digits = load_digits()
X = digits.images[:, None] / 16  # (rows, channels, height, width)
y = digits.target
print(X.shape)

# %%
# The network
# -----------
# ``d`` is the number of channels, ``k`` the number of classes. The network is an ordinary torch module and knows
# nothing of collisions. Dropout and batch normalisation work as usual.


def encoder(d, k):
    return nn.Sequential(
        *(nn.Conv2d(d, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(128, k)),
    )


# Two folds and 20 epochs keep this page quick. The default is five folds, and epochs until nothing more is learned.
quick = {"cv": 2, "limit": False, "random_state": 0}
clf = cs.CollisionClassifier(
    members=[encoder], training={"max_epochs": 20}, **quick
).fit(X, y)
cm = clf.collision_matrix_
print(cm)

# %%
# With ``order="cluster"`` classes stand next to those that they collide with:

cs.CollisionMatrixDisplay.from_matrix(cm, order="cluster").plot()
plt.show()

# %%
# Did it learn enough?
# --------------------
# What the network could not learn counts as collision. Look at the held-out loss of the folds: it should have
# flattened.

for fold in clf.history_:
    for epochs in fold.values():
        plt.plot([epoch["val_loss"] for epoch in epochs])
plt.xlabel("epoch")
plt.ylabel("held-out loss")
plt.title("The two folds")
plt.show()

# %%
# A better network gives a lower PBER, because the PBER of the one-step estimate is exactly the held-out Brier score. So
# two networks, or a network and any other model, are compared by this one number:

flat = cs.CollisionClassifier(members=["linear"], **quick).fit(X.reshape(len(X), -1), y)
print(
    f"PBER: convolutional {clf.one_step_.pber:.2%}, linear model {flat.one_step_.pber:.2%}"
)

# %%
# The linear model does not know that neighbouring pixels belong together. What it could not learn for that reason it
# counts as ambiguity of the digits. Its interval does not show that: intervals are about sampling error, and not
# about what another model would have learned. See :doc:`/limits`.

# %%
# Ambiguous images
# ----------------
# Posteriors of the images that the network is least sure of, each scored by a fold that did not train on it:

shown = cs.ambiguous(clf.posteriors_, y=y, top=6)["index"].to_numpy()
cs.PosteriorDisplay.from_posteriors(
    clf.posteriors_[shown],
    classes=clf.classes_,
    images=list(X[shown, 0]),
    labels=y[shown],
).plot()
plt.show()

# %%
# Keeping it
# ----------
# ``save`` writes weights and numbers, not code, so ``load`` wants the same function again. Nothing in the file is run.

path = Path(tempfile.mkdtemp()) / "digits.collide"
clf.save(path)
again = cs.load(path, model=encoder)
print(
    "Same posteriors after loading:",
    bool((again.predict_proba(X[:5]) == clf.predict_proba(X[:5])).all()),
)

# %%
# The paper's own model compares two images at once. ``members=[cs.Pairwise(network=body)]`` trains it, with
# ``body(2d, 1)`` giving one logit for two images stacked as channels: see :doc:`/choosing`.
