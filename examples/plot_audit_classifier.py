"""
Is my classifier at the ceiling?
================================

A classifier makes errors. Some come from the classifier, others from the data: inputs that nobody
could tell apart. Before you spend time on a better model it is worth knowing which are which.

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

import collidescope as cs

X, y = load_digits(return_X_y=True)
classifiers = {
    "decision tree": DecisionTreeClassifier(random_state=0),
    "naive Bayes": GaussianNB(var_smoothing=1e-3),
    "logistic regression": make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=500)
    ),
}
folds = StratifiedKFold(5, shuffle=True, random_state=0)
said = {
    name: cross_val_predict(classifier, X, y, cv=folds)
    for name, classifier in classifiers.items()
}
for name, predicted in said.items():
    print(f"{name}: accuracy {(predicted == y).mean():.1%}")

# %%
# A second opinion
# ----------------
# An audit needs posteriors of the audited rows from a model that has not seen them, such as
# ``posteriors_`` of a fitted :class:`~collidescope.CollisionClassifier`: every row was scored by
# models that did not train on it. (One member keeps this page quick. The default pools several
# kinds of models.)

second_opinion = cs.CollisionClassifier(members=["linear"], random_state=0).fit(X, y)

# %%
# Errors that the rule "take the most likely class" avoids are **fixable**, since here is a rule
# that avoids them. Of the rest, some are **not learned yet**: more rows would avoid them. What
# unlimited rows would leave is **inherent**. The range of the second opinion, ``limit_``, tells the
# last two apart.

audits = {
    name: cs.audit(second_opinion, X, y, predicted) for name, predicted in said.items()
}
for name, report in audits.items():
    print(f"{name.upper()}: {report.verdict}\n")

# %%
# Naive Bayes takes pixels for independent, and much of what it gets wrong need not be. Logistic
# regression errs less than the second opinion, so the audit says that it cannot judge it: see the
# end of this page.

figure, axis = plt.subplots(figsize=(7, 2.6), layout="constrained")
names = list(audits)
rest = [100 * audits[name].best for name in names]
fixable = [100 * audits[name].fixable for name in names]
axis.barh(names, rest, color="#9aa5b8", label="errors of the second opinion as well")
axis.barh(names, fixable, left=rest, color="#c8442c", label="fixable by a better model")
ends = [a + b for a, b in zip(rest, fixable, strict=True)]
reach = [50 * (r.fixable_interval[1] - r.fixable_interval[0]) for r in audits.values()]
axis.errorbar(ends, names, xerr=reach, fmt="none", ecolor="#1f2a44", capsize=3)
axis.set(
    xlabel="errors, % of the rows (bars: 95% interval of the fixable part)",
    xlim=(0, None),
)
axis.legend(loc="upper right")
plt.show()

# %%
# Pair by pair
# ------------
# The report lists what is taken for what. ``flagged`` pairs stand out beyond chance at a
# false-discovery rate of 5%.

report = audits["naive Bayes"]
report.pairs.head(6).round(4)

# %%
# And row by row: the errors of the first pair, split into rows that the second opinion gets right
# and rows that it does not.

top = report.pairs.iloc[0]
true, predicted = int(top["true"]), int(top["predicted"])
rows = report.rows(true, predicted, "fixable")
inherent = report.rows(true, predicted, "inherent")
print(f"{true} taken for {predicted}: {len(rows)} fixable, {len(inherent)} inherent")

figure, axes = plt.subplots(1, 8, figsize=(8, 1.5), layout="constrained")
for axis in axes:
    axis.axis("off")
for axis, row in zip(axes, rows, strict=False):
    axis.imshow(X[row].reshape(8, 8), cmap="gray_r")
figure.suptitle(
    f"{true} taken for {predicted} by naive Bayes, and not by the second opinion"
)
plt.show()

# %%
# How good is the second opinion?
# -------------------------------
# The audit is as good as its posteriors. The range says what more rows would still teach this
# model:

print(second_opinion.limit_)

# %%
# It does not show what another kind of model would learn. So ask again with a stronger one:

stronger = cs.CollisionClassifier(
    members=["linear", "kernel", "neighbours"], random_state=0
).fit(X, y)
print(cs.audit(stronger, X, y, said["logistic regression"]).verdict)

# %%
# So "nothing to fix" always means: as far as these posteriors can see. Take the best posteriors
# that you have, from any model. Rows that a model was fitted on are recognised, and their
# held-out posteriors are used; with a test set it is the same line: ``cs.audit(stronger, X_test,
# y_test, classifier)``.
