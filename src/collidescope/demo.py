"""The main job on data that ships with scikit-learn: which handwritten digits collide?"""

from __future__ import annotations

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from collidescope.estimators import estimate_collisions


def main() -> None:
    """Print the collision matrix of scikit-learn's digits."""
    X, y = load_digits(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    cm = estimate_collisions(model, X, y, cv=5)
    print(cm)
    print("\nMost colliding pairs, with 95% intervals:")
    print(cm.top_collisions(6).to_string(index=False, float_format="{:.4f}".format))


if __name__ == "__main__":
    main()
