"""The collision matrix as a value: what every method of the package returns.

Symbols (K classes)::

    S[i, j] = E_{x ~ D_i} y_j(x)   ``matrix``    row stochastic (the paper's Definition 3)
    B = diag(priors) S             ``joint``     B[i, j] = E[y_i(x) y_j(x)]: symmetric, PSD
    G = S Sᵀ                       ``gramian``   the row Gramian (the paper's Definition 7)
    PBER = 1 - tr(B)               ``pber``      error of the probabilistic Bayes classifier

``priors`` are those at which S holds, and so those at which the probabilistic Bayes classifier
decides; they are the row sums of B. The population on which it is scored may have others: see
:meth:`CollisionMatrix.precision`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from collidescope import _checks as check
from collidescope import _store, intervals
from collidescope._checks import Array, ArrayLike, FloatArray, IntArray
from collidescope._saving import TYPE, from_tree, saved_fields
from collidescope._text import as_html, as_text
from collidescope.equations.bounds import (
    bayes_error_bounds,
    dominance_factor,
    highest_pber,
)
from collidescope.equations.merging import (
    delta_stderr,
    membership,
    merge_covariance,
    n_pairs,
)
from collidescope.intervals import UNSEEN as UNSEEN

if TYPE_CHECKING:
    import pandas as pd

    from collidescope.limit import Limit

#: what a JSON file of a matrix is called inside
FORMAT = "collidescope.collision-matrix"
HEADER = {"format": FORMAT, "version": 3}
JSON_CLASSES = 1000  #: the most classes of a JSON file: 50 bytes per entry are 50 MB
#: Posteriors whose PBER is below that of the class shares by less than this share have no skill.
NO_SKILL = 0.02
_NO_STDERR = "level needs an estimated standard error, and this matrix has none"


class Method(StrEnum):
    """How a collision matrix was made."""

    GIVEN = "given"  #: by the user, or computed from a known distribution
    DENSITIES = "densities"  #: from known densities, by simulation
    ONE_STEP = "one-step"  #: from held-out posteriors and labels
    SHRUNK = "one-step, shrunk"  #: the same, drawn towards the plug-in estimate
    VOTES = "one-step, votes"  #: from held-out posteriors and several labels per input
    PLUG_IN = "mean of p pᵀ"  #: from posteriors without labels
    #: mean posteriors of every class, the paper's equation (13)
    AVERAGES = "class averages"
    GRAMIAN = "gramian"  #: from the row Gramian, the paper's equations (35) and (36)
    COUNTED = "counted"  #: over inputs that repeat
    COUNTED_VOTES = "counted votes"  #: over several labels per item
    LIMIT = "limit"  #: with unlimited rows, by continuing the learning curve


@dataclass(frozen=True)
class Diagnostics:
    """What one needs to judge how a matrix was computed; None where it does not apply."""

    moved: float | None = None  #: largest change of an entry of S by the projection
    iterations: int | None = None  #: of the projection
    converged: bool | None = None  #: whether the projection ended by itself
    brier: float | None = None  #: held-out Brier score of the posteriors
    residual: float | None = None  #: ‖S Sᵀ - G‖_F of a recovery from the Gramian G
    recovery: str | None = None  #: its method and how it ended
    one_step_share: float | None = None  #: of the one-step estimate in a shrunk one
    n_samples: int | None = None  #: draws of a simulation
    labels: int | None = None  #: counted labels
    distinct_inputs: int | None = None  #: inputs (items) with two labels or more
    #: inputs (items) with one label, which say nothing
    inputs_seen_once: int | None = None
    inverse_votes: float | None = None  #: mean of 1/N over items with N votes
    inverse_pairs: float | None = None  #: mean of 2/(N(N-1))
    excess: float | None = None  #: what was not learned, taken off the PBER of a limit
    #: how far its shape comes from the learning curve
    shape_learned: float | None = None

    def known(self) -> dict[str, Any]:
        """The diagnostics that apply, by name."""
        return {
            name: value for name, value in asdict(self).items() if value is not None
        }


class Value:
    """A frozen dataclass of arrays and plain values: they cannot change, and compare."""

    def _freeze(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            frozen = value
            if isinstance(value, np.ndarray):
                flags = value.flags
                if flags.writeable or not flags.owndata:
                    frozen = value.copy()
                    frozen.setflags(write=False)
            object.__setattr__(self, name, frozen)

    def _values(self) -> dict[str, Any]:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor: unpickled and copied arrays would be writeable.
        return type(self), tuple(self._values().values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return False
        theirs = other._values()
        return all(
            np.array_equal(value, theirs[name])
            for name, value in self._values().items()
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class CollisionMatrix(Value):
    r"""How often an input seen in class i would be in class j if it were seen again.

    >>> cm = CollisionMatrix(
    ...     [[0.9, 0.1], [0.2, 0.8]], priors=[2 / 3, 1 / 3], classes=["cat", "dog"]
    ... )
    >>> round(cm.pber, 4)
    0.1333
    >>> cm.top_collisions()[["class", "other", "rate"]].to_string(index=False)
    'class other  rate\n  dog   cat   0.2'
    """

    matrix: FloatArray  #: (K, K) S: non-negative, every row sums to 1
    #: (K,) class probabilities of the population that S describes, default uniform
    priors: FloatArray = None  # type: ignore[assignment]
    #: K distinct names, default 0 … K-1
    classes: Array = None  # type: ignore[assignment]
    stderr: FloatArray | None = None  #: (K, K) standard error of every entry of S
    pber_stderr: float | None = None  #: standard error of the PBER
    #: (K,) rows of each class (the effective number when rows are weighted)
    counts: FloatArray | None = None
    #: (D, D), D = K(K+1)/2, of the upper triangle of B, row by row, for merging
    covariance: FloatArray | None = None
    #: share of the rows that the estimate speaks for (counted collisions)
    coverage: float | None = None
    method: Method = Method.GIVEN  #: how the matrix was made
    #: what unlimited rows would leave, where it was estimated
    limit: Limit | None = None
    merged: bool = False  #: whether classes were merged: ``limit`` is not theirs then
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    #: (K,) independent units of each class, default ``counts``: rows or groups of rows, as many as
    #: if all weighed as much as the heaviest
    units: FloatArray | None = None
    n_units: float | None = None  #: the same of all classes
    grouped: bool = False  #: whether units are groups of rows
    #: 0/1 error of the largest posterior on held-out rows
    held_out_error: float | None = None
    held_out_stderr: float | None = None  #: its standard error

    def __post_init__(self) -> None:
        S = check.check_stochastic(self.matrix, "matrix")
        k = S.shape[0]
        values: dict[str, Any] = {
            "matrix": S,
            "priors": check.priors_or_uniform(self.priors, k),
            "classes": check.check_classes(self.classes, k),
            "method": Method(
                check.check_choice(self.method, list(map(str, Method)), "method")
            ),
            "merged": bool(self.merged),
            "grouped": bool(self.grouped),
        }
        if not isinstance(self.diagnostics, Diagnostics):
            raise ValueError(
                f"diagnostics must be Diagnostics, got {self.diagnostics!r}"
            )
        if self.method == Method.PLUG_IN:
            for name in ("stderr", "pber_stderr", "covariance"):
                if getattr(self, name) is not None:
                    said = (
                        f"{name} must be None where method is {str(Method.PLUG_IN)!r}"
                    )
                    why = "without labels nothing says whether the posteriors are right"
                    raise ValueError(f"{said}: {why}")
        self._freeze(values | self._check_optional(k))

    @property
    def uses_labels(self) -> bool:
        """False for the mean of p pᵀ: nothing then says whether the posteriors are right."""
        return self.method != Method.PLUG_IN

    def _check_optional(self, k: int) -> dict[str, Any]:
        """The optional arrays and numbers, with the shapes that K classes ask for."""
        pairs = n_pairs(k)
        shapes: dict[str, tuple[int, ...]] = {
            "stderr": (k, k),
            "counts": (k,),
            "units": (k,),
            "covariance": (pairs, pairs),
        }
        most = {"coverage": 1.0, "held_out_error": 1.0}
        for name in (*most, "pber_stderr", "n_units", "held_out_stderr"):
            shapes[name] = ()
        checked: dict[str, Any] = {}
        for name, shape in shapes.items():
            given = getattr(self, name)
            if given is None:
                continue
            array = check.check_finite(given, name, ndim=len(shape))
            if array.shape != shape:
                raise ValueError(
                    f"{name} must have shape {shape} for {k} classes, got {array.shape}"
                )
            # Sums of a few larger ones would overflow.
            if np.abs(array).max(initial=0.0) > check.LARGEST_WEIGHT:
                raise ValueError(
                    f"{name} must hold numbers up to {check.LARGEST_WEIGHT:g}"
                )
            if name == "covariance":
                array = (array + array.T) / 2
            elif shape:
                check.check_non_negative(array, name, "check where it comes from")
            elif not 0 <= array <= most.get(name, np.inf):
                wanted = "between 0 and 1" if name in most else "≥ 0"
                raise ValueError(f"{name} must be {wanted}, got {array}")
            checked[name] = array if shape else float(array)
        return checked

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.matrix.shape[0])

    @property
    def joint(self) -> FloatArray:
        """B = diag(priors) S: the chance that two sightings of an input are of classes i and j."""
        return self.priors[:, None] * self.matrix

    @property
    def gramian(self) -> FloatArray:
        """G = S Sᵀ: how likely inputs of classes i and j share a class when drawn again."""
        return self.matrix @ self.matrix.T

    @property
    def balance_gap(self) -> float:
        """Largest entry of ``|B - Bᵀ|``: zero for a true collision matrix (detailed balance)."""
        B = self.joint
        # of an antisymmetric matrix, so of its absolute values too
        return float((B - B.T).max())

    @property
    def dominance_factor(self) -> float:
        """The paper's ε = max_i Σ_{k≠i} S_ik / S_ii: below 1 when S is diagonally dominant."""
        return dominance_factor(self.matrix)

    @property
    def is_diagonally_dominant(self) -> bool:
        """Is every class, seen again, more often itself than all others together?"""
        # Equations (14) and (15): rows sum to 1, so S_ii > Σ_{k≠i} S_ik is S_ii > 1/2.
        return bool(np.all(np.diag(self.matrix) > 0.5))

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray] | None:
        """(low, high), each K×K; None where no standard error was estimated.

        Generalised Clopper–Pearson limits: :mod:`collidescope.intervals`.
        """
        places = np.indices(self.matrix.shape)
        return self._entry_interval(places[0], places[1], level)

    def _entry_interval(
        self, i: IntArray, j: IntArray, level: float
    ) -> tuple[FloatArray, FloatArray] | None:
        """(low, high) of the entries S[i, j]."""
        check.check_between(level, 0, 1, "level")
        if self.stderr is None:
            return None
        return intervals.interval(
            self.matrix[i, j],
            self.stderr[i, j],
            self._entry_units(i, j),
            level,
            grouped=self.grouped,
        )

    def _entry_units(self, i: IntArray, j: IntArray) -> FloatArray | None:
        """Independent units behind the entries S[i, j]: rows of every class move it."""
        units = self.units
        if units is None:
            units = self.counts
        if units is None:
            return None
        # A unit of class k has the share π_k / units_k of the population, and moves
        # S_ij = B_ij / π_i by at most its share over π_i. One of a third class moves B_ij by
        # its p_i p_j: by a quarter of its share off the diagonal, by all of it on the diagonal.
        share = self.priors / np.maximum(units, 1.0)
        own = np.maximum(share[i], share[j])
        of_others = np.where(i == j, 1.0, 0.25) * share.max()
        larger = np.maximum(own, of_others)
        return self.priors[i] / larger

    @property
    def pber(self) -> float:
        """Error of the probabilistic Bayes classifier, equation (5): 1 - Σ priors_k S_kk.

        The chance that an input, seen again, is found in another class, and the lowest Brier score
        any model can reach. Of estimates from labels it is the held-out Brier score of the
        posteriors (of the class shares, where the posteriors do worse than these).
        """
        rounded = 1 - self.priors @ np.diag(self.matrix)
        return max(float(rounded), 0.0)

    def pber_interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """(low, high) for :attr:`pber`, or None where no standard error was estimated."""
        check.check_between(level, 0, 1, "level")
        if self.pber_stderr is None:
            return None
        return self._pber_ends(self.pber, self.pber_stderr, self.priors, level)

    def _pber_ends(
        self, pber: float, stderr: float, priors: FloatArray, level: float
    ) -> tuple[float, float]:
        """(low, high) of the PBER of these classes, or of merged ones with those ``priors``."""
        units = self.all_units
        low, high = intervals.brier_interval(
            pber, stderr, units, level, grouped=self.grouped
        )
        scored = self.diagnostics.brier is not None and units is not None
        if scored and not _skilled(pber, priors):
            # It is that of the class shares, which were seen in the same rows.
            by_chance = highest_pber(priors)
            high += intervals.optimism(by_chance, len(priors), float(units or 1), level)
        return low, min(high, 1.0)

    @property
    def all_units(self) -> float | None:
        """Independent units behind the PBER and the held-out error."""
        if self.n_units is not None or self.counts is None:
            return self.n_units
        return float(self.counts.sum())

    def bayes_error_limit(self, level: float = 0.95) -> float:
        """Upper limit of the Bayes error rate that holds with probability ``level``.

        It holds for any model, however little it learned: the Bayes error is at most the error of
        any classifier, so at most the held-out 0/1 error of the posteriors, and at most the PBER.
        The error is used, and the PBER where the posteriors have no skill: their most likely class
        is then the one that happens to be frequent among these rows.
        """
        check.check_between(level, 0, 1, "level")
        if (
            self.held_out_error is not None
            and self.held_out_stderr is not None
            and _skilled(self.pber, self.priors)
        ):
            limit = intervals.upper_limit(
                self.held_out_error,
                self.held_out_stderr,
                self.all_units,
                level,
                grouped=self.grouped,
                counted=True,
            )
            return float(limit)
        if self.pber_stderr is not None:
            two_sided = 2 * level - 1
            ends = self._pber_ends(self.pber, self.pber_stderr, self.priors, two_sided)
            return ends[1]
        if not self._is_known():
            raise ValueError(_NO_STDERR)
        return self.pber

    def bayes_error_bounds(self, level: float | None = None) -> tuple[float, float]:
        """(low, high) around the Bayes error rate (Cover and Hart), where S is known.

        S is known from densities, from inputs that all repeat, or because it was given; of an
        estimated one see :meth:`bayes_error_limit`. With ``level`` from the ends of the interval
        of the PBER.
        """
        if not self._is_known():
            why = "what the model did not learn counts as collision, so no lower bound follows"
            raise ValueError(
                f"bayes_error_bounds needs a known S, this one was estimated ({self.method}): "
                f"{why}; use bayes_error_limit"
            )
        low = high = self.pber
        if level is not None:
            interval = self.pber_interval(level)
            if interval is None:
                raise ValueError(_NO_STDERR)
            low, high = interval
        if self.held_out_error is not None:  # of the majority of the other votes
            limit = self.held_out_error
            if level is not None:
                limit = self.bayes_error_limit((1 + level) / 2)
            high = min(high, limit)
        low = bayes_error_bounds(low, self.n_classes)[0]
        return min(low, high), high

    def _is_known(self) -> bool:
        """Is S free of a model's ignorance: given, of known densities, or counted on all rows?"""
        return self.method in (Method.GIVEN, Method.DENSITIES) or self.coverage == 1.0

    def recall(self) -> FloatArray:
        """Per class, the share of inputs that the probabilistic Bayes classifier finds: S_kk."""
        return np.diag(self.matrix).copy()

    def precision(self, population_priors: ArrayLike | str | None = None) -> FloatArray:
        """Per class, how often a prediction of it is right: π_k S_kk / Σ_i π_i S_ik.

        ``population_priors`` are π, the class shares of the population that is predicted: an array,
        "empirical" for the observed :attr:`counts`, or None for :attr:`priors`, where precision
        equals recall (detailed balance). S estimated at uniform priors and scored at the natural
        ones gives the paper's figures.
        """
        flow = self._population(population_priors)[:, None] * self.matrix
        total = flow.sum(axis=0)
        # A class that is never predicted has no precision: nan, not a made-up number.
        precision = np.full(self.n_classes, np.nan)
        return np.divide(np.diag(flow), total, out=precision, where=total > 0)

    def _population(self, priors: ArrayLike | str | None) -> FloatArray:
        if priors is None:
            return self.priors
        if isinstance(priors, str):
            check.check_choice(priors, ["empirical"], "population_priors")
            if self.counts is None:
                raise ValueError(
                    "population_priors='empirical' needs counts, and this matrix has "
                    "none: pass an array"
                )
            priors = self.counts / self.counts.sum()
        return check.check_priors(priors, self.n_classes, "population_priors")

    def top_collisions(self, n: int = 5, level: float = 0.95) -> pd.DataFrame:
        """The ``n`` most colliding pairs of classes, each once, in its stronger direction.

        Columns: ``class``, ``other``, ``rate`` = S[class, other] with ``low`` and ``high`` (missing
        where not estimated), and ``reverse`` = S[other, class]. Pairs were chosen because they are
        large: ``low`` allows for the choice among all pairs.
        """
        check.check_count(n, "n", least=0)
        S = self.matrix
        mirrored = S.T
        larger = np.maximum(S, mirrored)
        i, j = largest_pairs(larger, n)
        rounding = 1e-12  # with equal priors both directions are the same but for it
        swap = mirrored[i, j] > S[i, j] + rounding
        return self._rated_pairs(np.where(swap, j, i), np.where(swap, i, j), level)

    def _rated_pairs(self, i: IntArray, j: IntArray, level: float) -> pd.DataFrame:
        """The table of :meth:`top_collisions`."""
        import pandas as pd

        S = self.matrix
        low = high = np.full(len(i), np.nan)
        interval = self._entry_interval(i, j, level)
        if interval is not None:
            # The largest of many estimates is large by chance too: the lower ends hold for all
            # pairs together (Bonferroni), of which these were chosen.
            of_all = intervals.level_together(level, n_pairs(self.n_classes - 1))
            together = self._entry_interval(i, j, of_all)
            assert together is not None
            low = together[0]
            high = interval[1]
        columns = {
            "class": self.classes[i],
            "other": self.classes[j],
            "rate": S[i, j],
            "low": low,
            "high": high,
            "reverse": S[j, i],
        }
        return pd.DataFrame(columns)

    def top_k(self, k: int = 10) -> SparseCollisions:
        """The diagonal and the ``k`` largest other entries of every row of S, and what is left.

        Of ties the first.
        """
        check.check_count(k, "k", least=0)
        n = self.n_classes
        most = min(k, n - 1)
        others = self.matrix.copy()
        np.fill_diagonal(others, 0.0)
        shown = np.eye(n, dtype=bool)
        for i, row in enumerate(others):
            shown[i, _largest(row, most)] = True
        places = np.nonzero(shown & ((others > 0) | np.eye(n, dtype=bool)))

        def keep(values: FloatArray) -> csr_array:
            return csr_array((values[places], places), shape=(n, n))

        matrix = keep(self.matrix)
        rest = np.maximum(self.matrix.sum(axis=1) - matrix.sum(axis=1), 0.0)
        stderr = None if self.stderr is None else keep(self.stderr)
        return SparseCollisions(matrix, rest, self.classes, stderr)

    def to_frame(self) -> pd.DataFrame:
        """S with class names on both sides."""
        import pandas as pd

        seen = pd.Index(self.classes, name="seen in")
        again = seen.rename("seen again in")
        return pd.DataFrame(self.matrix.copy(), index=seen, columns=again)

    def merge(
        self, groups: Sequence[Sequence[Any]], names: Sequence[Any] | None = None
    ) -> CollisionMatrix:
        """The collision matrix after merging classes: exact (B' = Aᵀ B A), with no retraining.

        ``groups`` are lists of class names; classes not named stay as they are. ``names`` has one
        name per group, by default the members joined by "+"; class names of the result are text.
        Intervals follow by the delta method from :attr:`covariance`; without it they are left out.
        The held-out error stays that of the single classes: merged ones cannot have a higher one.
        """
        A, merged = membership(self.classes, groups, names)
        B = A.T @ self.joint @ A
        changed: dict[str, Any] = {
            "matrix": B / B.sum(axis=1, keepdims=True),
            "priors": A.T @ self.priors,
            "classes": merged,
            "stderr": None,
            "pber_stderr": None,
            "limit": None,
            "merged": True,
        }
        if self.covariance is not None:
            covariance = merge_covariance(self.covariance, A)
            stderr, pber_stderr = delta_stderr(B, covariance)
            changed |= {
                "covariance": covariance,
                "stderr": stderr,
                "pber_stderr": pber_stderr,
            }
        if self.counts is not None:
            changed["counts"] = A.T @ self.counts
        if self.units is not None:
            changed["units"] = self._merged_units(A)
        return replace(self, **changed)

    def _merged_units(self, A: FloatArray) -> FloatArray:
        """Independent units behind merged classes."""
        units = self.units
        assert units is not None
        if self.grouped:
            # Groups of rows may be behind several of the classes: at least as many as behind the
            # best supported one.
            return np.asarray((A * units[:, None]).max(axis=0))
        # The share of the population that one unit has.
        share = self.priors / np.maximum(units, 1.0)
        heaviest = (A * share[:, None]).max(axis=0)
        return np.asarray(A.T @ self.priors / heaviest)

    def export(self) -> dict[str, Any]:
        """Everything a file holds, as arrays and plain values: see :meth:`restore`."""
        tree = self._values()
        covariance = tree.pop("covariance")
        lower = None
        if covariance is not None:
            lower = covariance[np.tril_indices(len(covariance))]
        tree |= {"covariance_lower": lower, "method": str(self.method)}
        tree["diagnostics"] = self.diagnostics.known()
        if self.limit is not None:
            tree["limit"] = self.limit.export()
        return tree

    @classmethod
    def restore(cls, tree: object) -> CollisionMatrix:
        """The inverse of :meth:`export`, with every check of the constructor."""
        names = {known.name for known in fields(cls)}
        names = names - {"covariance"} | {"covariance_lower"}
        values = dict(tree) if isinstance(tree, Mapping) else {}
        if wrong := names ^ set(values):
            named = ", ".join(sorted(map(str, wrong)))
            raise ValueError(f"a collision matrix is damaged: check {named}")
        values["diagnostics"] = _restored_diagnostics(values["diagnostics"])
        if values["limit"] is not None:
            from collidescope.limit import Limit  # it imports this module

            values["limit"] = Limit.restore(values["limit"])
        lower = values.pop("covariance_lower")
        if lower is not None:
            k = len(check.check_classes(values["classes"]))
            values["covariance"] = _from_lower(lower, n_pairs(k))
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text: what :meth:`to_json` writes."""
        k = self.n_classes
        if k > JSON_CLASSES:
            raise ValueError(
                f"a matrix of {k:,} classes is too large for JSON (at most "
                f"{JSON_CLASSES:,}): to_npz keeps all of it, top_k the largest of "
                "every row"
            )
        tree = self.export()
        tree["classes"] = _store.plain_labels(self.classes)
        if self.limit is not None:
            tree["limit"] = self.limit.to_dict()
        return HEADER | plain(tree)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CollisionMatrix:
        """The inverse of :meth:`to_dict`, with every check of the constructor."""
        tree = opened(data, HEADER, "a collision matrix", "CollisionMatrix.to_dict")
        tree["classes"] = _store.labels_from_plain(tree.get("classes"))
        return cls.restore(tree)

    def to_json(self, path: str | Path | None = None) -> str:
        """Write up to 1,000 classes to ``path`` and return the text.

        An existing file is replaced in one step.
        """
        return _store.write_json(self.to_dict(), path)

    @classmethod
    def from_json(cls, source: str | Path) -> CollisionMatrix:
        """Read a file written by :meth:`to_json`, or its text; floats come back bit for bit."""
        return cls.from_dict(_store.read_json(source))

    def to_npz(self, path: str | Path) -> None:
        """Write all of the matrix to a binary file of numpy's: 16 bytes per entry."""
        _store.write(path, "matrix", self.export(), npz=True)

    @classmethod
    def from_npz(cls, path: str | Path) -> CollisionMatrix:
        """Read a file written by :meth:`to_npz`, with the checks of the constructor.

        No code in it is run.
        """
        return cls.restore(_store.read(path, "matrix"))

    def __repr__(self) -> str:
        rows = "" if self.counts is None else f", {self.counts.sum():,.0f} rows"
        return (
            f"<CollisionMatrix: {self.n_classes} classes{rows}, PBER {self.pber:.4f}>"
        )

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def _skilled(pber: float, priors: FloatArray) -> bool:
    """Is it below that of the class shares?"""
    return pber < (1 - NO_SKILL) * highest_pber(priors)


def plain(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as lists, all else as it is."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in tree.items()
    }


def opened(
    data: object, header: Mapping[str, Any], what: str, maker: str
) -> dict[str, Any]:
    """What a dictionary holds beside its ``header``: format and version."""
    if not isinstance(data, Mapping) or data.get("format") != header["format"]:
        raise ValueError(f"data is not {what}: it must be what {maker} returned")
    found = data.get("version")
    known = header["version"]
    if found != known:
        raise ValueError(
            f"data has format version {found!r}, this release reads {known}: make it "
            "again, or update collidescope"
        )
    return {name: value for name, value in data.items() if name not in header}


def _restored_diagnostics(tree: object) -> Diagnostics:
    known = dict.fromkeys(saved_fields(Diagnostics))
    if not isinstance(tree, Mapping):
        raise ValueError(
            f"a collision matrix is damaged: check diagnostics, got {tree!r:.200}"
        )
    try:
        return from_tree(Diagnostics, {TYPE: Diagnostics.__name__, **known, **tree})
    except ValueError as error:
        raise ValueError(
            f"a collision matrix is damaged: check diagnostics ({error})"
        ) from None


def _from_lower(lower: ArrayLike, size: int) -> FloatArray:
    """A symmetric matrix from its lower triangle, row by row."""
    flat = check.check_finite(lower, "covariance_lower", ndim=1)
    if flat.shape != (n_pairs(size),):  # before memory is taken for it
        raise ValueError(
            f"covariance_lower must have {n_pairs(size)} entries, got {len(flat)}"
        )
    full = np.empty((size, size))
    below = np.tril_indices(size)
    full[below] = flat
    full.T[below] = flat
    return full


@dataclass(frozen=True, eq=False)
class SparseCollisions:
    """S with the other classes that each class collides with most: :meth:`CollisionMatrix.top_k`.

    >>> top = CollisionMatrix(
    ...     [[0.7, 0.2, 0.1], [0.2, 0.8, 0.0], [0.1, 0.0, 0.9]]
    ... ).top_k(1)
    >>> top.matrix.toarray()[0], top.rest.round(6)
    (array([0.7, 0.2, 0. ]), array([0.1, 0. , 0. ]))
    """

    #: (K, K) the diagonal of S and the ``k`` largest other entries of every row (none that are 0)
    matrix: csr_array
    rest: FloatArray  #: (K,) what each row leaves out: 1 less the sum of the row
    classes: Array  #: K names, of rows and columns
    stderr: csr_array | None = None  #: standard errors of the same entries

    def __repr__(self) -> str:
        return f"<SparseCollisions: {len(self.classes):,} classes, {self.matrix.nnz:,} entries>"

    def to_frame(self) -> pd.DataFrame:
        """One row per entry, largest first in a class.

        Columns: ``class``, ``other``, ``rate``, ``stderr`` (nan: unknown).
        """
        import pandas as pd

        entries = self.matrix.tocoo()
        errors = np.full(entries.nnz, np.nan)
        if self.stderr is not None:
            errors = self.stderr.data
        columns = {
            "class": self.classes[entries.row],
            "other": self.classes[entries.col],
            "rate": entries.data,
            "stderr": errors,
        }
        order = np.lexsort((-entries.data, entries.row))
        return pd.DataFrame(columns).iloc[order].reset_index(drop=True)

    def to_json(self, path: str | Path | None = None) -> str:
        """Classes, entries (row, column, rate, standard error, as lists) and the rest, as JSON."""
        entries = self.matrix.tocoo()
        data: dict[str, Any] = {
            "format": "collidescope.top-collisions",
            "version": 1,
            "classes": self.classes,
            "row": entries.row,
            "column": entries.col,
            "rate": entries.data,
            "stderr": None,
            "rest": self.rest,
        }
        if self.stderr is not None:
            data["stderr"] = self.stderr.data
        return _store.write_json(plain(data), path)


def largest_pairs(values: FloatArray, n: int) -> tuple[IntArray, IntArray]:
    """(i, j) with i < j of the ``n`` largest entries above the diagonal, largest first.

    Ties are in the order of rows.
    """
    k = len(values)
    above = np.where(np.tri(k, dtype=bool), -np.inf, values)
    return np.divmod(_largest(above.ravel(), min(n, n_pairs(k - 1))), k)


def _largest(values: FloatArray, n: int) -> IntArray:
    """Positions of the ``n`` largest values, largest first, ties in the order of positions."""
    if n == 0:
        return np.empty(0, np.intp)
    # Not a full sort: thousands of classes have millions of pairs.
    place = values.size - n
    found = np.flatnonzero(values >= np.partition(values, place)[place])
    order = np.argsort(-values[found], kind="stable")
    return found[order[:n]]
