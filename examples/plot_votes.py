"""
Several people labelled the same items
======================================

A second label on the same input tells ambiguity from ignorance with no model and no assumption:
where two people disagree about one image, no classifier of that image can please both. This
tutorial turns votes into a collision matrix, looks at the annotators, and compares what people see
with what a model sees.

Where the environment variable ``COLLIDESCOPE_DATA`` names a folder with *Fashion-MNIST-H* (Ishida
et al., 2023: 10,000 images of clothes with about 67 votes each) it is used. Otherwise the items are
points of six overlapping classes, and the votes are drawn from their true posteriors.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import collidescope as cs
from collidescope.datasets import ring
from collidescope.votes import agreement, compare_annotators

rng = np.random.default_rng(0)
file = (
    Path(os.environ.get("COLLIDESCOPE_DATA", ""))
    / "fashion_mnist_h"
    / "fashion_mnist_h.npz"
)
if file.exists():
    with np.load(file) as data:
        X, votes = data["X"].reshape(len(data["X"]), -1) / 255, data["V"].astype(int)
    names = ["T-shirt", "trouser", "pullover", "dress", "coat"]
    names += ["sandal", "shirt", "sneaker", "bag", "boot"]
else:
    problem = ring()
    X, _ = problem.sample(3000, random_state=0)
    votes = rng.multinomial(rng.integers(1, 21, len(X)), problem.posteriors(X))
    names = [f"class {k}" for k in range(votes.shape[1])]
per_item = votes.sum(axis=1)
print(
    f"{len(votes):,} items, {votes.sum():,} votes, {per_item.min()} to {per_item.max()} on each"
)

# %%
# One row per item, one column per class, how many votes. That is all that is needed:

cm = cs.collision_matrix_from_votes(votes, classes=names)
print(cm)

# %%
# Row *i*, column *j*: somebody said *i*; how often does somebody else say *j* about the same item?
# Every item counts the same, however many votes it has, and items are the units behind the
# intervals. Items with a single vote say nothing: ``cm.coverage`` is the share of the others.

cs.CollisionMatrixDisplay.from_matrix(cm).plot()
plt.show()

# %%
# The numbers that people know
# ----------------------------
# Two votes on an item agree with probability tr(B) = 1 - PBER. Fleiss' kappa and Krippendorff's
# alpha compare that with votes drawn at random: both are functions of B, and say less than it does.

print(agreement(votes, names).to_string(float_format="{:.3f}".format))

# %%
# Who differs?
# ------------
# With one row per vote and the name of the annotator, those who vote otherwise than the rest are
# found. Let us make up five annotators who take one vote each, of whom one looks at a third of the
# items only and guesses the rest:

enough = np.flatnonzero(votes.sum(axis=1) >= 5)[:1000]
items = np.repeat(enough, 5)
labels = np.concatenate(
    [rng.permutation(np.repeat(names, votes[item]))[:5] for item in enough]
)
who = np.tile(["Ann", "Bob", "Cem", "Dee", "Eve"], len(enough))
guessed = (who == "Dee") & (rng.random(len(who)) < 2 / 3)
labels[guessed] = rng.choice(names, guessed.sum())

report = compare_annotators(items, labels, who)
print(report)
print(
    report.annotators[
        ["annotator", "rate", "others", "pber_without", "p_value", "flagged"]
    ].to_string(index=False)
)

# %%
# ``rate`` is how often an annotator agrees with another one, ``others`` how often two others agree
# on the same items.
#
# What people see, what a model sees
# ----------------------------------
# Now one label per item, drawn from its votes, and a simple model. Its S contains what it could not
# learn:

chance = np.cumsum(votes / votes.sum(axis=1, keepdims=True), axis=1)
y = np.array(names)[
    (rng.random((len(X), 1)) >= chance).sum(axis=1).clip(0, len(names) - 1)
]
model = make_pipeline(PCA(min(30, X.shape[1])), LogisticRegression(max_iter=300))
estimated = cs.estimate_collisions(model, X, y, limit=False, random_state=0)
both = cs.compare(estimated, cm)
print(both)

# %%
# *Not learned yet* means that a better model would tell the two classes apart: people do. *Label
# noise or leak* means that people disagree more than the labels show. The rest is agreed, and only
# better inputs could change it.

colours = {
    "not learned yet": "tab:blue",
    "label noise or leak": "tab:red",
    "agreed": "grey",
}
for verdict, part in both.pairs.groupby("verdict"):
    plt.scatter(
        part["counted"], part["estimated"], label=verdict, color=colours[verdict], s=15
    )
top = both.pairs[["counted", "estimated"]].to_numpy().max()
plt.plot([0, top], [0, top], color="black", linewidth=0.8)
plt.xlabel("counted: another person says so")
plt.ylabel("estimated: the model thinks so")
plt.legend()
plt.show()

# %%
# How many votes?
# ---------------
# For a PBER known to within half a percentage point:

print(cs.votes.votes_needed(cm, half_width=0.005).head(5).to_string(index=False))

# %%
# The first line is the cheapest plan. More items beat more votes per item, unless items are scarce.
