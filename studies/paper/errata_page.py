"""docs/errata.md: where the paper is wrong or says less than is true, from the records."""

from __future__ import annotations

from studies.markdown import table
from studies.paper import rows
from studies.paper.records import at_full_size, results, values
from studies.paper.verdicts import mean_of
from studies.store import Cell, Result


def found(statement: str) -> list[tuple[Cell, Result]]:
    """(arguments, result) of every run of a statement."""
    return [
        (record["cell"]["arguments"], record["result"])
        for record in results("errata")
        if record["cell"]["statement"] == statement
    ]


def one(statement: str) -> Result:
    """The result of a statement that is run once."""
    return found(statement)[-1][1]


def shown_by(statement: str) -> str:
    """Where the numbers come from."""
    return f"*Shown by [`{statement}`](../studies/paper/errata.py).*"


def shift_table() -> str:
    """1."""
    body = []
    for arguments, result in found("shift"):
        literal, corrected = result["literal"], result["corrected"]
        body.append(
            [
                str(arguments["K"]),
                f"{literal['row_sum']:.2f}",
                f"{corrected['row_sum']:.2f}",
                f"{literal['descent']:.4f}",
                f"{literal['root']:.4f}",
                f"{corrected['descent']:.4f}",
                f"{corrected['root']:.4f}",
            ]
        )
    head = ["K", "row sums of Ĝ", "with the shift", "TVD of S, descent", "root"]
    return table([*head, "with the shift, descent", "root"], body)


def root_table() -> str:
    """2."""
    body = []
    for arguments, result in found("root"):
        body.append(
            [
                str(arguments["K"]),
                f"{result['smallest_factor']:.2f}",
                f"{result['largest_error']:.0e}",
                f"{result['faster']:,.0f} ×",
                f"{result['descent_error']:.1e}",
            ]
        )
    head = [
        "K",
        "smallest dominance factor",
        "largest error of the root",
        "root is faster by",
    ]
    return table([*head, "TVD of the descent, exact G"], body)


def inverse_table() -> str:
    """5."""
    runs = found("inverse")
    body = []
    for name in runs[0][1]:
        ranges = [
            f"{low:.3f} to {high:.3f}" for low, high in (run[1][name] for run in runs)
        ]
        body.append([name, *ranges])
    return table(
        ["posteriors by S⁻¹q with", *(f"K = {run[0]['K']}" for run in runs)], body
    )


def averaging_table() -> str:
    """7."""
    names = {
        "Algorithm 3: a classifier, its own training rows": rows.PLAIN,
        "V as printed, its own training rows (T)": rows.PRINTED,
        "V as printed, held-out rows": rows.CROSS_FIT,
        "V with the shift, its own training rows (T)": rows.SHIFT_ALONE,
        "V with the shift, held-out rows": rows.SHIFT,
    }
    body = []
    for said, name in names.items():
        own = values("ablation", name, "mean")
        body.append([said, *(mean_of(each) for each in own.values())])
    return table(["averages over", "A, K = 3", "K = 4", "K = 5", "B"], body)


def own_rows_at_full_size() -> str:
    """7: the classifier of 500 epochs, averaged over the rows that it was trained on."""
    own = at_full_size("A", "mean", rows.PLAIN)
    return "; ".join(f"{each}: {mean_of(own[each])}" for each in own)


def ignorance_table() -> str:
    """9."""
    body = []
    for arguments, result in found("ignorance"):
        low, high = result["off_diagonal"]
        row = [f"{arguments['n']:,}"]
        row += [f"{result[name]:.4f}" for name in ("truth", "claimed", "predicted")]
        row += [f"{result['largest_gap']:.4f}", f"{low:+.4f} to {high:+.4f}"]
        body.append(row)
    head = ["rows", "true PBER", "claimed", "true PBER + E‖δ‖²"]
    return table([*head, "largest gap of an entry", "errors off the diagonal"], body)


def delta_table() -> str:
    """13."""
    body = []
    for arguments, result in found("delta_term"):
        share = f"{result['exceeded']:.1%}"
        body.append([f"{arguments['n']:,}", f"{result['allowed']:.5f}", share])
    return table(["rows", "the term with δ = .05", "samples beyond it"], body)


def dominance_table() -> str:
    """16."""
    body = [
        [name, f"{each['factor']:.2f}", f"{each['smallest_diagonal']:.2f}"]
        for name, each in one("dominance").items()
    ]
    return table(["scenario", "dominance factor ε", "smallest S_kk"], body)


def loop_table() -> str:
    """17."""
    body = []
    for arguments, result in found("loop"):
        for tolerance, each in result.items():
            ended = (
                f"after {each['steps']:,} steps"
                if each["converged"]
                else "not in 20,000"
            )
            name = "with the shift" if arguments["corrected"] else "as printed"
            body.append([name, tolerance, ended, f"{each['row_sum']:.3f}"])
    return table(["V", "γ", "ended", "mean row sum of S"], body)


def heuristic_table() -> str:
    """15."""
    body = [
        [
            str(record["cell"]["K"]),
            f"{record['cell']['ratio']} : 1",
            f"{record['result']['descent']:.4f}",
            f"{max(record['result']['root'], 1e-16):.0e}",
        ]
        for record in results("heuristic")
    ]
    return table(["K", "favour", "descent from I", "root"], body)


def text() -> str:
    """The page."""
    lemma = one("lemma")
    pac = one("pac")
    rate = one("rate")
    norms = one("norms")
    denominator = one("denominator")
    balance = one("balance")
    precision = one("precision")
    divergence = one("divergence")
    return f"""# Errata and strengthenings

Where the paper ([arXiv:2411.12127](https://arxiv.org/abs/2411.12127)) is wrong, or says less than
is true. Written by `python -m studies tables`; each number has a function that shows it.

## 1. The pair-wise model needs a shift of its logit

The risk (31) draws same-class and different-class pairs half and half, whereas two inputs drawn
with classes at random share a class once in K. By Bayes' rule the minimiser V has odds K - 1 times
those of Sim (at uniform priors), so logit Sim = logit V - log(K - 1). For K = 2 the shift is zero,
which is why two-class examples do not show it. The *best possible* V, taken for Sim as the paper
does (descent: 20,000 steps of 1e-3, rows as it leaves them):

{shift_table()}

In general: for any distribution of pairs, shift by the log ratio of the sampled to the wanted odds
of "same" (`collidescope.pairwise.pairs.same_log_odds_shift`). With trained networks: [the paper in
one table](paper.md).
{shown_by("shift")}

## 2. S follows from G in closed form, for any priors and without diagonal dominance

Theorem 1 asks for uniform priors and a diagonally dominant S. But B = diag(π) S has entries
E[y_i(x) y_j(x)], so it is symmetric and positive semi-definite always, and diag(π) G diag(π) = B
B. A positive semi-definite matrix has exactly one positive semi-definite square root, hence B =
(diag(π) G diag(π))^½, one eigendecomposition. Random collision matrices that are *not* dominant,
at unequal priors, and the descent of Algorithm 1 on the exact G of Scenario A (K = 10: means on a
line):

{root_table()}

{shown_by("root")}

## 3. The empirical risk divides by the wrong number of pairs

Ordered pairs of distinct points of one class with n/K members number (n/K)² - n/K, not (n/K)² - n.
For n = 1,250 and K = 5: {denominator["pairs"]:,} pairs, the formula of (32) gives
{denominator["paper"]:,} (and it is negative for n < K²). {shown_by("denominator")}

## 4. The error bound of the posterior is a first-order statement

Lemma 2 bounds ‖ŷ - y‖ by 2(1+ε)/(1-ε) times the relative errors, for every Ŝ. With S = [[.6, .4],
[.4, .6]], Ŝ = [[.51, .49], [.49, .51]] and exact q, the error is {lemma["error"]:.2f} and the
bound {lemma["lemma"]:.2f}. With κ the condition number of S in the ∞-norm and r = κ‖Ŝ - S‖ < 1 the
bound that always holds is κ/(1-r)·(‖Ŝ - S‖ + ‖q̂ - q‖/‖q‖); for r ≥ 1 there is none, as Ŝ may be
singular. A fifth of that way from S to Ŝ: error {lemma["near_error"]:.3f}, this bound
{lemma["near_always"]:.3f}, the lemma {lemma["near_lemma"]:.3f}. (In the proof, κ(D D⁻¹S) *equals*
κ(D) κ(D⁻¹S) in (64) should be "is at most", and the series of ε in (62) starts at i = 0.)
`posterior_error_bound` gives both. {shown_by("lemma")}

## 5. Inverting S amplifies noise, unless S comes from the same points

Posteriors of 2,000 new rows by S⁻¹q with 25 comparison points a class and the true similarity,
smallest and largest mean TVD over five draws of the points. Where Ŝ comes from the points that q̂
is averaged over, their errors cancel; in the paper they may differ (S from T, comparison points
from the validation set), and then the errors do not cancel.

{inverse_table()}

{shown_by("inverse")}

## 6. For the true S precision equals recall

By detailed balance π_i S_ij = π_j S_ji, so the probabilistic Bayes classifier has precision S_kk =
recall for every class (largest difference over a random problem: {balance["same_priors"]:.0e}).
The paper's different values come from a decision at uniform priors scored on a population with
others; there they differ (by up to {balance["decided_at_uniform"]:.2f} in this problem).
`CollisionMatrix.precision(population_priors)` offers both.
{shown_by("balance")}

## 7. Averaging a model over the rows it was trained on

Algorithm 3 averages a classifier over its own training rows, and Algorithm 1 averages V over the
rows that it was trained on: the paper compares in-sample estimates throughout. Mean TVD of S with
small networks ([`trained_verbatim` and `cross_fitted`](../studies/paper/rows.py)):

{averaging_table()}

With the paper's 500 epochs of 6 × 128 the classifier is off by {own_rows_at_full_size()}.

## 8. Intervals, and bounds on the Bayes error

The paper gives no uncertainty of Ŝ. The one-step estimator has one; how often its intervals cover
is measured in the [benchmarks](benchmarks.md). PBER = 1 - tr B is the lowest possible Brier score
and the asymptotic error of one nearest neighbour, so by Cover and Hart (K-1)/K·(1 - √(1 -
K/(K-1)·PBER)) ≤ Bayes error ≤ PBER, for the true PBER.

## 9. Ignorance looks like ambiguity

The paper calls S a property of the distribution, which it is, and reads its *estimate* as one.
What a model has not learned is counted as collision: with y the true posterior and p that of a
model, the one-step estimate converges to B - E[δδᵀ], δ = p - y, so its PBER is too high by E‖δ‖²
in the limit, never too low. (An entry off the diagonal is off by -E[δ_i δ_j], which may have
either sign.) A forest trained on so many rows, scored on 20,000 others:

{ignorance_table()}

{shown_by("ignorance")}

## 10. The collision divergence has a name

1 - 2 S₁₂ = ½∫(f₁ - f₂)²/(f₁ + f₂) is the Vincze–Le Cam (triangular) divergence, an f-divergence
whose square root is a metric. With TV the total variation and H² = ½∫(√f₁ - √f₂)²: TV² ≤ it ≤ TV
and H² ≤ it ≤ 2H². For N(±2, 1) both integrals are {divergence["collision"]:.6f} and
{divergence["triangular"]:.6f}, TV is {divergence["variation"]:.4f} and H²
{divergence["hellinger"]:.4f}. {shown_by("divergence")}

## 11. A step in the proof of Theorem 1

"Q = S⁻¹L is the product of symmetric matrices and is symmetric itself": a product of symmetric
matrices is symmetric only if they commute, which is what the step is to show. Two strictly
dominant symmetric stochastic matrices with an asymmetry of S⁻¹L of
{one("product")["asymmetry"]:.3f} are in the script. The theorem is true all the same (2).
{shown_by("product")}

## 12. Theorem 2: n² - K²n, and how many rows it asks for

K/√(n² - K²n) is one over the root of the number of same-class pairs as the paper counts them,
(n/K)² - n (3); with the pairs that there are it is K/√(n² - Kn): {pac["printed"]:.5f} against
{pac["counted"]:.5f} for n = 1,250 and K = 5. "n must increase at a rate greater than √K in order
to prevent the denominator from approaching zero" should read n > K² ({pac["rows_needed"]} rows for
K = 5). {shown_by("pac")}

## 13. The term with δ

It falls like 1/n, as if n² pairs were independent draws. They share n rows: the empirical risk of
a fixed V is a U-statistic, whose standard deviation falls like 1/√n in general. For a class that
holds one V the supremum is the deviation of its risk, and the term with δ is to bound it in all
but a share δ of the samples. Two classes, x = 1 with chance .85 in the first and .15 in the
second, V says "same" where x = x', loss 0 or 1:

{delta_table()}

For the minimiser of the risk in Scenario A, loss cut at 3, the standard deviation of (32) falls
with n to the power of {rate["slope"]:.2f}. The bound as a whole is not refuted: the constant of
its first term is open, and for d ≥ 2 that term falls no faster than 1/√n. `pac_bound` computes the
formula as it is printed. {shown_by("delta_term")} {shown_by("rate")}

## 14. What S says about other classifiers

"Training more sophisticated models on this dataset can not lead to high precision": S speaks for a
classifier that *draws* its answer from the posterior, and bounds no other. Let a third of a class
of 10% be certain, and the rest inputs that look like the other class: the probabilistic classifier
has precision {precision["probabilistic_precision"]:.2f}, and the classifier that flags the certain
inputs has precision {precision["best_precision"]:.2f} at recall {precision["at_recall"]:.2f}, with
the same S. For the paper's diabetes data the sentence is not refuted: the best guess is somewhat
more precise than the draw, not "high" ([tables](reproduction.md#real-tables)). A bound on any
classifier follows from the posteriors (`ceilings`, `audit`).
{shown_by("precision")}

## 15. The heuristic for unequal priors is not needed

For unequal priors the paper descends from I and says that this may fail. It does, by the mean TVD
of S from exact Gramians of random problems whose posteriors favour the first class, and the closed
form does not:

{heuristic_table()}

*Shown by [`heuristic`](../studies/paper/recovery.py).*

## 16. The paper's own scenarios are not diagonally dominant

"In any tractable classification setting, we would expect diagonal dominance": Scenarios A and B, C
at the largest overlap are not, so Theorem 1 and Lemma 2 do not cover them.

{dominance_table()}

{shown_by("dominance")}

## 17. The loop of Algorithm 1 looks at the gap alone

`while ‖S Sᵀ - G‖ > γ` ignores the penalty: it ends as soon as S Sᵀ fits G, with rows that need not
sum to 1, or never, as no stochastic S fits a Ĝ whose rows sum to more than 1, and none at all fits
a Ĝ that is not symmetric. Scenario A, K = 3, best possible V, η = 1e-3:

{loop_table()}

{shown_by("loop")}

## 18. Slips

- (31) sums over i ≠ j, its expectations are over D_j and D_k; the sums of (32) run to k where K is
  meant.
- "between the rows of Ŝ and the corresponding columns of S" (Section 5): rows of both.
- Algorithm 3 averages C(x), which is called M(x) in the text.
- Lemma 2 calls ‖Ŝ - S‖∞ the element-wise error, its proof uses the largest row sum. To first order
  the lemma is true in both senses, as y sums to 1: in random trials error over bound was at most
  {norms["element_wise"]:.2f} element by element and {norms["row_sums"]:.2f} with row sums.
  {shown_by("norms")}
- (33) writes k for K, and the d of its exponent is not the dimension d of the inputs.
"""
