"""The main job on data that ships with scikit-learn: which handwritten digits collide?"""

from __future__ import annotations

from pathlib import Path

from sklearn.datasets import load_digits

from collidescope._text import as_text, pairs_text
from collidescope.classifier import CollisionClassifier
from collidescope.trust import limit_of


def main(report: str | Path = "report.html", verbose: int = 1) -> None:
    """Fit scikit-learn's digits, print their collision matrix and write the report."""
    X, y = load_digits(return_X_y=True)
    print(f"Which digits in {len(y):,} images of 8×8 pixels cannot be told apart? (a minute or two)\n", flush=True)
    clf = CollisionClassifier(random_state=0, verbose=verbose).fit(X, y)
    cm = clf.collision_matrix_
    print(as_text(cm, limit_of(clf)))
    print(f"\nMost colliding pairs, with 95% intervals:\n{pairs_text(cm, 5)}")
    worst = cm.top_collisions(1).iloc[0]
    pair = [int(worst["class"]), int(worst["other"])]
    merged = cm.merge([pair])
    change = f"from {cm.pber:.2%} to {merged.pber:.2%}"
    print(f"\nMerging {pair[0]} and {pair[1]} would lower the PBER {change}: no retraining needed to know.", flush=True)
    from collidescope.show import report as write

    about = {"file": "scikit-learn’s digits", "label": "digit"}
    try:
        write(clf, X, y, report, image_shape=(8, 8), title="Which handwritten digits collide?", about=about)
    except ImportError as error:
        print(f"\nNo report: {error}")
    else:
        print(f"\nThe whole answer, with the ambiguous images: {report}")


if __name__ == "__main__":
    main()
