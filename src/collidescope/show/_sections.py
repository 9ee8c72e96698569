"""The parts of a summary that come from the matrix alone: pairs, ceilings, the path of merges, trust.

Classes are known by their numbers here and get their names at the end: names may repeat once they are text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from collidescope._checks import FloatArray
from collidescope._environment import environment
from collidescope._sparse import largest_pairs
from collidescope.applications.audit import audit, bayes_confusion
from collidescope.applications.consolidation import consolidate
from collidescope.equations.bounds import bayes_error_bounds, condition_number
from collidescope.equations.recovery import Recovery
from collidescope.matrix import CollisionMatrix
from collidescope.show import words
from collidescope.show._rows import text
from collidescope.show._source import Source
from collidescope.trust import cautions

LEVEL = 0.95
#: Up to this many classes S is kept whole; beyond it, the most colliding classes and all others as one.
WHOLE, MOST_COLLIDING = 200, 100
PAIRS = 10
AUDIT_PAIRS = 20
#: Decimals of interval ends: nobody knows more of them, and they are half of a large summary.
END_DECIMALS = 6


def numbered(cm: CollisionMatrix) -> CollisionMatrix:
    """The same matrix with classes called 0 … K-1."""
    return replace(cm, classes=np.arange(cm.n_classes))


def shown_part(cm: CollisionMatrix) -> tuple[CollisionMatrix, list[int]]:
    """(matrix, class numbers): all classes, or the most colliding ones with all others merged behind them."""
    K = cm.n_classes
    if K <= WHOLE:
        return numbered(cm), list(range(K))
    # One pair more than those classes have among themselves: enough to name as many.
    pairs = np.stack(largest_pairs(cm.joint + cm.joint.T, MOST_COLLIDING * (MOST_COLLIDING - 1) // 2 + 1), axis=1)
    chosen = dict.fromkeys(pairs.ravel().tolist())
    keep = sorted(list(chosen)[:MOST_COLLIDING])
    others = np.setdiff1d(np.arange(K), keep)
    A = np.zeros((K, len(keep) + 1))
    A[keep, range(len(keep))] = 1
    A[others, -1] = 1
    joint = A.T @ cm.joint @ A  # as CollisionMatrix.merge does
    counts = None if cm.counts is None else A.T @ cm.counts
    return CollisionMatrix(joint / joint.sum(axis=1, keepdims=True), A.T @ cm.priors, counts=counts), keep


def intervals(cm: CollisionMatrix, keep: list[int], size: int) -> dict[str, Any]:
    """``low`` and ``high`` of the shown part; None for the class that stands for all others."""
    ends = cm.interval(LEVEL)
    if ends is None:
        return {"low": None, "high": None}
    found = {}
    for name, end in zip(("low", "high"), ends, strict=True):
        whole = np.full((size, size), np.nan)
        whole[: len(keep), : len(keep)] = end[np.ix_(keep, keep)].round(END_DECIMALS)
        found[name] = whole
    return found


def top_pairs(cm: CollisionMatrix, names: list[str]) -> list[dict[str, Any]]:
    """The most colliding pairs of all classes, with sentences."""
    table = numbered(cm).top_collisions(PAIRS, LEVEL)
    pairs = []
    for row in table.to_dict("records"):
        low, high = (None if row[end] != row[end] else float(row[end]) for end in ("low", "high"))
        first, other, rate = names[row["class"]], names[row["other"]], float(row["rate"])
        if rate > 0:
            pairs.append(
                {
                    "class": first,
                    "other": other,
                    "rate": rate,
                    "low": low,
                    "high": high,
                    "reverse": float(row["reverse"]),
                    "sentence": words.collision(first, other, rate, low, high),
                }
            )
    return pairs


def ceilings(cm: CollisionMatrix, keep: list[int], names: list[str], source: Source) -> list[dict[str, Any]]:
    """Per class what no model can get right: rates of the probabilistic Bayes classifier, and of the rule argmax p."""
    ends = cm.interval(LEVEL)
    recall = cm.recall()
    precision = cm.precision(None if cm.counts is None else "empirical")
    best = None
    if source.posteriors is not None and source.codes is not None:
        best = np.diag(bayes_confusion(source.posteriors, source.codes, classes=np.arange(cm.n_classes)))
    away = cm.matrix - np.diag(np.full(cm.n_classes, 2.0))
    found = []
    for k in keep:
        other = int(away[k].argmax())
        found.append(
            {
                "class": names[k],
                "prior": cm.priors[k],
                "rows": None if cm.counts is None else cm.counts[k],
                "recall": recall[k],
                "recall_low": None if ends is None else ends[0][k, k],
                "recall_high": None if ends is None else ends[1][k, k],
                "precision": precision[k],
                "best_rule_recall": None if best is None else best[k],
                "mostly_to": names[other],
                "mostly_rate": cm.matrix[k, other],
            }
        )
    return found


def merge_path(shown: CollisionMatrix, whole: CollisionMatrix) -> dict[str, Any]:
    """Every step of the greedy path, in columns; a group is known by its first member.

    Where classes are left out they stay one group of their own, and what collides among them stays in the PBER.
    """
    from scipy.cluster.hierarchy import leaves_list

    complete = shown.n_classes == whole.n_classes
    last = shown.n_classes - 1
    apart = None if complete else [[k, last] for k in range(last)]
    plan = consolidate(shown, cannot_merge=apart)
    hidden = 0.0 if complete else whole.pber - shown.pber
    n_hidden = whole.n_classes - shown.n_classes
    first: list[int | None] = [None]
    second: list[int | None] = [None]
    for before, after in zip(plan.groupings[:-1], plan.groupings[1:], strict=True):
        heads = [np.unique(g, return_index=True)[1][g] for g in (before, after)]  # of every class its group's first
        moved = int(np.flatnonzero(heads[0] != heads[1])[0])
        first.append(int(heads[1][moved]))
        second.append(int(heads[0][moved]))
    pber = plan.path["pber"].to_numpy() + hidden
    n_groups = plan.path["n_groups"].to_numpy() + n_hidden
    bayes = [bayes_error_bounds(min(p, 1 - 1 / n), int(n)) if n > 1 else (0.0, 0.0) for p, n in _pairs(pber, n_groups)]
    assert plan.linkage is not None
    return {
        "first": first,
        "second": second,
        "n_groups": n_groups,
        "pber": pber,
        "low": plan.path["pber_low"].to_numpy() if complete else np.full(len(pber), np.nan),
        "high": plan.path["pber_high"].to_numpy() if complete else np.full(len(pber), np.nan),
        "bayes_low": [low for low, _ in bayes],
        "bayes_high": [high for _, high in bayes],
        "tree_order": leaves_list(plan.linkage)[::-1],  # the first merges at the top
    }


def _pairs(a: FloatArray, b: FloatArray) -> list[tuple[float, float]]:
    return list(zip(a.tolist(), b.tolist(), strict=True))


def audited(source: Source, names: list[str], y_pred: Any, X: Any) -> dict[str, Any] | None:
    """The audit of a classifier's predictions, without its K×K tables."""
    if y_pred is None:
        return None
    said = source.predictions(y_pred, X)
    assert source.codes is not None
    # As text, which tables can always hold; as they are where two names would become one.
    classes = np.array(names, dtype=object) if len(set(names)) == len(names) else source.matrix.classes
    report = audit(source.posteriors, y_true=classes[source.codes], y_pred=classes[said], classes=classes)
    data = report.to_dict()
    name = dict(zip(classes.tolist(), names, strict=True))
    pairs = [
        {key: name[value] if key in ("true", "predicted") else value for key, value in pair.items()}
        for pair in data.pop("pairs")[:AUDIT_PAIRS]
    ]
    for key in ("classes", "confusion", "bayes_confusion"):
        data.pop(key)
    return data | {
        "pairs": pairs,
        "n_pairs": len(report.pairs),
        "n_flagged": int(report.pairs["flagged"].sum()),
        "caveat": "The audited classifier must not have trained on these rows, or it looks better than it is.",
    }


# ------------------------------------------------------------------------------------------------ trust


def trust(source: Source, control: Any) -> dict[str, Any]:
    """Everything that tells whether to believe the numbers, and how they were made."""
    cm = source.matrix
    model = getattr(source.model, "classifier_", source.model)  # a pipeline of our own around the classifier
    condition = condition_number(cm.matrix)
    errors = None if cm.stderr is None else (float(np.median(cm.stderr)), float(cm.stderr.max()))
    return {
        "warnings": [text(warning) for warning in _warnings(source)],
        "intervals": {
            "level": LEVEL,
            "median_stderr": None if errors is None else errors[0],
            "largest_stderr": None if errors is None else errors[1],
            "words": words.intervals(LEVEL, *(errors or (None, None))),
        },
        "control": _control(control),
        "conditioning": {
            "condition_number": condition if np.isfinite(condition) else None,
            "dominance_factor": cm.dominance_factor,
            "diagonally_dominant": cm.is_diagonally_dominant,
            "balance_gap": cm.balance_gap,
            "words": words.conditioning(condition if np.isfinite(condition) else None, cm.is_diagonally_dominant),
        },
        "computed": {text(key): text(value) for key, value in cm.info.items()},
        "settings": _settings(model),
        "seed": _seed(model),
        "training": _training(model),
        "environment": environment(),
    }


def _warnings(source: Source) -> list[str]:
    cm, model = source.matrix, source.model
    moved = SimpleNamespace(moved=float(cast(float, cm.info.get("moved") or 0.0)))
    recovery = cast(Recovery, getattr(model, "recovery_", moved))
    found = cautions(cm, getattr(model, "one_step_", cm), recovery)
    if getattr(model, "interrupted_", False):
        found.insert(0, "the fit was interrupted: the numbers are those of the folds trained so far")
    return found


def _control(control: Any) -> dict[str, Any]:
    if control is None:
        found: dict[str, Any] = dict.fromkeys(("passed", "largest_deviation", "z", "limit"))
        return found | {"words": words.control(None, "")}
    wanted = ("passed", "largest_deviation", "z", "limit")
    if isinstance(control, type) or not all(hasattr(control, name) for name in wanted):
        raise ValueError(
            f"control must be what shuffled_control returned (a ShuffledControl) or None, got {type(control).__name__}"
        )
    passed = bool(control.passed)
    found = {name: float(getattr(control, name)) for name in wanted[1:]}
    return found | {"passed": passed, "words": words.control(passed, text(control))}


def _settings(model: Any) -> dict[str, str]:
    if not hasattr(model, "get_params"):
        return {}
    skip = ("random_state", "verbose", "checkpoint", "n_jobs")
    found: Mapping[str, Any] = model.get_params(deep=False)
    return {text(name): text(value)[:200] for name, value in found.items() if name not in skip}


def _seed(model: Any) -> int | None:
    seed = getattr(model, "random_state", None)
    return int(seed) if isinstance(seed, int | np.integer) else None


def _training(model: Any) -> dict[str, Any] | None:
    """Folds, the weights of the models in the pool, epochs."""
    history, pools = getattr(model, "history_", None), getattr(model, "capacities_", None)
    if not isinstance(history, list) or not history:
        return None
    weights: dict[str, float] = {}
    if isinstance(pools, list) and pools:
        for pool in pools:
            for name, weight in dict(pool).items():
                weights[text(name)] = weights.get(text(name), 0.0) + float(weight) / len(pools)
    runs = [epochs for fold in history if isinstance(fold, Mapping) for epochs in fold.values()]
    lengths = [len(epochs) for epochs in runs if isinstance(epochs, list)]
    return {
        "folds": len(history),
        "models": dict(sorted(weights.items(), key=lambda item: -item[1])),
        "epochs": [min(lengths), max(lengths)] if lengths else None,
    }
