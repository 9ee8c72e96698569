"""What a fold's training leaves: weighted members that give posteriors (factorised) or similarities (pairwise).

Models export to plain tensors and a JSON-able description, and come back from them without running any stored code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from collidescope.learners.members import Member, export_members, import_member, member_posteriors
from collidescope.learners.pooling import pool
from collidescope.pairwise import scoring
from collidescope.training.faults import halved
from collidescope.training.networks import EncoderFactory, PairModule
from collidescope.training.rows import Rows


class FoldModel:
    """Pooled posteriors of one fold.

    Attributes
    ----------
    members : list of Member
    priors : float64 tensor of shape (K,)
        Class shares of the training rows: the priors at which :meth:`posteriors` hold.
    balanced : bool
        Whether the members learned at uniform priors.
    interrupted : bool
        Training was ended by Ctrl-C; what was trained until then is here.
    """

    def __init__(
        self,
        members: list[Member],
        n_classes: int,
        input_shape: tuple[int, ...],
        priors: Tensor,
        balanced: bool,
        interrupted: bool,
    ) -> None:
        self.members, self.n_classes, self.input_shape = members, n_classes, input_shape
        self.priors, self.balanced, self.interrupted = priors, balanced, interrupted

    def posteriors(self, X: Tensor | Rows) -> Tensor:
        """y(x) at the priors of the training rows, float64 (n, K)."""
        _check_shape(X, self.input_shape)
        out = torch.empty(len(X), self.n_classes, dtype=torch.float64)
        # By blocks of rows: with many classes the posteriors of all members at once would not fit.
        at_once = max(1, min(scoring.ROWS_AT_ONCE, scoring.NUMBERS_AT_ONCE // self.n_classes))
        for start in range(0, len(X), at_once):
            block = slice(start, min(start + at_once, len(X)))
            for rows, _, p in halved(lambda rows, _: self._posteriors(X[rows]), block, slice(0, 1)):
                out[rows] = p
        return out

    def _posteriors(self, X: Tensor) -> Tensor:
        priors = self.priors if self.balanced else None
        used = [member for member in self.members if member.weight > 0]
        parts = [member_posteriors(member, X, priors) for member in used]
        if len(used) == 1:
            return parts[0]
        return pool([p.log() for p in parts], [member.weight for member in used])

    def similarity(self, A: Tensor, B: Tensor) -> Tensor:
        """Sim = y(a)·y(b) for every pair, float64 (len A, len B)."""
        return self.posteriors(A) @ self.posteriors(B).T

    @property
    def weights(self) -> dict[str, float]:
        """How much each capacity counts."""
        return {member.name: member.weight for member in self.members}

    @property
    def val_loss(self) -> float:
        """Held-out log loss of the members, averaged by weight."""
        total = sum(member.weight for member in self.members)
        return sum(member.weight * member.val_loss for member in self.members) / total if total else float("nan")

    @property
    def history(self) -> dict[str, list[dict[str, Any]]]:
        """Epoch by epoch losses of every member that was trained in epochs."""
        return {member.name: member.history for member in self.members if member.history}

    def export(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors (for safetensors) and a JSON-able description."""
        tensors, described = export_members(self.members)
        tensors["priors"] = self.priors
        shape = list(self.input_shape)
        return tensors, {
            "model": "factorised",
            "n_classes": self.n_classes,
            "input_shape": shape,
            "balanced": self.balanced,
            "members": described,
        }

    @classmethod
    def from_export(
        cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any], factory: EncoderFactory | None = None
    ) -> FoldModel:
        """The inverse of :meth:`export`. A model with a custom module needs its ``factory`` again."""
        shape, K = tuple(description["input_shape"]), int(description["n_classes"])
        members = [import_member(i, d, tensors, shape, K, factory) for i, d in enumerate(description["members"])]
        return cls(members, K, shape, tensors["priors"], bool(description["balanced"]), False)


class PairwiseFoldModel:
    """Weighted pair-wise networks of one fold: similarities instead of posteriors.

    Attributes
    ----------
    shift : float
        What the sampling added to the log odds of "same"; taken off unless ``correction=False``.
    scheme : str
        ``"balanced"``: similarities are those of uniform priors; ``"natural"``: of the data's own.
    """

    def __init__(
        self,
        members: list[Member],
        n_classes: int,
        input_shape: tuple[int, ...],
        shift: float,
        scheme: str,
        interrupted: bool,
    ) -> None:
        self.members, self.n_classes, self.input_shape = members, n_classes, input_shape
        self.shift, self.scheme, self.interrupted = shift, scheme, interrupted

    def similarity(self, A: Tensor, B: Tensor, correction: bool = True) -> Tensor:
        """Sim (V itself with ``correction=False``) for every pair, float64 (len A, len B)."""
        _check_shape(A, self.input_shape)
        _check_shape(B, self.input_shape)
        total = torch.zeros(len(A), len(B), dtype=torch.float64)
        for member, module in self._used():
            total += member.weight * scoring.similarity(module, A, B, self.shift if correction else 0.0)
        return total

    def class_similarity(
        self,
        X: Tensor,
        references: Tensor,
        reference_labels: Tensor,
        exclude_self: bool | Tensor = False,
        correction: bool = True,
        reference_weight: Tensor | None = None,
    ) -> scoring.ClassSimilarity:
        """q(x) and its standard error, each float64 (n, K); see :func:`.scoring.class_similarity`."""
        _check_shape(X, self.input_shape)
        q = torch.zeros(len(X), self.n_classes, dtype=torch.float64)
        stderr = torch.zeros_like(q)
        for member, module in self._used():
            shift = self.shift if correction else 0.0
            part = scoring.class_similarity(
                module, X, references, reference_labels, self.n_classes, exclude_self, shift, reference_weight
            )
            q += member.weight * part.q
            # Members score the same references, so their errors go together: standard errors add up, not variances.
            stderr += member.weight * part.stderr
        return scoring.ClassSimilarity(q, stderr)

    def _used(self) -> list[tuple[Member, PairModule]]:
        least = 1e-6 * max(member.weight for member in self.members)
        return [(m, m.module) for m in self.members if m.weight > least and isinstance(m.module, PairModule)]

    weights = FoldModel.weights
    val_loss = FoldModel.val_loss
    history = FoldModel.history

    def export(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors (for safetensors) and a JSON-able description."""
        tensors, described = export_members(self.members)
        shape = list(self.input_shape)
        return tensors, {
            "model": "pairwise",
            "n_classes": self.n_classes,
            "input_shape": shape,
            "shift": self.shift,
            "scheme": self.scheme,
            "members": described,
        }

    @classmethod
    def from_export(
        cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any], factory: EncoderFactory | None = None
    ) -> PairwiseFoldModel:
        """The inverse of :meth:`export`."""
        shape, K = tuple(description["input_shape"]), int(description["n_classes"])
        members = [import_member(i, d, tensors, shape, K, factory) for i, d in enumerate(description["members"])]
        return cls(members, K, shape, float(description["shift"]), str(description["scheme"]), False)


def _check_shape(X: Tensor | Rows, input_shape: tuple[int, ...]) -> None:
    if tuple(X.shape[1:]) != input_shape:
        raise ValueError(f"X must have rows of shape {input_shape} as in training, got {tuple(X.shape[1:])}")
