"""How often do nominal 95% intervals hold the truth?

``few_classes``: true posteriors, wrong by O(n^-1/2), labels drawn afresh. ``many_classes``: posteriors whose logits are
too large by a factor T; the PBER of the shrunk estimate, and the mean TVD of S of one-step, of shrinkage towards the
plug-in estimate as it comes ("unscaled") and towards the plug-in estimate at the one-step PBER ("shrunk", what
:func:`collidescope.onestep.shrink` does). ``python -m studies.accuracy.coverage many_classes`` runs one of them.
"""

from __future__ import annotations

import sys

import numpy as np

from collidescope import collision_matrix_from_posteriors
from collidescope.datasets import GaussianProblem, imbalanced, ring, scenario_a, scenario_b
from collidescope.equations.projection import balance, project
from collidescope.equations.shrinkage import one_step_share, plug_in_and_one_step
from collidescope.onestep import one_step_and_moments, shrink
from studies.accuracy._record import save

SEED, REPLICATES = 0, 1000
CASES = {
    "Scenario A, K=3, n=750": (scenario_a(3), 750, "empirical"),
    "Scenario A, K=4, n=1,000": (scenario_a(4), 1000, "empirical"),
    "Scenario A, K=5, n=1,250": (scenario_a(5), 1250, "empirical"),
    "Scenario A, K=5, n=1,250, uniform priors": (scenario_a(5), 1250, "uniform"),
    "Scenario B, β=0.15, n=5,000": (scenario_b(0.15), 5000, "empirical"),
    "Scenario D, n=3,000": (ring(), 3000, "empirical"),
    "Imbalanced 20:1, K=4, n=2,000": (
        imbalanced(4, 20, length=4, random_state=0),
        2000,
        "empirical",
    ),
}


def few_classes() -> None:
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
            P = problem.posteriors(X) * np.exp(
                X @ rng.standard_normal((X.shape[1], len(problem.priors))) / np.sqrt(n)
            )
            cm = collision_matrix_from_posteriors(
                P / P.sum(axis=1, keepdims=True), y, priors=priors
            )
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
        print(
            f"{name:<42} {r['S']:>7.3f} {r['worst_entry']:>12.3f} {r['PBER']:>7.3f} {r['merged']:>9.3f}"
        )
    save("coverage-few-classes", {"seed": SEED, "replicates": REPLICATES, "level": 0.95}, rows)


def many_classes(n: int = 3000, replicates: int = 400) -> None:
    rows = {}
    print(
        f"{'case':<14} {'PBER':>6} {'covered':>8} {'before':>7} {'TVD one-step':>13} {'unscaled':>9} {'shrunk':>7}"
    )
    for k in (30, 50):
        rng = np.random.default_rng(SEED)
        problem = GaussianProblem(rng.standard_normal((k, 6)))
        X, _ = problem.sample(300_000, rng, stratified=False)
        B = (posteriors := problem.posteriors(X)).T @ posteriors / len(X)
        S, pber = B / B.sum(axis=1, keepdims=True), 1 - np.trace(B)
        for T in (1.0, 1.08, 1.15):
            found = []
            for _ in range(replicates):
                X, y = problem.sample(n, rng, stratified=False)
                P = problem.posteriors(X) ** T
                one_step, moments = one_step_and_moments(
                    P / P.sum(axis=1, keepdims=True), y, None, np.arange(k), None
                )
                plug_in, labels, variance = plug_in_and_one_step(moments)
                plug_in = balance(plug_in, one_step.priors)
                share = one_step_share(labels - plug_in, variance, one_step.priors)
                unscaled = project(plug_in + share * (labels - plug_in), one_step.priors).joint
                shrunk = shrink(one_step, moments)
                half = one_step.pber_interval()[1] - one_step.pber
                matrices = (
                    one_step.matrix,
                    unscaled / unscaled.sum(axis=1, keepdims=True),
                    shrunk.matrix,
                )
                found.append(
                    [abs(p - pber) <= half for p in (shrunk.pber, 1 - np.trace(unscaled))]
                    + [np.abs(matrix - S).sum(axis=1).mean() / 2 for matrix in matrices]
                )
            names = ("covered", "covered_unscaled", "tvd_one_step", "tvd_unscaled", "tvd_shrunk")
            rows[f"K={k}, T={T}"] = dict(
                zip(names, np.mean(found, axis=0).tolist(), strict=True)
            ) | {"pber": float(pber)}
            now, before, *tvd = np.mean(found, axis=0)
            print(
                f"K={k}, T={T:<7} {pber:6.3f} {now:8.2f} {before:7.2f} {tvd[0]:13.4f} {tvd[1]:9.4f} {tvd[2]:7.4f}"
            )
    save(
        "coverage-many-classes",
        {"seed": SEED, "replicates": replicates, "rows": n, "level": 0.95},
        rows,
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or ["few_classes", "many_classes"]:
        {"few_classes": few_classes, "many_classes": many_classes}[name]()
