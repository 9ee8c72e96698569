"""docs/errata.md: where the paper is wrong or can be strengthened, each with a number from a
committed run."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from studies.markdown import table
from studies.reproduction.claims import Claim, Section, claims
from studies.store import by_part, results


def _statements() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in results("errata"):
        found.setdefault(record["cell"]["statement"], []).append(record["cell"] | record["result"])
    return found


def _recovery() -> str:
    stored = by_part(results("recovery"))["root_against_gradient"]["rows"]
    rows = []
    for r in stored:
        errors = [f"{r['root_tvd']:.1e}", f"{r['gradient_tvd']:.1e}"]
        rows.append([r["gramian"], str(r["K"]), f"{r['ratio']:,.0f} ×", *errors])
    return table(["Gramian", "K", "root is faster by", "TVD, root", "TVD, gradient descent"], rows)


def _coverage() -> str:
    records = results("coverage-few-classes")
    return ", ".join(f"{r['cell']['problem']} {r['result']['S']:.1%}" for r in records)


def _training_rows() -> str:
    """Algorithm 3 over its own training rows against held-out rows, from Scenario A."""
    names = ("plain network", "early-stopped network: averages", "early-stopped network: one-step")
    rows = []
    records = results("scenario-a")
    for k in (3, 4, 5):
        own = [r["result"] for r in records if r["cell"]["arguments"] == [k]]
        row = [str(k)]
        for name in names:
            errors = [r[name]["S"][0] for r in own if name in r]
            row.append(f"{np.mean(errors):.4f}" if errors else "")
        rows.append(row)
    head = [
        "K",
        "plain network, its own training rows",
        "early-stopped, held-out rows",
        "the same, one-step estimator",
    ]
    return table(head, rows)


def _rates(counted: dict[str, Any]) -> str:
    n, K = counted["rows"], counted["K"]
    if n <= K * K:
        return ""
    printed, right = (K / np.sqrt(n * n - part * n) for part in (K * K, K))
    return f"{printed:.5f} against {right:.5f} for n = {n:,} and K = {K}"


def _untried() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in results("missing"):
        found.setdefault(record["cell"]["claim"], []).append(record["cell"] | record["result"])
    return found


def _slopes() -> dict[int, float]:
    """By K, the power of m with which the error of Ĝ falls, m rows per class and all m² pairs
    compared."""
    own = _untried().get("pairs", [])
    parts = {K: [r for r in own if r["K"] == K] for K in sorted({r["K"] for r in own})}
    logs = {K: np.log([[r["m"], r["G"]] for r in part]) for K, part in parts.items()}
    return {K: float(np.polyfit(*pairs.T, 1)[0]) for K, pairs in logs.items()}


def _pair_rate() -> str:
    slopes = _slopes()
    if not slopes:
        return ""
    return (
        "Measured with the true similarity, m rows per class and all m² pairs of two classes: the "
        f"error of Ĝ falls with m to the power of {', '.join(f'{slope:.2f}' for slope in slopes.values())} "
        f"(K = {', '.join(map(str, slopes))}), not of -1. "
    )


def _best_guess() -> str:
    """Diabetes, decided at uniform priors: the draw and the best guess."""
    for record in results("tabular"):
        if record["cell"]["dataset"] == "diabetes" and record["cell"]["method"] == "collidescope":
            drawn, best = (
                record["result"]["decided"]["uniform"],
                record["result"]["optimal"]["uniform"]["by_labels"],
            )
            return (
                f": for diabetes, decided at uniform priors, recall {best['recall']:.2f} and "
                f"precision {best['precision']:.2f} against {drawn['recall']:.2f} and "
                f"{drawn['precision']:.2f}"
            )
    return ""


def _descent() -> str:
    own = _untried().get("descent", [])
    if not own:
        return ""
    rows = [
        [str(r["K"]), f"{r['ratio']:g} : 1", f"{r['descent']:.4f}", f"{r['root']:.0e}"] for r in own
    ]
    return (
        ". Mean TVD of S from exact Gramians of random problems whose posteriors favour the first "
        "class:\n\n"
        + table(["K", "ratio", "gradient descent", "closed-form root"], rows)
        + "\n\nAt equal priors both agree"
    )


def section() -> Section:
    """The paper's mathematics among all its claims."""
    found = _statements()
    shifts, lemma = found["shift"], found["lemma"][0]
    row_sums = ", ".join(f"{r['literal']['row_sum']:.2f}" for r in shifts)
    slopes = ", ".join(f"{slope:.2f}" for slope in _slopes().values())
    counted = found["denominator"][0]
    sizes = ", ".join(str(r["K"]) for r in shifts)
    found_rows = [
        (
            "Theorem 1: S is the only such root of its Gramian",
            "true, though a step of the proof is not (11); dominance and uniform priors are not "
            "needed (2)",
            True,
        ),
        (
            "the minimiser V of the balanced risk is the similarity",
            f"for K = 2 alone: rows of Ĝ sum to {row_sums} for K = {sizes} (1)",
            False,
        ),
        (
            "the empirical risk has (n/K)² - n pairs of a class",
            f"{counted['pairs']:,} pairs where the formula gives {counted['paper']:,} (3, 12)",
            False,
        ),
        ("Theorem 2: the δ-term falls like 1/n", f"measured powers of n {slopes} (13)", False),
        ("posteriors are y = S⁻¹q", "exact, but noise is amplified (5)", True),
        (
            "the lemma bounds the error of posteriors",
            f"an error of {lemma['error']:.2f} under a bound of {lemma['lemma']:.2f} (4)",
            False,
        ),
    ]
    rows = [Claim(claim, "", got, held) for claim, got, held in found_rows]
    return Section(
        f"## Mathematics\n\nIn brackets the number in the [errata](errata.md).\n\n{claims(rows)}",
        rows,
    )


def page() -> str:
    """The whole page."""
    found = _statements()
    shifts = found.get("shift", [])
    shift = table(
        ["K", "row sums of Ĝ, literal", "corrected", "mean TVD of S, literal", "corrected"],
        [
            [str(r["K"]), *(f"{r[n]['row_sum']:.2f}" for n in ("literal", "corrected")),
             *(f"{r[n]['S'][0]:.4f}" for n in ("literal", "corrected"))]
            for r in shifts
        ],
    )  # fmt: skip
    dominance = found.get("dominance", [{"largest_error": np.nan}])
    counted = found.get("denominator", [{"paper": 0, "pairs": 0, "rows": 0, "K": 1}])[0]
    lemma = found["lemma"][0]
    solvers = found.get("solver", [])
    names = (
        [n for n in solvers[0] if n not in ("statement", "K", "references", "rows")]
        if solvers
        else []
    )
    solver = table(["K", *names], [[str(r["K"]), *(f"{r[n]:.3f}" for n in names)] for r in solvers])
    balance = found["balance"][0]
    text = f"""# Errata and strengthenings

Where the paper is wrong, or says less than is true. Generated by `python -m studies tables`; the
numbers come from `python -m studies run errata` and the benchmarks.

## 1. The pair-wise model needs a shift of its logit

The risk draws same-class and different-class pairs half and half, whereas two inputs drawn with
classes at random share a class once in K. By Bayes' rule the minimiser V has odds K - 1 times those
of Sim (at uniform priors), so logit Sim = logit V - log(K - 1). For K = 2 the shift is zero, which
is why two-class examples do not show it. The *best possible* V, taken for Sim as the paper does:

{shift}

In general: whatever distribution of pairs is sampled, shift by the log ratio of the sampled to the
wanted odds of "same" (`collidescope.pairwise.pairs.same_log_odds_shift`). With trained networks:
see the [benchmarks](benchmarks.md).

## 2. S follows from G in closed form, for any priors and without diagonal dominance

Theorem 1 asks for uniform priors and a diagonally dominant S. But B = diag(π) S has entries
E[y_i(x) y_j(x)], so it is symmetric and positive semi-definite always, and diag(π) G diag(π) = B B.
A positive semi-definite matrix has exactly one positive semi-definite square root, hence B =
(diag(π) G diag(π))^½, one eigendecomposition. On random collision matrices that are *not* dominant,
at unequal priors, the largest error of an entry was
{max(r["largest_error"] for r in dominance):.0e}. Against the paper's penalised gradient descent:

{_recovery()}

## 3. The empirical risk divides by the wrong number of pairs

Ordered pairs of distinct points of one class with n/K members number (n/K)² - n/K, not (n/K)² - n.
For n = {counted["rows"]:,} and K = {counted["K"]}: {counted["pairs"]:,} pairs, the paper's formula
gives {counted["paper"]:,} (and it is negative for n < K²).

## 4. The error bound of the posterior is a first-order statement

The lemma bounds ‖ŷ - y‖ by 2(1+ε)/(1-ε) times the relative errors, whatever Ŝ is. With S = [[.6,
.4], [.4, .6]], Ŝ = [[.51, .49], [.49, .51]] and exact q, the error is {lemma["error"]:.2f} and the
bound {lemma["lemma"]:.2f}. With κ the condition number of S in the ∞-norm and r = κ‖Ŝ - S‖ < 1 the
bound that always holds is κ/(1-r)·(‖Ŝ - S‖ + ‖q̂ - q‖/‖q‖); for r ≥ 1 there is none, as Ŝ may be
singular. A fifth of that way from S to Ŝ: error {lemma["near"]["error"]:.3f}, this bound
{lemma["near"]["always"]:.3f}, the lemma {lemma["near"]["lemma"]:.3f}. (In the proof, κ(D D⁻¹S)
*equals* κ(D) κ(D⁻¹S) should be "is at most", and the series of ε starts at i = 0.)
`posterior_error_bound` gives both.

## 5. Inverting S amplifies noise

With the true S and 25 references a class, mean TVD of the posteriors of new rows: the paper's S⁻¹q,
least squares over the simplex, and with a small ridge towards the priors (chosen by held-out loss
in the estimator):

{solver}

## 6. For the true S precision equals recall

By detailed balance π_i S_ij = π_j S_ji, so the probabilistic Bayes classifier has precision S_kk =
recall for every class (largest difference over a random problem: {balance["same_priors"]:.0e}). The
paper's different values come from a decision at uniform priors scored on a population with others;
there they differ (by up to {balance["decided_at_uniform"]:.2f} in this problem).
`CollisionMatrix.precision(population_priors)` offers both.

## 7. Averaging a classifier over the rows it was trained on

Algorithm 3 averages posteriors over the training data, where a network trained for 500 epochs is
sure of every label. Mean TVD of S in Scenario A:

{_training_rows()}

Held-out rows are the remedy; the one-step estimator mean(c pᵀ + p cᵀ - p pᵀ), whose bias is second
order in the error of p, adds nothing to averages here. The paper's comparison is therefore as much
between held-out and training rows as between methods.

## 8. Intervals, and bounds on the Bayes error

The paper gives no uncertainty of Ŝ. The one-step estimator has one: nominal 95% intervals covered
{_coverage()} (true posteriors made wrong by O(n^-½), 1,000 samples; whole fits are in
[reproduction](reproduction.md)). PBER = 1 - tr B is the lowest possible Brier score and the
asymptotic error of one nearest neighbour, so by Cover and Hart (K-1)/K·(1 - √(1 - K/(K-1)·PBER)) ≤
Bayes error ≤ PBER.

## 9. Ignorance looks like ambiguity

What a model has not learned is counted as collision: the estimate converges to B - E[δδᵀ], δ = p -
y. PBER is over-estimated in the limit, never under-estimated. The paper reads its estimates as
properties of the data alone; `limit_` says what unlimited rows of the same kind would leave. S is
then an upper limit of the ambiguity in its trace alone: B̂ ⪯ B means that the diagonal of B is too
small and 1 - tr B too large, but single entries off the diagonal may be too small as well as too
large.

## 10. The collision divergence has a name

1 - 2 S₁₂ = ½∫(f₁ - f₂)²/(f₁ + f₂) is the Vincze–Le Cam (triangular) divergence, an f-divergence
whose square root is a metric. With TV the total variation and H² = ½∫(√f₁ - √f₂)²: TV² ≤ it ≤ TV
and H² ≤ it ≤ 2H².

## 11. A step in the proof of Theorem 1

"Q = S⁻¹L is the product of symmetric matrices and is symmetric itself": a product of symmetric
matrices is symmetric only if they commute, which is what the step is to show. The theorem is true
all the same, and more briefly: strictly diagonally dominant symmetric matrices with a non-negative
diagonal are positive definite, and a positive semi-definite matrix has one positive semi-definite
root (2).

## 12. Theorem 2: n² - K²n, and how many rows it asks for

K/√(n² - K²n) is one over the root of the number of same-class pairs as the paper counts them,
(n/K)² - n (3); with the pairs that there are it is K/√(n² - Kn): {_rates(counted)}. "n must
increase at a rate greater than √K in order to prevent the denominator from approaching zero" should
read n > K²: n² - K²n is positive only then.

## 13. The rate of the term with δ

That term falls like 1/n, as if n² pairs were independent draws. They share n rows: a mean over
pairs is a U-statistic, whose standard deviation falls like 1/√n in general.
{_pair_rate()}`pac_bound` computes the formula as it is printed.

## 14. "Training more sophisticated models can not lead to high precision"

S speaks for a classifier that *draws* its answer from the posterior. The best guess from the same
posteriors has both higher recall and higher precision{_best_guess()}. A bound on what any
classifier can do follows from the posteriors (`ceilings`, `audit`), not from S alone.

## 15. Gradient descent from I, for unequal priors

S is one of many roots of G when S is not symmetric, and descent from I does not find
it{_descent()}.
"""
    return re.sub(r"\n{3,}", "\n\n", text)
