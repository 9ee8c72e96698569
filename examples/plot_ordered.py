"""
Classes with an order
=====================

Stages, grades and stars have an order: taking "mild" for "severe" is worse than taking it for
"medium", and only neighbours can become one class. Labels that are an ordered categorical of pandas
keep their order.
"""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_diabetes

import collidescope as cs
from collidescope.applications import expected_distance

# %%
# The progression of diabetes after a year, in three bands of equal size.
data = load_diabetes(as_frame=True)
X = data.data
bands = ["slow", "moderate", "fast"]
y = pd.qcut(data.target, 3, labels=bands)
print(y.dtype)

# %%
# ``classes_`` is sorted, as everywhere in scikit-learn; ``class_order_`` is the order of the
# labels. The display follows it.
clf = cs.CollisionClassifier(members=["linear", "trees"], random_state=0).fit(X, y)
print(clf.class_order_)
cs.CollisionMatrixDisplay.from_estimator(clf).plot()

# %%
# Only neighbours are merged. The note warns that the middle band is hardly distinguished from the
# others, so that merging it would only hide a lack of information.
plan = cs.consolidate(clf.collision_matrix_, 2, ordered=clf.class_order_)
print(plan)
cs.DendrogramDisplay.from_plan(plan).plot()

# %%
# How far apart are two labels of the same patient? The PBER counts every miss alike; the expected
# distance counts bands. It takes a matrix whose classes are in order: that of posteriors with
# their columns in that order.
P = pd.DataFrame(clf.posteriors_, columns=clf.classes_)[bands]
cm = cs.collision_matrix_from_posteriors(P.to_numpy(), y.to_numpy(), classes=bands)
apart = expected_distance(cm).value
print(f"PBER {cm.pber:.1%}, and two labels of a patient lie {apart:.2f} bands apart")
plt.show()
