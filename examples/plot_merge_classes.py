"""
Which classes should I merge?
=============================

Ten handwritten digits on 8×8 pixels. If fewer mistakes matter more than ten labels, which of them
should be one class?

The collision matrix of merged classes follows exactly from that of the classes, with no retraining.
So every grouping has its price at once: the chance that an input, seen again, falls into another
group (the PBER).
"""

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import collidescope as cs

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.4, stratify=y, random_state=0
)
# One member, a linear one, so that there is something to merge; the default pool tells these digits
# apart better.
clf = cs.CollisionClassifier(members=["linear"], limit=False, random_state=0).fit(
    X_train, y_train
)
cm = clf.collision_matrix_
print(cm)

# %%
# The pairs that collide most, with 95% intervals:

cs.CollisionMatrixDisplay.from_matrix(cm).plot_pairs(n=8)
plt.show()

# %%
# The whole path
# --------------
# Each step merges the two groups that collide most. The gain of a step is known before anything is
# trained.

plan = cs.consolidate(cm)
plan.path[["n_groups", "first", "second", "pber", "pber_low", "pber_high"]].round(4)

# %%
# The same as a tree. Heights are the PBER that merging has removed so far.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
cs.plot.DendrogramDisplay.from_plan(plan).plot(ax=left)
path = plan.path
right.fill_between(
    path["n_groups"], path["pber_low"], path["pber_high"], color="#c8442c", alpha=0.2
)
right.plot(
    path["n_groups"],
    path["pber"],
    marker="o",
    color="#c8442c",
    label="PBER, with 95% interval",
)
right.axhline(
    cm.pber / 2, color="grey", linestyle=":", label="half of the PBER of ten classes"
)
right.set(xlabel="groups", ylabel="seen again in another group")
right.set_title("What each number of groups costs")
right.legend()
plt.show()

# %%
# A plan by its error
# -------------------
# As many groups as can be kept with at most half of the error:

half = cs.consolidate(cm, max_pber=cm.pber / 2)
print(half)

# %%
# Greedy merging tends to grow one large group, which may be of no use. Conditions say what must be
# told apart, and what must not. Here 8 and 9 stay apart, 1 and 7 become one:

strict = cs.consolidate(
    cm, n_groups=half.n_groups, must_merge=[(1, 7)], cannot_merge=[(8, 9)]
)
print("Groups:", strict.groups)
print(f"PBER {strict.matrix.pber:.2%}; without conditions {half.matrix.pber:.2%}")

# %%
# Was the promise kept?
# ---------------------
# On new rows the lowest possible Brier score of merged posteriors is the PBER of the groups.
# ``transform`` turns labels into groups, and posteriors of a group are sums of those of its
# members.

P = clf.predict_proba(X_test)
for some in (cs.consolidate(cm), half):
    merged, brier = some.transform(y_test), 0.0
    for name, group in zip(some.matrix.classes, some.groups, strict=True):
        posterior = P[:, np.isin(cm.classes, group)].sum(axis=1)
        brier += ((posterior - (merged == name)) ** 2).mean()
    print(
        f"{some.n_groups} groups: PBER {some.matrix.pber:.2%}, Brier score of new rows {brier:.2%}"
    )

# %%
# Keep training on the fine labels, and merge predictions. A model retrained on coarse labels did
# worse in our experiments, by much where it is linear (:doc:`/applications`).
