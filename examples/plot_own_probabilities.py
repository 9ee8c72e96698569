"""
I already have probabilities
============================

A model has been trained, perhaps elsewhere and long ago, and what is left of it are probabilities
of rows that it did not see. That is all that is needed: no refit, no access to the model, no torch.

We take three measurements of breast tumours (scikit-learn's breast cancer data, 569 rows) and a
random forest.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import collidescope as cs

data = load_breast_cancer(as_frame=True)
X = data.data[["mean radius", "mean texture", "mean smoothness"]]
y = data.target_names[data.target]

forest = RandomForestClassifier(n_estimators=200, random_state=0)
P = cross_val_predict(forest, X, y, cv=5, method="predict_proba")
print(P[:3].round(2))

# %%
# The rows must be held out: a test set, or out-of-fold predictions as above. On its own training
# rows the forest would look certain of everything.
#
# One line
# --------
# Columns of ``P`` are in the order of the sorted labels, as in scikit-learn. Pass ``classes`` if
# yours are not.

cm = cs.collision_matrix_from_posteriors(P, y)
print(cm)

# %%
# Why the labels?
# ---------------
# Without labels the matrix is the mean of p pᵀ, the plug-in estimate: it takes the posteriors as
# true. With labels, first-order errors of the model cancel. An overconfident forest shows the
# difference, here one whose probabilities are pushed towards 0 and 1:

bold = P**3 / (P**3).sum(axis=1, keepdims=True)
for name, scores in (("as it is", P), ("made overconfident", bold)):
    believed = cs.collision_matrix_from_posteriors(scores).pber
    checked = cs.collision_matrix_from_posteriors(scores, y).pber
    print(f"Forest {name}: PBER {believed:.1%} plugged in, {checked:.1%} with labels")

# %%
# Plugged in, the bold forest sees hardly any ambiguity. With labels its overconfidence shows: its
# PBER is its held-out Brier score, which went up. So the smaller number *with labels* always
# belongs to the better model:

models = {
    "random forest": forest,
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
}
for name, model in models.items():
    one = cs.estimate_collisions(model, X, y, limit=False, random_state=0)
    low, high = one.pber_interval()
    print(f"{name}: PBER {one.pber:.1%} ({low:.1%} to {high:.1%})")

# %%
# :func:`~collidescope.estimate_collisions` did the cross-fitting for us.
#
# In chunks, on several machines
# ------------------------------
# Everything is made of sums, so the rows may come in any order and place. The result is the same.

first, second = cs.CollisionAccumulator(cm.classes), cs.CollisionAccumulator(cm.classes)
for chunk in np.array_split(np.arange(len(y)), 10):
    (first if chunk[0] < 300 else second).update(P[chunk], y[chunk])
together = first.merge(second).result()
print(f"Largest difference: {np.abs(together.matrix - cm.matrix).max():.1e}")

# %%
# Where the disease is rarer
# --------------------------
# In these data 37% of the tumours are malignant. Among all that are screened it is far fewer. How
# good would the same measurements be there? The curves show precision and recall of the
# probabilistic Bayes classifier, which draws its answer from the posteriors at equal priors, as the
# share of malignant tumours changes:

even = cs.collision_matrix_from_posteriors(P, y, priors="uniform")
shares = np.linspace(0.01, 0.99, 99)
rates = np.array([even.precision([1 - share, share])[1] for share in shares])
plt.plot(shares, rates, label="precision")
plt.axhline(even.recall()[1], color="grey", label="recall")
plt.xlabel("share of malignant tumours")
plt.legend()
plt.show()

# %%
# At another prior the whole matrix changes, too. ``priors`` takes any population:

rare = cs.collision_matrix_from_posteriors(P, y, priors=[0.95, 0.05])
print("Classes:", cm.classes.tolist())
print(
    f"Malignant at 37%: found again {cm.matrix[1, 1]:.0%}; at 5%: {rare.matrix[1, 1]:.0%}"
)

# %%
# What to do with it? The same as with any collision matrix: merge classes, audit a classifier, look
# at ambiguous rows. Keep it with ``cm.to_json("tumours.json")``.
