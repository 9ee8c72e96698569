"""One dict with everything a report says, which JSON can hold as it is: :func:`summarise`.

Inside, classes are known by their numbers and get their names at the end: names may repeat once they are text.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from collidescope import _checks as check
from collidescope._environment import environment
from collidescope._text import LEVEL, headline, limit_facts, limit_words, upper_limit
from collidescope.applications._inputs import Result, plain
from collidescope.applications.audit import audit, bayes_confusion, predicted_codes
from collidescope.applications.consolidation import consolidate
from collidescope.equations.bounds import condition_number
from collidescope.matrix import CollisionMatrix, largest_pairs
from collidescope.show import words
from collidescope.show.displays import continuation, leaf_order
from collidescope.show.rows import Source, resolve, rows_to_look_at, text
from collidescope.trust import ShuffledControl, cautions, learning_curve, limit_of

HEADER = {"format": "collidescope.summary", "version": 2}
#: Up to this many classes S is kept whole; beyond it, the most colliding classes and all others as one.
WHOLE, MOST_COLLIDING = 200, 100
PAIRS, AUDIT_PAIRS = 10, 20
#: What is kept of an audit, and of each of its pairs.
AUDITED = "n_rows error error_interval best fixable fixable_interval inherent_interval not_learned_interval"
AUDITED_PAIR = "true predicted observed best fixable low high flagged"
#: Columns that the first lines name; the others are counted.
NAMED_COLUMNS = 40
#: Decimals of interval ends: nobody knows more of them, and they are half of a large summary.
END_DECIMALS = 6
#: Parameters that say nothing about the numbers, or are said elsewhere.
UNSAID = ("random_state", "verbose", "checkpoint", "n_jobs")
#: What ``about`` may hold.
ABOUT = ("file", "label", "command", "saved", "columns", "seconds")


def summarise(
    source: Any,
    X: Any = None,
    y: npt.ArrayLike | None = None,
    *,
    y_pred: Any = None,
    rows: Any = None,
    image_shape: tuple[int, ...] | None = None,
    control: Any = None,
    limit: Any = None,
    title: str | None = None,
    about: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    sections: Sequence[Any] = (),
) -> dict[str, Any]:
    """The whole answer in a dict of plain text, numbers and lists: what the report shows and what JSON output holds.

    Of more than 200 classes the matrix holds the 100 that collide most, and all others as one.

    Parameters
    ----------
    source : CollisionClassifier, CollisionMatrix or array of shape (n, K)
        A fitted classifier (any object with ``collision_matrix_``, and ``posteriors_`` where rows are to be shown), a
        matrix, or held-out posteriors, which need ``y``.
    X : rows that the classifier was fitted on, or that belong to the posteriors, optional
        Shown beside the most ambiguous rows. A loaded classifier is asked about ``X``: rows that it has not seen.
    y : array of n labels, optional; needed to find labels that look wrong, and for an audit
    y_pred : labels, posteriors or a fitted classifier, optional; its :func:`~collidescope.audit` on the same rows
    rows : DataFrame of n rows, optional; shown in the place of ``X``, which may be encoded
    image_shape : tuple, optional; such as (28, 28), of the images in ``X``; two-dimensional rows are so without it
    limit : Limit, optional; by default ``source.limit_`` where there is one
    control, title, notes : ShuffledControl, text, list of text; all optional
    about : mapping, optional
        Where the rows come from: ``file``, ``label`` (its column), ``columns`` (those used), ``command`` (as typed:
        turns advice into commands), ``saved`` (file of the model or matrix), ``seconds`` that the fit took.
    sections : list, optional
        More results to show: what ``compare``, ``ceilings``, ``column_value`` and others return, or mappings with
        ``title``, ``sentences`` (list of text) and ``table`` (None, or a mapping of ``columns`` and ``rows``).

    Examples
    --------
    >>> from collidescope import CollisionMatrix
    >>> summary = summarise(
    ...     CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], priors=[2 / 3, 1 / 3], classes=["cat", "dog"])
    ... )
    >>> summary["headline"][0]
    'Labelled a second time, 13.3% of inputs would get another label. [PBER]'
    """
    known = resolve(source, X, y)
    cm = known.matrix
    limit = limit_of(known.model) if limit is None else limit
    at_limit = None if limit is None else limit.matrix
    names = [text(name) for name in cm.classes.tolist()]
    keep = shown_classes(cm)
    shown = merged(cm, keep)
    others = [f"({cm.n_classes - len(keep):,} other classes)"] * (len(keep) < cm.n_classes)
    order = leaf_order(shown.joint[: len(keep), : len(keep)]).tolist()
    low, high = cm.pber_interval(LEVEL) or (None, None)
    ends: list[Any] = [
        end[np.ix_(keep, keep)].round(END_DECIMALS) for end in cm.interval(LEVEL) or ()
    ]
    # Of the class that stands for all others no interval is known.
    ends = [np.pad(end, (0, len(others)), constant_values=np.nan) for end in ends] or [None, None]
    origin = _about(about, known.model, X, y)
    summary: dict[str, Any] = {
        **HEADER,
        "title": words.title(origin) if title is None else text(check.check_text(title, "title")),
        "about": origin,
        "n_classes": cm.n_classes,
        "n_rows": None if cm.counts is None else round(float(cm.counts.sum()), 3),
        "level": LEVEL,
        "how": text(cm.method),
        "known": cm._is_known(),
        "coverage": cm.coverage,
        "pber": {"value": cm.pber, "low": low, "high": high},
        "bayes_error_at_most": cm.pber if cm._is_known() else upper_limit(cm),
        "limit": None if limit is None else limit_part(limit),
        "headline": headline(cm, limit),
        "top_collisions": top_pairs(cm, names),
        "complete": not others,
        "classes": [names[k] for k in keep] + others,
        "matrix": shown.matrix,
        "low": ends[0],
        "high": ends[1],
        "joint": shown.joint,
        "priors": shown.priors,
        "counts": shown.counts,
        "leaf_order": order + [len(keep)] * len(others),
        "ceilings": ceilings(cm, keep, names, known, at_limit),
        "merge_path": merge_path(shown, cm, at_limit),
        "ambiguous_rows": rows_to_look_at(known, names, X, rows, image_shape),
        "audit": audited(known, names, y_pred, X, limit),
        "sections": [_section(part) for part in sections],
        "notes": _texts(notes, "notes"),
    }
    summary["trust"] = trust(known, control, summary)
    if others:
        here = f"here are the {len(keep):,} that collide most, and all others as one class. PBER and the top pairs"
        summary["notes"].insert(
            0, f"{cm.n_classes:,} classes are too many to show: {here} are those of all classes."
        )
    found: dict[str, Any] = plain(summary)
    return found | {"what_to_do": words.what_to_do(found)}


def shown_classes(cm: CollisionMatrix) -> list[int]:
    """The numbers of all classes, or of very many those that collide most."""
    if cm.n_classes <= WHOLE:
        return list(range(cm.n_classes))
    # One pair more than those classes have among themselves: enough to name as many.
    pairs = np.stack(
        largest_pairs(cm.joint + cm.joint.T, MOST_COLLIDING * (MOST_COLLIDING - 1) // 2 + 1), axis=1
    )
    return sorted(list(dict.fromkeys(pairs.ravel().tolist()))[:MOST_COLLIDING])


def merged(cm: CollisionMatrix, keep: list[int]) -> CollisionMatrix:
    """The matrix of these classes, called 0, 1, …, and of all others as one: B' = Aᵀ B A, as ``merge`` has it."""
    if len(keep) == cm.n_classes:  # intervals and covariance stay
        return replace(cm, classes=np.arange(cm.n_classes))
    A = np.zeros((cm.n_classes, len(keep) + 1))
    A[:, -1] = 1
    A[keep] = np.eye(*A[keep].shape)
    joint = A.T @ cm.joint @ A
    counts = None if cm.counts is None else A.T @ cm.counts
    return CollisionMatrix(joint / joint.sum(axis=1, keepdims=True), A.T @ cm.priors, counts=counts)


def top_pairs(cm: CollisionMatrix, names: list[str]) -> list[dict[str, Any]]:
    """The most colliding pairs of all classes, with sentences."""
    table = replace(cm, classes=np.arange(cm.n_classes)).top_collisions(PAIRS, LEVEL)
    pairs: list[dict[str, Any]] = plain(table[table["rate"] > 0])
    for pair in pairs:
        pair |= {"class": names[pair["class"]], "other": names[pair["other"]]}
        pair["sentence"] = words.collision(
            *(pair[name] for name in ("class", "other", "rate", "low", "high"))
        )
    return pairs


def limit_part(limit: Any) -> dict[str, Any]:
    """The curve, where it goes, and what is left."""
    facts: dict[str, Any] = limit_facts(limit)
    part = {
        name.removeprefix("limit_").removeprefix("pber_"): value for name, value in facts.items()
    }
    columns = (
        limit.curve[["rows", "pber", "pber_stderr"]]
        .rename(columns={"pber_stderr": "stderr"})
        .to_dict("list")
    )
    part |= {"words": limit_words(facts), "curve": columns, "band": continuation(limit, LEVEL)}
    return part | {"doubled": learning_curve(limit).doubled}


def ceilings(
    cm: CollisionMatrix,
    keep: list[int],
    names: list[str],
    source: Source,
    limit: CollisionMatrix | None,
) -> list[dict[str, Any]]:
    """Per class what can be got right: by the best guess, and by drawing the label with its probability (S_kk)."""
    low, high = cm.interval(LEVEL) or (None, None)
    best = None
    if source.posteriors is not None and source.codes is not None:
        best = bayes_confusion(source.posteriors, source.codes, classes=np.arange(cm.n_classes))
    away = (cm.matrix - 2.0 * np.eye(cm.n_classes)).argmax(axis=1)
    draws = {"draw": cm.matrix, "draw_low": low, "draw_high": high, "best_guess": best}
    draws["draw_limit"] = None if limit is None else limit.matrix
    return [
        {
            "class": names[k],
            "prior": cm.priors[k],
            "rows": None if cm.counts is None else cm.counts[k],
        }
        | {"mostly_to": names[away[k]], "mostly_rate": cm.matrix[k, away[k]]}
        | {name: None if table is None else table[k, k] for name, table in draws.items()}
        for k in keep
    ]


def merge_path(
    shown: CollisionMatrix, whole: CollisionMatrix, limit: CollisionMatrix | None
) -> dict[str, Any] | None:
    """Every step of the greedy path, in columns; a group is known by its first member. None for two classes.

    Where classes are left out they stay one group, and what collides among them stays in the PBER.
    """
    from scipy.cluster.hierarchy import leaves_list

    if shown.n_classes == 2:
        return None
    complete = shown.n_classes == whole.n_classes
    last = shown.n_classes - 1
    plan = consolidate(shown, cannot_merge=None if complete else [[k, last] for k in range(last)])
    heads = [
        np.unique(g, return_index=True)[1][g] for g in plan.groupings
    ]  # of every class its group's first
    moves = [np.flatnonzero(before != after)[0] for before, after in itertools.pairwise(heads)]
    left: Any = [None] * len(plan.path)
    if limit is not None and complete:  # 1 - Σ over groups of what stays inside them
        left = [max(0.0, 1 - limit.joint[g[:, None] == g].sum()) for g in plan.groupings]
    assert plan.linkage is not None
    return {
        "first": [None, *(after[moved] for after, moved in zip(heads[1:], moves, strict=True))],
        "second": [None, *(before[moved] for before, moved in zip(heads, moves, strict=False))],
        "n_groups": plan.path["n_groups"].to_numpy() + whole.n_classes - shown.n_classes,
        "pber": plan.path["pber"].to_numpy() + (0.0 if complete else whole.pber - shown.pber),
        "low": plan.path["pber_low"].to_numpy(),
        "high": plan.path["pber_high"].to_numpy(),
        "limit": left,
        "tree_order": leaves_list(plan.linkage)[::-1],  # the first merges at the top
    }


def audited(
    source: Source, names: list[str], y_pred: Any, X: Any, limit: Any
) -> dict[str, Any] | None:
    """The audit of a classifier's predictions, without its K×K tables."""
    if y_pred is None:
        return None
    if source.posteriors is None or source.rows is None or source.codes is None:
        missing = "held-out posteriors" if source.posteriors is None else "labels"
        hint = "pass a fitted classifier or posteriors as source, and y"
        raise ValueError(f"y_pred can be audited only beside {missing}, and there are none: {hint}")
    said = check.one_each(
        predicted_codes(y_pred, X, source.matrix.classes), source.n_given or 0, "y_pred"
    )
    # As text, which tables can always hold; as they are where two names would become one.
    classes = (
        np.array(names, dtype=object) if len(set(names)) == len(names) else source.matrix.classes
    )
    labels: dict[str, Any] = {"y_true": classes[source.codes], "y_pred": classes[said[source.rows]]}
    report = audit(source.posteriors, **labels, classes=classes, limit=limit)
    name = dict(zip(classes.tolist(), names, strict=True))
    pairs = report.pairs.head(AUDIT_PAIRS)[AUDITED_PAIR.split()].to_dict("records")
    pairs = [pair | {side: name[pair[side]] for side in ("true", "predicted")} for pair in pairs]
    found = {key: getattr(report, key) for key in AUDITED.split()} | {"cautions": report.notes}
    return found | {"pairs": pairs, "n_pairs": len(report.pairs), "verdict": text(report.verdict)}


def trust(source: Source, control: Any, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that tells whether to believe the numbers, and how they were made."""
    if control is not None and not isinstance(control, ShuffledControl):
        rest = f"(a ShuffledControl) or None, got {type(control).__name__}"
        raise ValueError(f"control must be what shuffled_control returned {rest}")
    cm, model = source.matrix, source.model
    moved: Any = (
        model.recovery_.moved if hasattr(model, "recovery_") else cm.diagnostics.moved or 0.0
    )
    warnings = cautions(cm, getattr(model, "one_step_", cm), moved)
    if getattr(model, "interrupted_", False):
        warnings.insert(
            0, "the fit was interrupted: the numbers are those of the folds trained so far"
        )
    intervals = "None: this matrix was made without standard errors."
    if cm.stderr is not None:
        errors = f"median {np.median(cm.stderr):.4f}, largest {cm.stderr.max():.4f}"
        intervals = f"At {LEVEL:.0%}. Standard errors of the rates: {errors}."
    seed = getattr(model, "random_state", None)
    settings = model.get_params(deep=False) if hasattr(model, "get_params") else {}
    said = words.control(summary, model is not None) if control is None else text(control)
    pools, training = getattr(model, "member_weights_", None), None
    if isinstance(pools, list) and pools:
        weights = (
            pd.DataFrame(list(map(dict, pools)))
            .fillna(0.0)
            .mean()
            .sort_values(ascending=False, kind="stable")
        )
        training = {
            "folds": len(pools),
            "models": {text(name): weight for name, weight in weights.items()},
        }
    return {
        "warnings": [text(warning) for warning in warnings],
        "intervals": intervals,
        "control": {"passed": None if control is None else control.passed, "words": said},
        "conditioning": words.conditioning(condition_number(cm.matrix), cm.is_diagonally_dominant),
        "computed": {text(key): text(value) for key, value in cm.diagnostics.known().items()},
        "settings": {
            text(name): text(value)[:200] for name, value in settings.items() if name not in UNSAID
        },
        "seed": int(seed) if isinstance(seed, int | np.integer) else None,
        "training": training,
        "environment": environment(),
    }


def _about(about: Mapping[str, Any] | None, model: Any, X: Any, y: Any) -> dict[str, Any]:
    if not set(about or ()) <= set(ABOUT):
        raise ValueError(f"about must be a mapping with some of {', '.join(ABOUT)}, got {about!r}")
    features = getattr(model, "feature_names_in_", getattr(X, "columns", ()))
    columns: Any = getattr(getattr(model, "encoder_", None), "types", features)
    given = {
        "label": getattr(model, "label_", None) or getattr(y, "name", None),
        "columns": columns,
    }
    given |= {name: value for name, value in (about or {}).items() if value is not None}
    names = [text(name) for name in given["columns"]]
    found = {name: None if given.get(name) is None else text(given[name]) for name in ABOUT[:4]}
    return found | {
        "columns": names[:NAMED_COLUMNS],
        "n_columns": len(names),
        "seconds": given.get("seconds"),
    }


def _section(part: Any) -> dict[str, Any]:
    part = part.section() if isinstance(part, Result) else part
    if not isinstance(part, Mapping) or "title" not in part:
        raise ValueError(f"every entry of sections must be a mapping with a title, got {part!r}")
    table = part.get("table")
    if table is not None:
        rows = [
            [v if isinstance(v, int | float | None) else text(v) for v in plain(row)]
            for row in table["rows"]
        ]
        table = {"columns": [text(name) for name in table["columns"]], "rows": rows}
    sentences = _texts(part.get("sentences", ()), "sentences of a section")
    title = text(check.check_text(part["title"], "title of a section"))
    return {"title": title, "sentences": sentences, "table": table}


def _texts(given: Any, name: str) -> list[str]:
    if not isinstance(given, Sequence | np.ndarray):
        raise ValueError(f"{name} must be a list of texts, got {type(given).__name__}")
    entries = [given] if isinstance(given, str) else given
    return [text(check.check_text(entry, f"every entry of {name}")) for entry in entries]
