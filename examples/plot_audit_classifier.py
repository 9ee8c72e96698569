"""
Auditing a classifier: what a better model could fix
====================================================

A classifier makes errors. Some are its own fault, some are in the data: images that nobody could tell apart. Before
money is spent on a better model it is worth knowing which are which.

The audit needs a second opinion: posteriors of the audited rows by a model that has not seen them. Errors that the rule
"take the most likely class" avoids are fixable, since here is a rule that avoids them.
"""

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from collidescope import CollisionClassifier
from collidescope.applications import audit

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
second_opinion = CollisionClassifier(hidden_layer_sizes=(128,), random_state=0).fit(X_train, y_train)

# %%
# A weak classifier
# -----------------
# Naive Bayes takes pixels for independent. Much of what it gets wrong need not be.

naive = GaussianNB(var_smoothing=1e-3).fit(X_train, y_train)
report = audit(second_opinion, X_test, y_test, naive)
print(report)

# %%
# A good one
# ----------
# Here the audit has to say how little there is to gain, and how sure that is.

logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X_train, y_train)
print(audit(second_opinion, X_test, y_test, logistic).verdict)

# %%
# The rows themselves
# -------------------
# Every pair of the report leads to its rows: those that the second opinion gets right, and those it does not.

top = report.pairs.iloc[0]
true, predicted = int(top["true"]), int(top["predicted"])
fixable, inherent = (report.rows(true, predicted, kind) for kind in ("fixable", "inherent"))
print(f"{true} taken for {predicted}: {len(fixable)} fixable rows {fixable[:10].tolist()}, {len(inherent)} inherent")

try:
    import matplotlib.pyplot as plt
except ImportError:
    plt = None
if plt is not None:
    shown = fixable[:8]
    figure, axes = plt.subplots(1, max(len(shown), 2), figsize=(8, 1.6))
    for axis in axes:
        axis.axis("off")
    for axis, row in zip(axes, shown, strict=False):
        axis.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    figure.suptitle(f"{true} taken for {predicted} by naive Bayes, and not by the second opinion")
    plt.show()
