"""
Which rows are ambiguous?
=========================

A row whose label has a low posterior is one of two things: an input between two classes, or an
input with the wrong label. The first is worth a look. The second should be corrected.

One digit label in twenty-five is made wrong here, so that the answer is known.
"""

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import collidescope as cs

X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
wrong = rng.random(len(y)) < 0.04
labels = np.where(wrong, (y + 1) % 10, y)  # whoever typed them slipped by one key
print(f"{wrong.sum()} of {len(y)} labels are wrong")

# %%
# The posteriors must be held out
# -------------------------------
# A model that trained on a row agrees with its label. ``posteriors_`` of a fitted classifier are
# cross-fitted: no row was scored by a model that saw it. (Two members of the pool and no range keep
# this page quick.)

clf = cs.CollisionClassifier(
    members=["kernel", "linear"], limit=False, random_state=0
).fit(X, labels)
rows = cs.applications.ambiguous(clf.posteriors_, y=labels)
print(rows["kind"].value_counts().to_string())

# %%
# Most ambiguous first
# --------------------
# ``index`` is the number of the row in the data. No class has most of the posterior in these:

rows.head(6).round(3)

# %%
# :class:`~collidescope.plot.PosteriorDisplay` shows the chance of each class for a few of them.

shown = rows["index"].to_numpy()[:6]
pictures = [X[row].reshape(8, 8) for row in shown]
cs.plot.PosteriorDisplay.from_posteriors(
    clf.posteriors_[shown], classes=clf.classes_, images=pictures, labels=labels[shown]
).plot()
plt.show()

# %%
# Labels to check, most suspect first
# -----------------------------------
# The score learns from clear rows which classes wrong labels come from: here, one key to the right.
# A label in that direction is more suspect than another.

suspects = cs.applications.ambiguous(
    clf.posteriors_, y=labels, by="label", top=int(wrong.sum())
)
hits = wrong[suspects["index"].to_numpy()].mean()
print(
    f"{hits:.0%} of the first {len(suspects)} suspects are labels that were made wrong."
)
p_label = clf.posteriors_[np.arange(len(labels)), labels]
scores = cs.applications.label_error_scores(clf.posteriors_, labels)
print(
    f"Average precision {average_precision_score(wrong, scores):.3f}, "
    f"against {average_precision_score(wrong, -p_label):.3f} by the posterior of the label alone."
)
suspects.head(6).round(3)

# %%
# The pictures of both lists. Above, people may disagree. Below, the label is at fault.

figure, axes = plt.subplots(2, 8, figsize=(9, 3), layout="constrained")
for line, table in zip(axes, (rows, suspects), strict=True):
    for axis, row in zip(line, table.head(8).itertuples(), strict=True):
        axis.imshow(X[row.index].reshape(8, 8), cmap="gray_r")
        axis.set_title(
            f"{row.label} or {row.predicted if row.predicted != row.label else row.second}?",
            fontsize=9,
        )
        axis.axis("off")
figure.suptitle("Most ambiguous (above), most suspect labels (below)", fontsize=11)
plt.show()

# %%
# How this compares with cleanlab's scores, on four data sets and two kinds of noise, is on
# :doc:`/applications`. Where wrong labels follow a pattern it leads throughout. Where they are
# flipped evenly, cleanlab is level or a little ahead.
