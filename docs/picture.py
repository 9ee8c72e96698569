"""Draw docs/figures/digits.png, the picture of the README: `python docs/picture.py`."""

from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import collidescope as cs


def main():
    X, y = load_digits(return_X_y=True)
    cm = cs.CollisionClassifier(random_state=0, verbose=1).fit(X, y).collision_matrix_
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    cs.CollisionMatrixDisplay.from_matrix(cm, order="cluster").plot(
        ax=left, colorbar=False
    )
    cs.CollisionMatrixDisplay.from_matrix(cm).plot_pairs(ax=right, n=12)
    left.set_title("Labelled one class, labelled again another")
    right.set_title("The pairs that collide most")
    figure.savefig(Path(__file__).parent / "figures" / "digits.png", dpi=110)


if __name__ == "__main__":
    main()
