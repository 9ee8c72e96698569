"""Does the range with unlimited rows hold the truth, and is S∞ nearer to S than S(n)?

Sixteen problems whose S is known, most of them outside the families of the models, and twelve more
(``FRESH``) on which no prior of the range was chosen.

:func:`tune` is how the priors of :mod:`collidescope.limit` were found: of the candidates, those
under which the true PBER has the highest density on runs with even seeds, among those that cover
94% of them; odd seeds are for the check. ``python -m studies.accuracy.limit`` prints them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import QuantileRegressor

from collidescope import CollisionClassifier
from collidescope import limit as limits
from collidescope.equations.power_law import Prior
from collidescope.limit import Limit
from collidescope.matrix import CollisionMatrix
from studies import known as datasets
from studies.markdown import again, table
from studies.measures import tvd
from studies.problems import FRESH
from studies.store import Cell, Record, Study, flat, runs

PROBLEMS: dict[str, Callable[[], datasets.Problem]] = {
    "Scenario A5": lambda: datasets.scenario_a(5),
    "Scenario B(.25)": lambda: datasets.scenario_b(0.25),
    "ring": datasets.ring,
    "tangled": datasets.tangled,
    "LED": datasets.led,
    "twonorm": datasets.twonorm,
    "ringnorm": datasets.ringnorm,
    "waveform": datasets.waveform,
    "MLP teacher": datasets.mlp_teacher,
    "tree teacher": datasets.tree_teacher,
    "noisy chessboard": datasets.chessboard,
    "Friedman-like": datasets.friedman,
    "sparse words": datasets.sparse_words,
    "heavy-tailed": datasets.heavy_tailed,
    "spiral": datasets.spiral,
    "interactions": datasets.interactions,
}
#: Until most fields are seen the curve is flat: no method can tell that there is more to learn.
UNDETECTABLE = "noisy chessboard"
LEVEL = 0.95


def cells(quick: bool) -> list[Cell]:
    """Ten samples of every problem at both sizes, two of the fresh ones."""
    if quick:
        return [{"engine": "full", "problem": "ring", "rows": 300, "seed": 0}]
    return [
        {"engine": "full", "problem": problem, "rows": rows, "seed": seed}
        for problems, seeds in ((PROBLEMS, 10), (FRESH, 2))
        for seed in range(seeds)
        for rows in (3000, 1000)
        for problem in problems
    ]


def run(cell: Cell) -> dict[str, Any]:
    """One fit against the truth."""
    problem = (PROBLEMS | FRESH)[cell["problem"]]()
    return against_truth(problem, cell["rows"], cell["seed"])


def against_truth(problem: datasets.Problem, rows: int, seed: int) -> dict[str, Any]:
    """What a fit of the default pool says, and what is true."""
    X, y = problem.sample(rows, seed, stratified=False)
    clf = CollisionClassifier(random_state=seed).fit(X, y)
    limit = clf.limit_
    now = clf.collision_matrix_
    truth = problem.collision_matrix()
    low, high = limit.pber_interval(LEVEL)
    bayes_low, bayes_high = limit.bayes_error_interval(LEVEL)
    return {
        "truth": truth.pber,
        "pber": now.pber,
        "limit": limit.pber,
        "low": low,
        "high": high,
        "plain": list(now.pber_interval(LEVEL)),
        "state": limit.state,
        "reason": limit.reason,
        "bayes_error": problem.bayes_error(),
        "bayes_low": bayes_low,
        "bayes_high": bayes_high,
        "tvd_now": tvd(now.matrix, truth.matrix)[0],
        "tvd_limit": tvd(limit.matrix.matrix, truth.matrix)[0],
        "entries_now": covered(now, truth),
        "entries_limit": covered(limit.matrix, truth),
        "curve": limit.to_dict() | {"matrix": None},
    }


def covered(cm: CollisionMatrix, truth: CollisionMatrix) -> float:
    """Share of the true entries of S inside their intervals."""
    low, high = cm.interval(LEVEL)
    return float(((low <= truth.matrix) & (truth.matrix <= high)).mean())


def without_last_size(whole: Limit) -> Limit:
    """The PBER's curve as it was known before its last size."""
    return replace(
        whole,
        sizes=whole.sizes[:-1],
        scores=whole.scores[:-1],
        covariance=whole.covariance[:-1, :-1],
        errors=None,
        error_covariance=None,
        matrix=None,
    )


def doubled(run: dict[str, Any]) -> dict[str, Any]:
    """What a curve without its last size says about that size, and what was found there."""
    whole = Limit.from_dict(run["curve"])
    known = without_last_size(whole)
    low, said, high = (
        float(end[0]) for end in known.continuation([whole.sizes[-1]], LEVEL)
    )
    before, found = (float(score) for score in whole.scores[-2:])
    return {
        "problem": run["problem"],
        "state": known.state,
        "before": before,
        "fall": before - found,
        "said": before - said,
        "inside": low <= found <= high,
    }


def tune(chosen: list[dict[str, Any]]) -> pd.DataFrame:
    """Candidates for the priors: log density of the truth, coverage and width by halves."""
    rows = []
    candidates = itertools.product(
        (0.4, 0.5, 0.6, 0.7), (0.4, 0.5), (0.75, 1.0), (0.05, 0.1)
    )
    for median, deviation, beta, discrepancy in candidates:
        limits.PRIOR = Prior(median, deviation, 0.5, beta, discrepancy)
        row = {
            "c": median,
            "deviation": deviation,
            "beta": beta,
            "discrepancy": discrepancy,
        }
        for half, odd in (("even", 0), ("odd", 1)):
            own = [_density_and_range(run) for run in chosen if run["seed"] % 2 == odd]
            density, covers, width = np.mean(own, axis=0)
            row[f"log density, {half}"] = density
            row[f"covers, {half}"] = covers
            row[f"width, {half}"] = width
        rows.append(row)
    return pd.DataFrame(rows).sort_values("log density, even", ascending=False)


#: Kinds of problems; those not named here are "fresh".
FAMILIES = {
    "clouds": (
        "Scenario A5",
        "ring",
        "tangled",
        "twonorm",
        "ringnorm",
        "heavy-tailed",
        "waveform",
    ),
    "linear": ("Scenario B(.25)", "LED", "sparse words"),
    "teachers": ("MLP teacher", "tree teacher"),
    "spatial": ("spiral", "interactions", "noisy chessboard"),
    "smooth": ("Friedman-like",),
}


def families_left_out(chosen: list[dict[str, Any]]) -> pd.DataFrame:
    """The narrowest range that covers 95% of the other families: does it hold for this one?

    Candidates are priors and levels; no other family may be covered in less than 85%.
    """
    of_problem = {name: family for family, names in FAMILIES.items() for name in names}
    family = np.array([of_problem.get(run["problem"], "fresh") for run in chosen])
    covers, widths = [], []
    for median, beta in itertools.product((0.5, 0.6, 0.75), (0.75, 1.25, 2.0)):
        limits.PRIOR = Prior(median, 0.5, 0.5, beta, 0.1)
        for level in (0.95, 0.9, 0.85, 0.8, 0.7):
            own = np.array([_held_and_width(run, level) for run in chosen])
            covers.append(own[:, 0])
            widths.append(own[:, 1])
    limits.PRIOR = Prior()
    rows = []
    for name in np.unique(family):
        out = family == name
        others = [family == other for other in np.unique(family) if other != name]
        fine = [
            at
            for at, held in enumerate(covers)
            if held[~out].mean() >= 0.95
            and min(held[part].mean() for part in others) >= 0.85
        ]
        best = min(fine, key=lambda at: widths[at][~out].mean())
        held = covers[best][out].mean()
        rows.append({"family": name, "fits": out.sum(), "covers": held})
        rows[-1]["width"] = widths[best][out].mean()
    return pd.DataFrame(rows)


def scaled_left_out(chosen: list[dict[str, Any]]) -> pd.DataFrame:
    """Lower ends drawn towards the PBER now: by how much is learned from the other families.

    The lower end of a curve is ``now - share · (now - low)``, where ``low`` is that of the range
    and the share a quantile over other families (every problem counts the same) of what the truth
    would have needed: (now - truth) / (now - low). The share may depend on what is seen of a curve
    (exponent, last fall, how falls shrink, skill, sampling error), by quantile regression with a
    conformal correction for families left out.
    """
    frame = pd.DataFrame([_facts(run) for run in chosen])
    rows = []
    for quantile in (0.9, 0.95, 0.99):
        for name, rule in (("one", _one_share), ("by curve", _shares_by_curve)):
            parts = []
            for family in frame["family"].unique():
                out = frame["family"] == family
                own = frame[out].copy()
                share = np.clip(rule(frame[~out], own, quantile), 0, 1)
                own["low"] = 1 - share * (1 - own["low"])
                parts.append(own)
            rows.append({"share": name, "quantile": quantile, **_judged(parts)})
    rows.append({"share": "1 (as it is)", "quantile": np.nan, **_judged([frame])})
    return pd.DataFrame(rows)


def _facts(run: dict[str, Any]) -> dict[str, Any]:
    """What is seen of a curve, and the truth, in units of the PBER now."""
    limit = Limit.from_dict(run["curve"])
    now = float(limit.scores[-1])
    low, high = limit.pber_interval(LEVEL)
    before, last = -np.diff(limit.scores[-3:]) / now
    of_problem = {name: family for family, names in FAMILIES.items() for name in names}
    return {
        "problem": run["problem"],
        "family": of_problem.get(run["problem"], "fresh"),
        "rows": run["rows"],
        "truth": run["truth"] / now,
        "low": low / now,
        "high": high / now,
        "needed": (now - run["truth"]) / max(now - low, 1e-9),
        "exponent": limit._pber_curve.exponent,
        "fall": np.log(max(last, 1e-4)),
        "shrink": np.clip(before / max(last, 1e-3), -1, 6),
        "skill": limit._skill[2],
        "sampling": limit._half_width(LEVEL) / now,
    }


SEEN_OF_CURVES = ["exponent", "fall", "shrink", "skill", "sampling"]


def _weighted_quantile(
    values: pd.Series, problems: pd.Series, quantile: float
) -> float:
    """Every problem counts the same."""
    weight = (1 / problems.map(problems.value_counts())).to_numpy()
    order = np.argsort(values.to_numpy())
    total = weight[order].cumsum()
    place = np.searchsorted(total, quantile * total[-1])
    return float(values.to_numpy()[order][place])


def _one_share(others: pd.DataFrame, own: pd.DataFrame, quantile: float) -> np.ndarray:
    share = _weighted_quantile(others["needed"], others["problem"], quantile)
    return np.full(len(own), share)


def _shares_by_curve(
    others: pd.DataFrame, own: pd.DataFrame, quantile: float
) -> np.ndarray:
    beyond = []
    for family in others["family"].unique():
        out = others["family"] == family
        fitted = _regression(others[~out], quantile)
        said = fitted.predict(others.loc[out, SEEN_OF_CURVES])
        beyond.append(others.loc[out, "needed"] - said)
    correction = _weighted_quantile(pd.concat(beyond), others["problem"], LEVEL)
    said = _regression(others, quantile).predict(own[SEEN_OF_CURVES])
    return np.asarray(said + correction)


def _regression(frame: pd.DataFrame, quantile: float) -> QuantileRegressor:
    weight = 1 / frame["problem"].map(frame["problem"].value_counts())
    model = QuantileRegressor(quantile=quantile, alpha=0.01)
    return model.fit(frame[SEEN_OF_CURVES], frame["needed"], sample_weight=weight)


def _judged(parts: list[pd.DataFrame]) -> dict[str, float]:
    frame = pd.concat(parts)
    held = frame["truth"].between(frame["low"], frame["high"])
    width = frame["high"] - frame["low"]
    by_family = held.groupby(frame["family"]).mean()
    return {
        "covers": held.mean(),
        "worst family": by_family.min(),
        "width at 3,000 rows": width[frame["rows"] == 3000].mean(),
    }


def nearer_table(chosen: list[dict[str, Any]]) -> pd.DataFrame:
    """How often S∞ is nearer to the truth than S(n), and how much further off at worst."""
    frame = pd.DataFrame(chosen)[["problem", "rows", "tvd_now", "tvd_limit"]]
    by_problem = frame.groupby("problem").mean(numeric_only=True)
    by_size = frame.groupby(["problem", "rows"]).mean(numeric_only=True)
    rows = []
    for name, part in (
        ("problems", by_problem),
        ("problems and sizes", by_size),
        ("fits", frame),
    ):
        ratio = part["tvd_limit"] / part["tvd_now"]
        row = {"over": name, "number": len(ratio), "nearer": (ratio < 1).mean()}
        row["beyond 1.15"] = (ratio > 1.15).mean()
        row["worst"] = ratio.max()
        rows.append(row)
    return pd.DataFrame(rows)


def _held_and_width(run: dict[str, Any], level: float) -> tuple[bool, float]:
    """The upper end is at least that of the plain interval at ``LEVEL``."""
    limit = Limit.from_dict(run["curve"])
    low, high = limit.pber_interval(level)
    high = max(high, limit._plain_interval(LEVEL)[1])
    return low <= run["truth"] <= high, (high - low) / limit.scores[-1]


def _density_and_range(run: dict[str, Any]) -> tuple[float, bool, float]:
    limit = Limit.from_dict(run["curve"])
    truth = run["truth"]
    fit = limit._pber_curve.at()
    now = limit.scores[-1]
    # No one needs the PBER nearer than to a hundredth of it.
    spread = np.hypot(fit.deviations, 0.01 * now)
    densities = np.exp(-(((truth - fit.means) / spread) ** 2) / 2) / spread
    density = fit.weights @ densities * now / np.sqrt(2 * np.pi)
    low, high = limit.pber_interval(LEVEL)
    return float(np.log(max(density, 1e-3))), low <= truth <= high, (high - low) / now


# ---------------------------------------------------------------- tables


def text(records: list[Record]) -> str:
    runs = [flat(record) for record in records]
    return f"""## The range with unlimited rows

The 95% range holds the true PBER in {range_table(runs, PROBLEMS)}

On these no prior of the range was chosen; it holds the true PBER in {range_table(runs, FRESH)}

{again("limit")}

{doubled_text(runs)}"""


def range_table(runs: list[dict[str, Any]], problems: Iterable[str]) -> str:
    """How often the range holds the truth, and a row per problem and number of rows."""
    rows = []
    inside = []
    for problem in problems:
        for n in sorted({run["rows"] for run in runs if run["problem"] == problem}):
            own = [
                run for run in runs if run["problem"] == problem and run["rows"] == n
            ]
            held = [run["low"] <= run["truth"] <= run["high"] for run in own]
            plain = [run["plain"][0] <= run["truth"] <= run["plain"][1] for run in own]
            bayes = [
                run["bayes_low"] <= run["bayes_error"] <= run["bayes_high"]
                for run in own
            ]
            means = {
                name: f"{np.mean([run[name] for run in own]):.3f}"
                for name in ("truth", "pber", "low", "high", "tvd_now", "tvd_limit")
            }
            *numbers, tvd_now, tvd_limit = means.values()
            shares = [f"{np.mean(part):.0%}" for part in (held, plain, bayes)]
            rows.append([problem, f"{n:,}", *numbers, *shares, tvd_now, tvd_limit])
            inside += held
    head = ["problem", "rows", "true PBER", "PBER now", "range from", "to", "covers"]
    head += [
        "plain interval covers",
        "Bayes error in its range",
        "TVD of S",
        "TVD of S∞",
    ]
    return f"{np.mean(inside):.1%} of {len(inside)} fits:\n\n{table(head, rows)}"


def doubled_text(runs: list[dict[str, Any]]) -> str:
    """Would twice the rows help? What curves without their last size say about it."""
    every = [doubled(run) for run in runs if len(run["curve"]["sizes"]) > 3]
    read = [run for run in every if run["state"] != "hardly begun"]
    rows = []
    for problem in dict.fromkeys(run["problem"] for run in read):
        own = [run for run in read if run["problem"] == problem]
        means = [
            np.mean([run[name] for run in own]) for name in ("before", "fall", "said")
        ]
        inside = np.mean([run["inside"] for run in own])
        numbers = [f"{mean:.4f}" for mean in means]
        rows.append([problem, str(len(own)), *numbers, f"{inside:.0%}"])
    off = np.mean([abs(run["fall"] - run["said"]) for run in read])
    moved = np.mean([abs(run["fall"]) for run in read])
    inside = np.mean([run["inside"] for run in read])
    return f"""## Would twice the rows help?

Every curve above without its last size, and what it says about that size: twice the rows.
{len(every) - len(read)} of {len(every)} say that learning has hardly begun, and nothing of more
rows. Of the others {inside:.1%} have the PBER that was found in their 95% band; the fall that was
predicted is off by {off:.4f} on average, where the PBER moved by {moved:.4f}. Means over the fits
of each problem:

{table(["problem", "fits", "PBER", "fell by", "predicted", "in the band"], rows)}"""


STUDY = Study(
    "limit", "The range with unlimited rows, against the truth", cells, run, text
)

if __name__ == "__main__":
    recorded = [run for run in runs("limit") if run["problem"] in PROBLEMS]
    detectable = [run for run in recorded if run["problem"] != UNDETECTABLE]
    print(tune(detectable).round(3).to_string(index=False))
    print(families_left_out(runs("limit")).round(3).to_string(index=False))
    print(scaled_left_out(runs("limit")).round(3).to_string(index=False))
    print(nearer_table(runs("limit")).round(3).to_string(index=False))
