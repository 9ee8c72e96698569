"""
Label smoothing by the collision matrix
=======================================

Somebody labelled these digits and mixed up 4 with 9, 3 with 8 and 1 with 7, one time in four. A
classifier that trusts every label becomes overconfident. Label smoothing moves part of the weight
of a label to other classes: uniform smoothing to all of them alike, smoothing by the collision
matrix to those that such inputs are in when seen again.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import collidescope as cs
from collidescope.applications import choose_smoothing

X, y = load_digits(return_X_y=True)
mixed_up = np.array([0, 7, 2, 8, 9, 5, 6, 1, 3, 4])
y = np.where(np.random.default_rng(0).random(len(y)) < 0.25, mixed_up[y], y)
X, X_test, y, y_test = train_test_split(
    X, y, train_size=400, stratify=y, random_state=0
)
classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
cm = cs.estimate_collisions(classifier, X, y, limit=False, random_state=0)
cm.top_collisions(5).round(3)

# %%
# What was mixed up shows: an input seen as 3 would be an 8 when seen again, nearly every second
# time.
#
# Soft targets
# ------------
# The label 8 keeps most of its weight; the rest goes where inputs labelled 8 are found.

print(cs.applications.smooth_labels([8], cm, strength=0.5).round(3))

# %%
# How much?
# ---------
# Held-out log loss decides, here for both kinds of smoothing.

strengths = (0, 0.05, 0.1, 0.2, 0.4, 0.8)
uniform = cs.CollisionMatrix(np.full((10, 10), 0.1), classes=range(10))
choices = {
    name: choose_smoothing(classifier, X, y, S, strengths=strengths)
    for name, S in {"collision matrix": cm, "uniform": uniform}.items()
}
for name, choice in choices.items():
    print(f"{name}: {choice}\n")

# %%
# New rows
# --------
# Any classifier that takes ``sample_weight`` learns soft targets: one weighted copy of each row per
# class.


def fitted(S, strength):
    soft = cs.applications.smooth_labels(y, S, strength)
    rows, labels = np.nonzero(soft > 1e-6)
    weights = {"logisticregression__sample_weight": soft[rows, labels]}
    return classifier.fit(X[rows], cm.classes[labels], **weights)


plain = log_loss(y_test, fitted(cm, 0).predict_proba(X_test))
print(f"no smoothing: log loss of new rows {plain:.4f}")
for name, S in (("collision matrix", cm), ("uniform", uniform)):
    strength = choices[name].best
    loss = log_loss(y_test, fitted(S, strength).predict_proba(X_test))
    print(f"{name}, strength {strength:g}: log loss of new rows {loss:.4f}")

# %%
# In torch, ``SmoothedCrossEntropy(cm, strength)`` of ``collidescope.applications.smoothing_loss``
# takes the place of ``nn.CrossEntropyLoss``.

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for name, choice in choices.items():
    axes.plot(choice.strengths, choice.losses, marker="o", label=name)
axes.set(
    xlabel="strength",
    ylabel="held-out log loss",
    title="400 digits with labels mixed up",
)
axes.legend()
plt.show()

# %%
# Labels were mixed up on purpose here, where smoothing helps most. On real data the gain is
# smaller, and on one of six problems there was none: :doc:`/applications`.
