"""
Merging classes that the data cannot tell apart
===============================================

Ten handwritten digits on 8×8 pixels: which of them should be one class, if fewer mistakes matter more than ten labels?

The collision matrix of merged classes follows from that of the classes with no retraining, so every grouping has its
error at once: the chance that an input, seen again, falls into another group.
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from collidescope import CollisionClassifier
from collidescope.applications import consolidate

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
model = CollisionClassifier(hidden_layer_sizes=(64,), random_state=0)
cm = model.fit(X_train, y_train).collision_matrix_
print(cm)

# %%
# The whole path
# --------------
# Each step merges the two groups that collide most.

plan = consolidate(cm)
print(plan.path[["n_groups", "first", "second", "pber", "pber_low", "pber_high"]].to_string(index=False))

# %%
# A plan by its error
# -------------------
# As many groups as can be kept with at most half of the error of ten.

half = consolidate(cm, max_pber=cm.pber / 2)
print(half)

# %%
# With conditions
# ---------------
# 8 and 9 must stay apart, 1 and 7 must be one.

strict = consolidate(cm, n_groups=half.n_groups, must_merge=[(1, 7)], cannot_merge=[(8, 9)])
print("Groups:", strict.groups)
print(f"PBER {strict.matrix.pber:.2%}; without conditions {half.matrix.pber:.2%}")

# %%
# Was it right?
# -------------
# New rows: the held-out Brier score of merged posteriors has the PBER as its lowest value.

P = model.predict_proba(X_test)
for some in (consolidate(cm), half):
    names = list(some.matrix.classes)
    merged = some.transform(y_test)
    columns = [[k for k, digit in enumerate(cm.classes.tolist()) if digit in group] for group in some.groups]
    scores = [P[:, members].sum(axis=1) for members in columns]
    brier = sum(((score - (merged == name)) ** 2).mean() for score, name in zip(scores, names, strict=True))
    print(f"{some.n_groups} groups: PBER {some.matrix.pber:.2%}, Brier score of new rows {brier:.2%}")

# %%
# The tree
# --------
# Heights are the error that merging has removed so far.

try:
    import matplotlib.pyplot as plt
    from scipy.cluster.hierarchy import dendrogram
except ImportError:
    print("Install matplotlib for the figure.")
else:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    dendrogram(plan.linkage, labels=cm.classes.tolist(), ax=left, color_threshold=0)
    left.set(ylabel="PBER removed", title="Which digits merge, and when")
    path = plan.path
    right.fill_between(path["n_groups"], path["pber_low"], path["pber_high"], alpha=0.3, label="95% interval")
    right.plot(path["n_groups"], path["pber"], marker="o", label="PBER")
    right.axhline(cm.pber / 2, color="grey", linestyle=":", label="half of the error of ten")
    right.set(xlabel="groups", ylabel="seen again in another group", title="What each number of groups costs")
    right.legend()
    plt.show()
