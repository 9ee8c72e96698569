"""One dict with everything a report says, which JSON can hold as it is: :func:`summarise`.

Inside, classes are known by their numbers and get their names at the end: names may repeat once
they are text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from collidescope import _checks as check
from collidescope import _text
from collidescope._checks import FloatArray, Given, IntArray
from collidescope._environment import environment
from collidescope._text import LEVEL
from collidescope.applications._inputs import (
    Ends,
    Record,
    Result,
    plain,
    row_limit,
    row_posteriors,
)
from collidescope.applications._inputs import section as section_of
from collidescope.applications.audit import (
    AuditReport,
    audit,
    bayes_confusion,
    predicted_codes,
)
from collidescope.applications.consolidation import consolidate
from collidescope.equations.bounds import condition_number
from collidescope.equations.merging import class_numbers
from collidescope.estimate import far_from_gramian, without_skill
from collidescope.limit import Limit
from collidescope.matrix import CollisionMatrix, largest_pairs
from collidescope.show import words
from collidescope.show.displays import continuation, leaf_order
from collidescope.show.rows import Source, resolve, rows_to_look_at, text
from collidescope.trust import ShuffledControl, learning_curve, limit_of

HEADER = {"format": "collidescope.summary", "version": 2}
#: Beyond this many classes S is shown for those that collide most, and all others as one.
WHOLE = 200
MOST_COLLIDING = 100


def summarise(
    source: Any,
    X: object = None,
    y: Given = None,
    *,
    y_pred: Any = None,
    groups: Given = None,
    rows: object = None,
    image_shape: tuple[int, ...] | None = None,
    control: ShuffledControl | None = None,
    limit: Limit | None = None,
    title: str | None = None,
    about: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    sections: Sequence[Any] = (),
) -> Record:
    """The whole answer as plain text, numbers and lists: what the report and JSON output hold.

    Of more than 200 classes the matrix holds the 100 that collide most, and all others as one.

    Parameters
    ----------
    source : CollisionClassifier, CollisionMatrix or array of shape (n, K)
        A fitted classifier (any object with ``collision_matrix_``, and ``posteriors_`` where rows
        are to be shown), a matrix, or held-out posteriors, which need ``y``.
    X : rows that the classifier was fitted on, or that belong to the posteriors, optional
        Shown beside the most ambiguous rows. A loaded classifier is asked about ``X``: rows that it
        has not seen.
    y : array of n labels, optional; needed to find labels that look wrong, and for an audit
    y_pred : labels, posteriors or a fitted classifier, optional
        Its :func:`~collidescope.audit` on the same rows.
    groups : array of n names, optional; rows that belong together: intervals of posteriors and of
        the audit count groups, by default those of the fit
    rows : DataFrame of n rows, optional; shown in the place of ``X``, which may be encoded
    image_shape : tuple, optional
        Such as (28, 28), of the images in ``X``; two-dimensional rows are so without it.
    limit : Limit, optional; by default ``source.limit_`` where there is one
    control, title, notes : ShuffledControl, text, list of text; all optional
    about : mapping, optional
        Where the rows come from: ``file``, ``label`` (its column), ``columns`` (those used),
        ``command`` (as typed: turns advice into commands), ``saved`` (file of the model or matrix),
        ``seconds`` that the fit took, ``cautions`` (list of text: what to know before acting).
    sections : list, optional
        More results to show: what ``compare``, ``ceilings``, ``column_value`` and others return, or
        mappings with ``title``, ``sentences`` (list of text) and ``table`` (None, or a mapping of
        ``columns`` and ``rows``). A :class:`~collidescope.applications.Plan` has a picture too.

    Examples
    --------
    >>> from collidescope import CollisionMatrix
    >>> S = [[0.9, 0.1], [0.2, 0.8]]
    >>> cm = CollisionMatrix(S, priors=[2 / 3, 1 / 3], classes=["cat", "dog"])
    >>> summarise(cm)["headline"][0]
    'If labelled again, 13.3% of the inputs would get another label. [PBER]'
    """
    X = check.from_polars(X)
    known = resolve(source, X, y, groups)
    of_rows = limit
    if limit is None:
        limit = limit_of(known.model)
        of_rows = row_limit(known.model)
    names = [text(name) for name in known.matrix.classes.tolist()]
    summary: Record = {
        **HEADER,
        "about": _about(about, known.model, X, y),
        **overall(known.matrix, limit),
        **shown_matrix(
            known.matrix, names, limit, getattr(known.model, "class_order_", None)
        ),
        "top_collisions": top_pairs(known.matrix, names),
        "ceilings": ceilings(known, names, limit),
        "ambiguous_rows": rows_to_look_at(known, names, X, rows, image_shape),
        "audit": audited(known, names, y_pred, X, of_rows),
        "sections": [_section(part) for part in (*sections, *race(known.model))],
    }
    summary["title"] = words.title(summary["about"])
    if title is not None:
        summary["title"] = text(check.check_text(title, "title"))
    summary["notes"] = [*_too_many(summary), *_texts(notes, "notes")]
    summary["trust"] = trust(known, control, summary, (about or {}).get("cautions", ()))
    found: Record = plain(summary)
    found["what_to_do"] = words.what_to_do(found)
    return found


def overall(cm: CollisionMatrix, limit: Limit | None) -> Record:
    """The answer about all classes together."""
    low, high = cm.pber_interval(LEVEL) or (None, None)
    known = cm._is_known()
    error_at_least = None
    error_at_most = _text.upper_limit(cm)
    if known:
        error_at_least, error_at_most = _text.known_error(cm)
    n_rows = None if cm.counts is None else round(float(cm.counts.sum()), 3)
    return {
        "n_classes": cm.n_classes,
        "n_rows": n_rows,
        "level": LEVEL,
        "how": text(cm.method),
        "known": known,
        "coverage": cm.coverage,
        "pber": {"value": cm.pber, "low": low, "high": high},
        "bayes_error_at_least": error_at_least,
        "bayes_error_at_most": error_at_most,
        "limit": limit_part(limit),
        "headline": _text.headline(cm, limit),
    }


def shown_matrix(
    cm: CollisionMatrix,
    names: list[str],
    limit: Limit | None,
    ordered: list[Any] | None = None,
) -> Record:
    """S, its intervals, class shares and order, and the path of merges, of the classes shown."""
    keep = shown_classes(cm)
    shown = merged(cm, keep)
    complete = len(keep) == cm.n_classes
    classes = [names[k] for k in keep]
    own_order = None
    if ordered is not None and complete:
        own_order = class_numbers(cm.classes, [ordered], "class_order_")[0]
    order = own_order or leaf_order(shown.joint[: len(keep), : len(keep)]).tolist()
    if not complete:
        classes.append(f"({cm.n_classes - len(keep):,} other classes)")
        order.append(len(keep))
    low, high = interval_ends(cm, keep)
    return {
        "complete": complete,
        "classes": classes,
        "matrix": shown.matrix,
        "low": low,
        "high": high,
        "joint": shown.joint,
        "priors": shown.priors,
        "counts": shown.counts,
        "leaf_order": order,
        "ordered": own_order is not None,
        "merge_path": merge_path(shown, cm, getattr(limit, "matrix", None), own_order),
    }


def shown_classes(cm: CollisionMatrix) -> list[int]:
    """The numbers of all classes, or of very many those that collide most."""
    if cm.n_classes <= WHOLE:
        return list(range(cm.n_classes))
    # One pair more than those classes have among themselves: enough to name as many.
    enough = MOST_COLLIDING * (MOST_COLLIDING - 1) // 2 + 1
    joint = cm.joint
    pairs = np.stack(largest_pairs(joint + joint.T, enough), axis=1)
    each_once = dict.fromkeys(pairs.ravel().tolist())
    return sorted(list(each_once)[:MOST_COLLIDING])


def merged(cm: CollisionMatrix, keep: list[int]) -> CollisionMatrix:
    """These classes, called 0, 1, …, and all others as one: B' = Aᵀ B A, as ``merge`` has it."""
    n_kept = len(keep)
    if n_kept == cm.n_classes:  # intervals and covariance stay
        return replace(cm, classes=np.arange(n_kept))
    A = np.zeros((cm.n_classes, n_kept + 1))
    A[:, -1] = 1
    A[keep] = np.eye(n_kept, n_kept + 1)
    joint = A.T @ cm.joint @ A
    S = joint / joint.sum(axis=1, keepdims=True)
    counts = None if cm.counts is None else A.T @ cm.counts
    return CollisionMatrix(S, A.T @ cm.priors, counts=counts)


def interval_ends(
    cm: CollisionMatrix, keep: list[int], decimals: int = 6
) -> Ends | tuple[None, None]:
    """Interval ends of the classes shown, rounded: they are half of a large summary."""
    ends = cm.interval(LEVEL)
    if ends is None:
        return None, None
    # Of the class that stands for all others none is known.
    others = (0, int(len(keep) < cm.n_classes))
    shown = np.ix_(keep, keep)
    low, high = (
        np.pad(end[shown].round(decimals), others, constant_values=np.nan)
        for end in ends
    )
    return low, high


def top_pairs(cm: CollisionMatrix, names: list[str], most: int = 10) -> list[Record]:
    """The most colliding pairs of all classes, with sentences."""
    numbered = replace(cm, classes=np.arange(cm.n_classes))
    table = _text.leading_pairs(numbered, most)
    pairs: list[Record] = plain(table[table["rate"] > 0])
    for pair in pairs:
        pair["class"] = names[pair["class"]]
        pair["other"] = names[pair["other"]]
        pair["sentence"] = words.collision(
            pair["class"], pair["other"], pair["rate"], pair["low"], pair["high"]
        )
    return pairs


def limit_part(limit: Limit | None) -> Record | None:
    """The curve, where it goes, and what is left."""
    if limit is None:
        return None
    facts = _text.limit_facts(limit)
    curve = limit.curve[["rows", "pber", "pber_stderr"]].rename(
        columns={"pber_stderr": "stderr"}
    )
    return facts | {
        "words": _text.limit_words(facts),
        "curve": curve.to_dict("list"),
        "band": continuation(limit, LEVEL),
        "doubled": learning_curve(limit).doubled,
    }


def ceilings(source: Source, names: list[str], limit: Limit | None) -> list[Record]:
    """Per class what can be got right: by the best guess, and by drawing the label (S_kk)."""
    cm = source.matrix
    low, high = cm.interval(LEVEL) or (None, None)
    numbers = np.arange(cm.n_classes)
    best = None
    if source.posteriors is not None and source.codes is not None:
        best = bayes_confusion(source.posteriors, source.codes, classes=numbers)
    at_limit = getattr(getattr(limit, "matrix", None), "matrix", None)
    away = (cm.matrix - 2.0 * np.eye(cm.n_classes)).argmax(axis=1)
    columns = {
        "class": names,
        "prior": cm.priors,
        "rows": cm.counts,
        "mostly_to": [names[k] for k in away],
        "mostly_rate": cm.matrix[numbers, away],
        "draw": np.diag(cm.matrix),
        "draw_low": _diagonal(low),
        "draw_high": _diagonal(high),
        "best_guess": _diagonal(best),
        "draw_limit": _diagonal(at_limit),
    }
    rows: list[Record] = plain(pd.DataFrame(columns).iloc[shown_classes(cm)])
    return rows


def _diagonal(table: FloatArray | None) -> FloatArray | None:
    return None if table is None else np.diag(table)


def merge_path(
    shown: CollisionMatrix,
    whole: CollisionMatrix,
    limit: CollisionMatrix | None,
    order: list[int] | None = None,
) -> Record | None:
    """Every step of the greedy path, in columns; a group is known by its first member.

    None for two classes. Where classes are left out they stay one group, and what collides among
    them stays in the PBER.
    """
    from scipy.cluster.hierarchy import leaves_list

    if shown.n_classes == 2:
        return None
    n_hidden = whole.n_classes - shown.n_classes
    apart = None
    if n_hidden:
        last = shown.n_classes - 1
        apart = [[k, last] for k in range(last)]
    plan = consolidate(shown, cannot_merge=apart, ordered=order or False)
    merges = [(None, None), *plan._pairs]
    left: Sequence[float | None] = [None] * len(plan.path)
    if limit is not None and not n_hidden:
        left = [_left_after(limit.joint, groups) for groups in plan.groupings]
    return {
        "first": [first for first, _ in merges],
        "second": [second for _, second in merges],
        "n_groups": plan.path["n_groups"].to_numpy() + n_hidden,
        "pber": plan.path["pber"].to_numpy() + (whole.pber - shown.pber),
        "low": plan.path["pber_low"].to_numpy(),
        "high": plan.path["pber_high"].to_numpy(),
        "limit": left,
        "chance": plan.path["chance"].to_numpy(),
        "tree_order": leaves_list(plan.linkage)[::-1],  # the first merges at the top
    }


def _left_after(joint: FloatArray, groups: IntArray) -> float:
    """1 - Σ over groups of what stays inside them."""
    inside = groups[:, None] == groups
    return max(0.0, 1 - float(joint[inside].sum()))


def audited(
    source: Source, names: list[str], y_pred: Any, X: Any, limit: Limit | None
) -> Record | None:
    """The audit of a classifier's predictions, without its K×K tables."""
    if y_pred is None:
        return None
    if source.posteriors is None or source.rows is None or source.codes is None:
        missing = "held-out posteriors" if source.posteriors is None else "labels"
        raise ValueError(
            f"y_pred can be audited only beside {missing}, and there are none: pass a "
            "fitted classifier or posteriors as source, and y"
        )
    classes = source.matrix.classes
    predicted = predicted_codes(y_pred, X, classes)
    said = check.one_each(predicted, source.n_given or 0, "y_pred")[source.rows]
    if len(set(names)) == len(names):  # as text, which tables can always hold
        classes = np.array(names, dtype=object)
    true = classes[source.codes]
    found = audit(
        row_posteriors(source.posteriors, source.model),
        None,
        true,
        classes[said],
        groups=source.scored_groups,
        classes=classes,
        limit=limit,
    )
    return _audit_part(found, dict(zip(classes.tolist(), names, strict=True)))


def _audit_part(found: AuditReport, names: Mapping[Any, str], most: int = 20) -> Record:
    columns = [
        "true",
        "predicted",
        "observed",
        "best",
        "fixable",
        "low",
        "high",
        "flagged",
    ]
    pairs = found.pairs.head(most)[columns].to_dict("records")
    for pair in pairs:
        pair |= {"true": names[pair["true"]], "predicted": names[pair["predicted"]]}
    same = (
        "n_rows",
        "error",
        "error_interval",
        "best",
        "fixable",
        "fixable_interval",
        "inherent_interval",
        "not_learned_interval",
    )
    return {name: getattr(found, name) for name in same} | {
        "cautions": found.notes,
        "pairs": pairs,
        "n_pairs": len(found.pairs),
        "verdict": text(found.verdict),
    }


def race(model: object) -> list[Record]:
    """How the models of a pool did against each other, and which were dropped, where it is known.

    ``model.race_.table`` has a row per model.
    """
    raced = getattr(model, "race_", None)
    table = getattr(raced, "table", None)
    if not isinstance(table, pd.DataFrame) or table.empty:
        return []
    said = "Models that fell behind on few rows were not trained on all of them."
    return [section_of("The models tried", [said], table)]


def trust(
    source: Source,
    control: ShuffledControl | None,
    summary: Mapping[str, Any],
    more: Sequence[str] = (),
) -> Record:
    """Everything that tells whether to believe the numbers, and how they were made."""
    if control is not None and not isinstance(control, ShuffledControl):
        raise ValueError(
            "control must be what shuffled_control returned (a ShuffledControl) or "
            f"None, got {type(control).__name__}"
        )
    cm = source.matrix
    model = source.model
    checked: Record = {
        "passed": None,
        "words": words.control(summary, model is not None),
    }
    if control is not None:
        checked = {"passed": control.passed, "words": text(control)}
    seed = getattr(model, "random_state", None)
    if not isinstance(seed, int | np.integer):
        seed = None
    condition = condition_number(cm.matrix)
    return {
        "warnings": _warnings(cm, model, _texts(more, "cautions of about")),
        "intervals": _interval_words(cm),
        "control": checked,
        "conditioning": words.conditioning(condition, cm.is_diagonally_dominant),
        "computed": {
            text(key): text(value) for key, value in cm.diagnostics.known().items()
        },
        "settings": _settings(model),
        "seed": seed,
        "training": _training(model),
        "environment": environment(),
    }


def _warnings(cm: CollisionMatrix, model: object, more: list[str]) -> list[str]:
    """What to know before acting on the numbers; the condition number has a line of its own."""
    moved: Any = cm.diagnostics.known().get("moved") or 0.0
    if hasattr(model, "recovery_"):
        moved = model.recovery_.moved
    estimated = getattr(model, "one_step_", cm)
    said = [*without_skill(estimated), *far_from_gramian(cm, moved)]
    found = [text(caution) for caution in said]
    if getattr(model, "interrupted_", False):
        found.insert(
            0,
            "the fit was interrupted: these are the numbers of the folds trained so far",
        )
    own = [text(said) for said in getattr(model, "cautions_", ())]
    return list(dict.fromkeys([*own, *more, *found]))


def _interval_words(cm: CollisionMatrix) -> str:
    if cm.stderr is None:
        return "None: this matrix was made without standard errors."
    return (
        f"At {LEVEL:.0%}. Standard errors of the rates: median "
        f"{np.median(cm.stderr):.4f}, largest {cm.stderr.max():.4f}."
    )


def _settings(model: object) -> dict[str, str]:
    """Parameters, but for those that say nothing about the numbers, or are said elsewhere."""
    if not hasattr(model, "get_params"):
        return {}
    unsaid = ("random_state", "verbose", "checkpoint", "n_jobs")
    given = model.get_params(deep=False)
    return {
        text(name): text(value)[:200]
        for name, value in given.items()
        if name not in unsaid
    }


def _training(model: object) -> Record | None:
    """The number of folds, and the mean weight of every model over them."""
    pools = getattr(model, "member_weights_", None)
    if not isinstance(pools, list) or not pools:
        return None
    mean = pd.DataFrame([dict(pool) for pool in pools]).fillna(0.0).mean()
    ranked = mean.sort_values(ascending=False, kind="stable")
    models = {text(name): weight for name, weight in ranked.items()}
    return {"folds": len(pools), "models": models}


def _about(
    about: Mapping[str, Any] | None, model: object, X: object, y: object
) -> Record:
    """Where the rows come from; the first 40 columns by name, the others counted."""
    texts = ("file", "label", "command", "saved")
    allowed = (*texts, "columns", "seconds", "cautions")
    given = {name: value for name, value in (about or {}).items() if value is not None}
    if not set(given) <= set(allowed):
        names = ", ".join(allowed)
        raise ValueError(f"about must be a mapping with some of {names}, got {about!r}")
    features = getattr(model, "feature_names_in_", getattr(X, "columns", ()))
    used = getattr(getattr(model, "encoder_", None), "types", features)
    columns = [text(name) for name in given.get("columns", used)]
    label = getattr(model, "label_", None) or getattr(y, "name", None)
    if label is not None:
        given.setdefault("label", label)
    found: Record = {
        name: text(given[name]) if name in given else None for name in texts
    }
    return found | {
        "columns": columns[:40],
        "n_columns": len(columns),
        "seconds": given.get("seconds"),
    }


def _too_many(summary: Mapping[str, Any]) -> list[str]:
    if summary["complete"]:
        return []
    shown = len(summary["classes"]) - 1
    return [
        (
            f"{summary['n_classes']:,} classes are too many to show: here are the "
            f"{shown:,} that collide most, and all others as one class. PBER and the top "
            "pairs are those of all classes."
        )
    ]


def _section(part: object) -> Record:
    if isinstance(part, Result):
        part = part.section()
    if not isinstance(part, Mapping) or "title" not in part:
        raise ValueError(
            f"every entry of sections must be a mapping with a title, got {part!r}"
        )
    table = part.get("table")
    if table is not None:
        rows = [[_cell(value) for value in plain(row)] for row in table["rows"]]
        table = {"columns": [text(name) for name in table["columns"]], "rows": rows}
    sentences = _texts(part.get("sentences", ()), "sentences of a section")
    title = text(check.check_text(part["title"], "title of a section"))
    bars = [_bar(bar) for bar in part.get("bars", ())]
    return {"title": title, "sentences": sentences, "bars": bars, "table": table}


def _bar(bar: Mapping[str, Any]) -> Record:
    """A value with its interval, on a scale from 0 to 1."""
    places = {name: float(bar[name]) for name in ("fall", "low", "high")}
    about = {"name": text(bar["name"]), "words": text(bar["words"])}
    return about | places | {"ranked": bool(bar.get("ranked", True))}


def _cell(value: object) -> str | float | None:
    return value if isinstance(value, int | float | None) else text(value)


def _texts(given: object, name: str) -> list[str]:
    if not isinstance(given, Sequence | np.ndarray):
        raise ValueError(f"{name} must be a list of texts, got {type(given).__name__}")
    entries = [given] if isinstance(given, str) else given
    return [
        text(check.check_text(entry, f"every entry of {name}")) for entry in entries
    ]
