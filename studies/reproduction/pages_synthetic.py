"""Sections of docs/reproduction.md on problems with a known answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from studies.markdown import table
from studies.measures import mean_error
from studies.paper import rows as paper
from studies.paper.at_size import BAYESIAN, CALIBRATED, DROPOUT, UNTEMPERED
from studies.paper.records import at_size, curve
from studies.paper.verdicts import mean_of
from studies.reproduction import figures_synthetic
from studies.reproduction.synthetic import CORRECTED, LITERAL, ORACLE
from studies.reproduction.tables import (
    OURS,
    Columns,
    Found,
    by_method,
    measured,
    method_table,
    not_again,
)
from studies.store import Cell, Record, Result, results

#: What the paper compares with.
PAPERS = ("temperature (paper)", "Monte-Carlo dropout", "Bayesian network")
#: What the paper compares posteriors with.
BASELINES = ("plain network", *PAPERS[:2])
ORDER = [
    ORACLE,
    OURS,
    f"{OURS}: Gramian root",
    f"{OURS}: class averages",
    CORRECTED,
    LITERAL,
    "plain network",
    "temperature (paper)",
    "temperature (scikit-learn)",
    "Platt",
    "isotonic",
    "Monte-Carlo dropout",
    "Bayesian network",
    "deep ensemble",
]


def sections(figures: Path) -> list[str]:
    """All of them, those without results left out."""
    made = [
        scenario_a(figures),
        scenario_b(figures),
        scenario_c(figures),
        posterior_tables(),
        posterior_variance(figures),
        intervals(),
    ]
    return [section for section in made if section]


def column(cell: Cell) -> float:
    """K, β or the length of the line."""
    return cell["arguments"][-1]


def mean_error_of_s(scores: Result) -> float | None:
    """Mean TVD of the rows of S."""
    return scores["S"][0] if "S" in scores else None


def largest_error_of_s(scores: Result) -> float | None:
    """Largest TVD of a row of S."""
    return scores["S"][1] if "S" in scores else None


def posterior_error(scores: Result) -> float | None:
    """Mean TVD of the posteriors of new rows."""
    return scores.get("posterior")


def leader(found: Found, columns: Columns) -> str:
    """Where the default is not the lowest: of methods that do not know the truth, and its own."""
    variants = [m for m in found if m.startswith(f"{OURS}:")]
    rivals = [m for m in found if m != ORACLE and m not in variants]
    lost = losses(found, columns, rivals)
    lines = ["The default has the lowest mean TVD of S in every column."]
    if lost:
        known = "Scenario A is log-linear: logistic regression is the true model there."
        lines = [*lost, known]
    own = losses(found, columns, [OURS, *variants])
    if own:
        lines += ["Other estimates from the same fit:", *own]
    return " ".join(lines)


def losses(found: Found, columns: Columns, methods: Sequence[str]) -> list[str]:
    """What is lower than the default, column by column."""
    lines = []
    for key, name in columns.items():
        values = {m: found[m][key] for m in methods if key in found[m]}
        if OURS not in values:
            continue
        best = min(values, key=lambda m, values=values: values[m].mean())
        if best != OURS and len(values[OURS]) == len(values[best]):
            gaps = values[OURS] - values[best]
            size = f"{gaps.mean():.4f} ± {mean_error(gaps):.4f}"
            lines.append(
                f"At {name} *{best}* is lower than the default by {size} (paired)."
            )
    return lines


def results_of(method: str, records: list[Record], key: float) -> list[Result]:
    """What a method found in a column."""
    own = [r["result"] for r in records if column(r["cell"]) == key]
    return [result[method] for result in own if method in result]


def bayes_table(records: list[Record], columns: Columns) -> str:
    """The Bayes error between our bounds and those of nearest neighbours."""
    rows = []
    for key, name in columns.items():
        known = results_of(ORACLE, records, key)
        if not known:
            continue
        truth = known[0]["bayes_error"]
        row = [name, f"{truth:.3f}"]
        for method in (OURS, "nearest neighbours"):
            own = results_of(method, records, key)
            bounds = np.array([each["bayes_bounds"] for each in own])
            low, high = bounds.mean(axis=0)
            inside = (bounds[:, 0] <= truth) & (truth <= bounds[:, 1])
            row.append(f"{low:.3f} to {high:.3f} ({inside.mean():.0%})")
        rows.append(row)
    ours = "our bounds (share of samples inside)"
    theirs = "nearest neighbours (DataEval's `ber_knn`)"
    return table(["", "Bayes error", ours, theirs], rows)


def pair_table(records: list[Record], columns: Columns) -> str:
    """How often each method that names pairs names the one that truly collides most."""
    naming = dict.fromkeys(
        method
        for record in records
        for method, scores in record["result"].items()
        if method != ORACLE and "most_overlapping" in scores
    )
    rows = []
    for method in naming:
        row = [method]
        for key in columns:
            truth = results_of(ORACLE, records, key)[0]["most_overlapping"]
            own = results_of(method, records, key)
            hits = sum(each["most_overlapping"] == truth for each in own)
            row.append(f"{hits} of {len(own)}")
        rows.append(row)
    return table(["method", *columns.values()], rows)


def scenario_tables(name: str, records: list[Record], columns: Columns) -> str:
    """Errors of S and of the posteriors of every method, and bounds on the Bayes error."""
    mean = by_method(records, column, mean_error_of_s)
    largest = by_method(records, column, largest_error_of_s)
    posterior = by_method(records, column, posterior_error)
    return f"""Mean TVD of the rows of S to the truth (± standard error over samples):

{method_table(mean, ORDER, columns, (ORACLE,))}

{leader(mean, columns)}

Largest TVD of a row:

{method_table(largest, ORDER, columns, (ORACLE,))}

Mean TVD of the posteriors of new rows:

{method_table(posterior, ORDER, columns, (ORACLE,))}

Bayes error:

{bayes_table(records, columns)}

Samples in which the most colliding pair of classes is named rightly (cleanlab: the first of its
overlapping classes). At K = 4 two pairs of neighbours are as far apart and nearly tie:

{pair_table(records, columns)}

{not_again(name)}

{measured(records)}"""


def scenario_a(figures: Path) -> str:
    """Figure 5, Scenario A."""
    records = results("scenario-a")
    if not records:
        return ""
    columns = {k: f"K = {k}" for k in (3, 4, 5)}
    path = figures / "scenario-a.svg"
    shown = (LITERAL, *PAPERS, OURS)
    largest = by_method(records, column, largest_error_of_s)
    figures_synthetic.draw_bars(largest, shown, columns, "largest TVD of a row", path)
    return f"""## Scenario A: more classes

250 points a class, d = 4. The networks have 6 layers of 128 and 500 epochs, as in the paper
(batches of 64 rows, dropout 0.2, 50 passes and draws: our choices).

Samples for each K: {samples(records)}.

![Scenario A](figures/scenario-a.svg)

{scenario_tables("scenario-a", records, columns)}"""


def scenario_b(figures: Path) -> str:
    """Figure 5, Scenario B."""
    methods = {
        "as printed": (paper.PRINTED, paper.PRINTED),
        "with the logit shift": (paper.PRINTED, paper.SHIFT_ALONE),
        CALIBRATED: (CALIBRATED, CALIBRATED),
        DROPOUT: (DROPOUT, DROPOUT),
        UNTEMPERED: (UNTEMPERED, UNTEMPERED),
        OURS: (paper.OURS, paper.OURS),
    }
    found: Found = {}
    for name, (part, method) in methods.items():
        by_overlap = at_size(part, "mean", None, method)
        own = {
            where: np.array(list(each.values())) for where, each in by_overlap.items()
        }
        found[name] = dict(own)
    columns = {where: where.removeprefix("B, ") for where in found[OURS]}
    path = figures / "scenario-b.svg"
    figures_synthetic.draw_bars(found, list(methods), columns, "mean TVD of S", path)
    return """## Scenario B: more overlap, 20 dimensions

10,000 points a class, K = 5, 500 epochs for every network, in batches of 256 rows. Numbers are in [the
paper in one table](paper.md#at-the-papers-size).

![Scenario B](figures/scenario-b.svg)"""


def scenario_c(figures: Path) -> str:
    """Figure 5, Scenario C."""
    methods = {
        "as printed": curve(paper.PRINTED, paper.PRINTED),
        "with the logit shift": curve(paper.PRINTED, paper.SHIFT_ALONE),
        UNTEMPERED: curve(UNTEMPERED, UNTEMPERED),
        f"{BAYESIAN}, cold": curve(BAYESIAN, BAYESIAN),
        OURS: curve(paper.OURS, paper.OURS),
    }
    figures_synthetic.draw_training_cost(methods, figures / "scenario-c.svg")
    rows = []
    for name, points in methods.items():
        for epochs, errors in points.items():
            shown = [str(epochs or "–"), str(len(errors)), mean_of(errors)]
            rows.append([name, *shown])
    return f"""## Scenario C: accuracy against training cost

The problem of Scenario B with the most overlap, V as printed and its rival in batches of 256; one
training looked at after several numbers of epochs. An epoch of V takes about the time of an epoch
of a classifier. The default has an end of its own. More is in [the paper in one
table](paper.md#at-the-papers-size).

![S against epochs of training](figures/scenario-c.svg)

{table(["method", "epochs", "samples", "mean TVD of S"], rows)}"""


def posterior_tables() -> str:
    """Figure 9A."""
    records = results("posterior-tables")
    if not records:
        return ""
    methods = [OURS, CORRECTED, LITERAL, "plain network", *PAPERS[:2]]
    found = by_method(records, lambda cell: tuple(cell["arguments"]), posterior_error)
    rows = []
    wins = dict.fromkeys(methods, 0)
    for case in sorted({tuple(r["cell"]["arguments"]) for r in records}):
        values = {m: float(found[m][case].mean()) for m in methods if case in found[m]}
        best = min(values, key=lambda m, values=values: values[m])
        wins[best] += 1
        texts = {m: f"{value:.3f}" for m, value in values.items()}
        texts[best] = f"**{texts[best]}**"
        k, d, length = case
        shown = [texts.get(m, "") for m in methods]
        rows.append([str(k), str(d), f"{length / (k - 1):g}", *shown])
    return f"""## Tables of posterior errors

Means equally spaced on a line in a random direction (250 points a class, unit covariance); the
paper's grid is in a picture, so this one is ours: classes K, dimensions d and the distance between
neighbours. One sample each, mean TVD of the posteriors of new rows. The literal paper has its 500
epochs, five folds and 50 references a class, the baselines as many and the rows of a fold of the pair-wise network.

{table(["K", "d", "gap", *methods], rows)}

Lowest: {", ".join(f"{m} {n}" for m, n in wins.items())}.

{not_again("posterior-tables")}

{measured(records)}"""


def posterior_variance(figures: Path) -> str:
    """Figure 9B."""
    records = results("posterior-variance")
    if not records:
        return ""
    errors = {}
    for record in records:
        if ORACLE in record["result"]:
            own = record["result"][ORACLE]["bayes_error"]
            errors[column(record["cell"])] = own
    columns = {key: f"Bayes error {errors[key]:.2f}" for key in sorted(errors)}
    found = by_method(records, column, posterior_error)
    spread = {
        method: {key: np.array([v.std(ddof=1)]) for key, v in parts.items()}
        for method, parts in found.items()
    }
    figures_synthetic.draw_variance(found, errors, figures / "posterior-variance.svg")
    return f"""## Posterior errors over many samples

K = 4 classes on a line in 10 dimensions, 250 points a class, 500 epochs for every network.

Samples at each of {len(columns)} overlaps: {samples(records)}.

![Posterior error against Bayes error](figures/posterior-variance.svg)

Mean TVD:

{method_table(found, ORDER, columns, (ORACLE,))}

Standard deviation over samples:

{method_table(spread, ORDER, columns, (ORACLE,))}

{not_again("posterior-variance")}

{measured(records)}"""


def intervals() -> str:
    """How often intervals cover."""
    records = results("calibration-of-intervals")
    if not records:
        return ""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for record in records:
        key = (record["cell"]["problem"], record["cell"]["method"])
        own = found.setdefault(key, {})
        for level, values in record["result"]["S"].items():
            own.setdefault(level, []).extend(values)
        own.setdefault("PBER", []).extend(record["result"]["PBER"]["0.95"])
    levels = ["0.5", "0.8", "0.9", "0.95", "0.99"]
    rows = []
    for (problem, method), own in sorted(found.items()):
        shares = [f"{np.mean(own[level]):.1%}" for level in [*levels, "PBER"]]
        rows.append([problem, method, str(len(own["0.95"])), *shares])
    shown = [f"{float(level):.0%}" for level in levels]
    head = ["problem", "method", "samples", *shown, "PBER, 95%"]
    return f"""## Intervals (not in the paper)

Share of true entries of S inside nominal intervals; labels drawn at random too. The last column is
the 95% interval of PBER, which what a model has not learned yet moves off its place (Scenario D).

{table(head, rows)}

{not_again("calibration-of-intervals")}

{measured(records)}"""


def samples(records: list[Record]) -> str:
    """How many samples, and which methods have fewer."""
    seeds: dict[str, set[int]] = {}
    for record in records:
        seeds.setdefault(record["cell"]["method"], set()).add(record["cell"]["seed"])
    counts = {method: len(own) for method, own in seeds.items()}
    most = max(counts.values())
    fewer = ", ".join(f"{method} {n}" for method, n in counts.items() if n < most)
    if fewer:
        return f"{most} ({fewer})"
    return f"{most}"
