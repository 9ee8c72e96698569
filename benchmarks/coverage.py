"""How often do nominal 95% intervals hold the truth? True posteriors, wrong by O(n^-1/2), labels drawn afresh."""

from __future__ import annotations

import numpy as np

from benchmarks._record import save
from collidescope import collision_matrix_from_posteriors
from collidescope.datasets import imbalanced, ring, scenario_a, scenario_b

SEED, REPLICATES = 0, 1000
CASES = {
    "Scenario A, K=3, n=750": (scenario_a(3), 750, "empirical"),
    "Scenario A, K=4, n=1,000": (scenario_a(4), 1000, "empirical"),
    "Scenario A, K=5, n=1,250": (scenario_a(5), 1250, "empirical"),
    "Scenario A, K=5, n=1,250, uniform priors": (scenario_a(5), 1250, "uniform"),
    "Scenario B, β=0.15, n=5,000": (scenario_b(0.15), 5000, "empirical"),
    "Scenario D, n=3,000": (ring(), 3000, "empirical"),
    "Imbalanced 20:1, K=4, n=2,000": (imbalanced(4, 20, length=4, random_state=0), 2000, "empirical"),
}


def main() -> None:
    rows = {}
    print(f"{'case':<42} {'S':>7} {'worst entry':>12} {'PBER':>7} {'merged S':>9}")
    for name, (problem, n, priors) in CASES.items():
        truth = problem.collision_matrix()
        pair = truth.classes[:2].tolist()
        merged_truth = truth.merge([pair])
        rng = np.random.default_rng(SEED)
        entries, pber, merged = [], [], []
        for _ in range(REPLICATES):
            X, y = problem.sample(n, rng, stratified=False)
            P = problem.posteriors(X) * np.exp(X @ rng.standard_normal((X.shape[1], len(problem.priors))) / np.sqrt(n))
            cm = collision_matrix_from_posteriors(P / P.sum(axis=1, keepdims=True), y, priors=priors)
            low, high = cm.interval()
            entries.append((low <= truth.matrix) & (truth.matrix <= high))
            low, high = cm.pber_interval()
            pber.append(low <= truth.pber <= high)
            low, high = cm.merge([pair]).interval()
            merged.append((low <= merged_truth.matrix) & (merged_truth.matrix <= high))
        by_entry = np.mean(entries, axis=0)
        rows[name] = {
            "S": float(by_entry.mean()),
            "worst_entry": float(by_entry.min()),
            "PBER": float(np.mean(pber)),
            "merged": float(np.mean(merged)),
        }
        r = rows[name]
        print(f"{name:<42} {r['S']:>7.3f} {r['worst_entry']:>12.3f} {r['PBER']:>7.3f} {r['merged']:>9.3f}")
    save("coverage", {"seed": SEED, "replicates": REPLICATES, "level": 0.95}, rows)


if __name__ == "__main__":
    main()
