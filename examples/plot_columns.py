"""
Which column tells the classes apart?
=====================================

Two classes collide. Would another measurement resolve them, and which of those at hand are worth
their cost? We ask this of 178 wines from three cultivars, with seven of their chemical
measurements.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from collidescope.applications import ceilings, collisions_by, column_value
from collidescope.estimators import crossfit_posteriors

X, y = load_wine(return_X_y=True, as_frame=True)
y = y.map({0: "Barolo", 1: "Grignolino", 2: "Barbera"})
X = X[
    ["alcohol", "malic_acid", "ash", "magnesium", "total_phenols", "flavanoids", "hue"]
]
model = make_pipeline(StandardScaler(), LogisticRegression())

# %%
# Every column is left out once, and used alone once, with the same folds. ``needed`` is how much
# PBER rises without it, ``alone`` how much it falls with nothing else; both are paired differences
# on the same rows, so that small ones show.

found = column_value(
    model, X, y, costs={"alcohol": 1, "flavanoids": 20, "total_phenols": 15, "hue": 2}
)
print(found.verdict)
found.table.drop(columns="columns").round(4)

# %%
# A column can be informative alone and still not be needed, because others carry the same
# information. And pair by pair: what collides without it?

found.pairs.query("flagged").round(4)

# %%

table = found.table.iloc[::-1]
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
reach = [
    100 * (table["needed"] - table["low"]),
    100 * (table["high"] - table["needed"]),
]
axis.errorbar(
    100 * table["needed"],
    table["unit"],
    xerr=reach,
    fmt="o",
    color="#1f2a44",
    capsize=3,
)
axis.axvline(0, color="#9aa5b8", linewidth=1)
axis.set(xlabel="points of PBER lost without it (95% intervals)")
plt.show()

# %%
# The other way round: a measurement that you could buy. ``needed`` is then by how much it would
# lower the PBER; divided by its cost it can be compared with others.

found.table[["unit", "needed", "cost", "per_cost"]].dropna().sort_values(
    "per_cost", ascending=False
).round(4)

# %%
# For whom, and how far to the ceiling?
# -------------------------------------
# The same held-out posteriors answer two more questions. Do the classes collide more for some rows
# than for others?

P = crossfit_posteriors(model, X, y, random_state=0)
strong = np.where(X["alcohol"] > X["alcohol"].median(), "strong", "light")
print(collisions_by(P, y, strong))

# %%
# And what is the best value of the metric that you report?

ceilings(P, y).table[["metric", "now", "low", "high", "higher_is_better"]].round(3)
