"""
Is my classifier at the ceiling?
================================

A classifier makes errors. Some are its own fault. Some are in the data: inputs that nobody could tell apart. Before
time is spent on a better model it is worth knowing which are which.

We ask this of three classifiers of handwritten digits (1,797 images of 8×8 pixels).
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import collidescope as cs

X, y = load_digits(return_X_y=True)
classifiers = {
    "decision tree": DecisionTreeClassifier(random_state=0),
    "naive Bayes": GaussianNB(var_smoothing=1e-3),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
}
folds = StratifiedKFold(5, shuffle=True, random_state=0)
said = {name: cross_val_predict(classifier, X, y, cv=folds) for name, classifier in classifiers.items()}
for name, predicted in said.items():
    print(f"{name}: accuracy {(predicted == y).mean():.1%}")

# %%
# A second opinion
# ----------------
# An audit needs posteriors of the audited rows from a model that has not seen them. ``posteriors_`` of a fitted
# :class:`~collidescope.CollisionClassifier` are such: every row was scored by a fold that it was not part of. (One
# hidden layer keeps this page quick. The default tries five capacities and weighs them by held-out loss.)

second_opinion = cs.CollisionClassifier(hidden_layer_sizes=(128,), random_state=0).fit(X, y)

# %%
# Errors that the rule "take the most likely class" avoids are **fixable**, since here is a rule that avoids them. The
# errors of that rule itself are **inherent**, as far as these posteriors can see.

audits = {name: cs.audit(second_opinion.posteriors_, None, y, predicted) for name, predicted in said.items()}
for name, report in audits.items():
    print(f"{name.upper()}: {report.verdict}\n")

# %%
# Naive Bayes takes pixels for independent, and much of what it gets wrong need not be. For logistic regression the
# audit finds nothing left to gain: the interval of the fixable part contains zero. That is not yet the last word, see
# the end of this page.

figure, axis = plt.subplots(figsize=(7, 2.6), layout="constrained")
names = list(audits)
inherent = [100 * audits[name].best for name in names]
fixable = [100 * audits[name].fixable for name in names]
axis.barh(names, inherent, color="#9aa5b8", label="inherent")
axis.barh(names, fixable, left=inherent, color="#c8442c", label="fixable by a better model")
ends = [a + b for a, b in zip(inherent, fixable, strict=True)]
reach = [50 * (r.fixable_interval[1] - r.fixable_interval[0]) for r in audits.values()]
axis.errorbar(ends, names, xerr=reach, fmt="none", ecolor="#1f2a44", capsize=3)
axis.set(xlabel="errors, % of the rows (bars: 95% interval of the fixable part)", xlim=(0, None))
axis.legend(loc="upper right")
plt.show()

# %%
# Pair by pair
# ------------
# The report lists what is taken for what. ``flagged`` pairs stand out beyond chance at a false-discovery rate of 5%.

report = audits["naive Bayes"]
report.pairs.head(6).round(4)

# %%
# And row by row: the errors of the first pair, split into rows that the second opinion gets right and rows that it does
# not.

top = report.pairs.iloc[0]
true, predicted = int(top["true"]), int(top["predicted"])
rows = report.rows(true, predicted, "fixable")
print(f"{true} taken for {predicted}: {len(rows)} fixable, {len(report.rows(true, predicted, 'inherent'))} inherent")

figure, axes = plt.subplots(1, 8, figsize=(8, 1.5), layout="constrained")
for axis in axes:
    axis.axis("off")
for axis, row in zip(axes, rows, strict=False):
    axis.imshow(X[row].reshape(8, 8), cmap="gray_r")
figure.suptitle(f"{true} taken for {predicted} by naive Bayes, and not by the second opinion")
plt.show()

# %%
# How good is the second opinion?
# -------------------------------
# The audit is as good as its posteriors. What they have not learned counts as inherent, so "inherent" is an upper limit
# and "fixable" a lower one. The learning curve that the fit recorded tells whether more data would still change it:

second_opinion.learning_curve()

# %%
# It cannot tell what another kind of model would see. These are images, and a network that reads them as images knows
# more (:doc:`plot_images_own_network`). Ask again with that one:


def encoder(d, k):
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(128, k)),
    )


stronger = cs.CollisionClassifier(model=encoder, max_epochs=40, random_state=0).fit(X, y)
print(cs.audit(stronger.posteriors_, None, y, said["logistic regression"]).verdict)

# %%
# So "nothing to fix" always means: as far as these posteriors can see. Take the best posteriors that you have, from
# whatever model. With a test set of its own it is one line: ``cs.audit(second_opinion, X_test, y_test, classifier)``.
