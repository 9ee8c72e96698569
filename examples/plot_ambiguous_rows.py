"""
Ambiguous rows and wrong labels
===============================

A row whose label has a low posterior is one of two things: an image between two digits, or an image with the wrong
label. The first is worth a look, the second should be corrected.

One label in twenty-five is made wrong here, so that the answer is known.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

from collidescope import CollisionClassifier
from collidescope.applications import ambiguous, label_error_scores

X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
wrong = rng.random(len(y)) < 0.04
labels = np.where(wrong, (y + 1) % 10, y)  # whoever typed them slipped by one key

# %%
# The posteriors must be held out
# -------------------------------
# A model that trained on a row agrees with its label. ``posteriors_`` of a fitted classifier are cross-fitted: no row
# was scored by a model that saw it.

clf = CollisionClassifier(hidden_layer_sizes=(128,), random_state=0).fit(X, labels)
rows = ambiguous(clf.posteriors_, y=labels)
print(rows["kind"].value_counts().to_string())
print("\nMost ambiguous:")
print(rows.head(6).to_string(index=False, float_format="{:.3f}".format))

# %%
# Labels to check, most suspect first
# -----------------------------------

suspects = ambiguous(clf.posteriors_, y=labels, by="label", top=int(wrong.sum()))
print(suspects.head(6).to_string(index=False, float_format="{:.3f}".format))
hits = wrong[suspects["index"].to_numpy()].mean()
print(f"\n{hits:.0%} of the first {len(suspects)} suspects are labels that were made wrong.")
p_label = clf.posteriors_[np.arange(len(labels)), labels]
print(
    f"Average precision {average_precision_score(wrong, label_error_scores(clf.posteriors_, labels)):.3f}, "
    f"against {average_precision_score(wrong, -p_label):.3f} by the posterior of the label alone."
)

try:
    import matplotlib.pyplot as plt
except ImportError:
    plt = None
if plt is not None:
    figure, axes = plt.subplots(2, 6, figsize=(8, 3.4))
    for line, table in zip(axes, (rows, suspects), strict=True):
        for axis, row in zip(line, table.head(6).itertuples(), strict=True):
            axis.imshow(X[row.index].reshape(8, 8), cmap="gray_r")
            axis.set_title(f"{row.label} or {row.predicted if row.predicted != row.label else row.second}?", fontsize=9)
            axis.axis("off")
    figure.suptitle("Most ambiguous (above), most suspect labels (below)")
    plt.show()
