"""Counted collisions of BRFSS 2015 (253,680 people) beside the estimate of gradient boosting on the same rows."""

from __future__ import annotations

import sys
import time

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks._record import save
from collidescope import count_collisions, estimate_collisions
from collidescope.counting import repeated_rows
from experiments.real_data import load_brfss


def main() -> None:
    try:
        X, y = load_brfss()
    except FileNotFoundError as error:
        print(f"skipped: {error}")
        sys.exit(0)
    X = X.drop(columns=["BMI", "MentHlth", "PhysHlth"])
    start = time.perf_counter()
    counted = count_collisions(X, y)
    seconds = time.perf_counter() - start
    rows = repeated_rows(X)
    estimated = estimate_collisions(
        HistGradientBoostingClassifier(random_state=0),
        X[rows],
        y[rows],
        limit=False,
        random_state=0,
    )
    tvd = float(np.abs(counted.matrix - estimated.matrix).sum(axis=1).mean() / 2)
    print(
        f"counted in {seconds:.1f} s\n{counted}\n\nestimated on the same rows\n{estimated}\n\nmean TVD {tvd:.4f}"
    )
    results = {
        "rows": len(y),
        "coverage": counted.coverage,
        "classes": counted.classes.tolist(),
        "counted": counted.matrix.tolist(),
        "counted_stderr": counted.stderr.tolist(),
        "estimated": estimated.matrix.tolist(),
        "mean_tvd": tvd,
        "counting_seconds": seconds,
    }
    save(
        "counted",
        {
            "dropped": ["BMI", "MentHlth", "PhysHlth"],
            "model": "HistGradientBoostingClassifier",
            "cv": 5,
        },
        results,
    )


if __name__ == "__main__":
    main()
