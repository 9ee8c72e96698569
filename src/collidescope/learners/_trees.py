"""A stack of decision trees as small arrays, and their evaluation in numpy.

Trees are written in pre-order: the left child of node i is node i+1, the right one is ``right`` nodes further on, so
pointers only lead forward and every walk ends. A *cut* is a pair (feature, threshold), ``x[feature] <= threshold``
goes left; cuts are shared by all nodes that use them. Leaves are numbered in the order in which they are written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope.learners._shared import checked
from collidescope.learners.base import Tree

#: Steps of a walk; trees are grown no deeper, and files that claim more are refused.
MAX_DEPTH = 40
#: Trees and leaves of one stack.
MAX_TREES, MAX_LEAVES = 4_000, 400_000
#: Nodes of one tree: the step to a right child must fit 16 bits.
MAX_NODES = 2**16 - 1


@dataclass
class TreeStack:
    """T trees with N nodes in all, of which I are inner ones.

    Parameters
    ----------
    feature, threshold : arrays of C cuts
    cut, right : arrays of I cut numbers, and of steps to the right child
    inner : bool array of N nodes
    sizes : array of T numbers of nodes
    """

    feature: npt.NDArray[Any]
    threshold: npt.NDArray[np.float32]
    cut: npt.NDArray[Any]
    right: npt.NDArray[Any]
    inner: npt.NDArray[np.bool_]
    sizes: npt.NDArray[np.uint16]
    depth: int = field(init=False)
    n_leaves: int = field(init=False)

    def __post_init__(self) -> None:
        """Lay the nodes out for walking; raises ValueError on trees that do not close."""
        self.sizes = self.sizes.astype(np.uint16)
        N, sizes = len(self.inner), self.sizes.astype(np.int64)
        if sizes.sum() != N or not (sizes > 0).all() or len(self.right) != int(self.inner.sum()):
            raise ValueError("the sizes of trees do not add up to their nodes")
        self._roots = np.cumsum(sizes) - sizes
        self._cut = np.zeros(N, dtype=np.int32)
        self._cut[self.inner] = self.cut
        # step[2i] leads to the left child, step[2i + 1] to the right one; a leaf stays where it is
        self._step = np.zeros(2 * N, dtype=np.int32)
        self._step[0::2] = self.inner
        self._step[1::2][self.inner] = self.right
        end = np.repeat(self._roots + sizes, sizes)
        if ((np.arange(N) + self._step.reshape(N, 2).max(axis=1)) >= end).any() or (self.right < 1).any():
            raise ValueError("a tree points outside of itself")
        self._leaf = np.cumsum(~self.inner) - 1
        self.n_leaves = int((~self.inner).sum())
        self.depth = self._measured_depth()

    def _measured_depth(self) -> int:
        nodes, depth = self._roots, 0
        while True:
            nodes = nodes[self.inner[nodes]]
            if not len(nodes):
                return depth
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"trees must not be deeper than {MAX_DEPTH}")
            nodes = np.unique(np.concatenate([nodes + 1, nodes + self._step[2 * nodes + 1]]))

    def leaves(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        """Leaf numbers, (n, T), of rows (n, d)."""
        C = max(1, len(self.feature))
        right = np.ones((len(x), C), dtype=np.int8)
        np.greater(x[:, self.feature], self.threshold, out=right[:, : len(self.feature)], casting="unsafe")
        flat, base = right.ravel(), (np.arange(len(x), dtype=np.int64) * C)[:, None]
        node = np.tile(self._roots.astype(np.int64), (len(x), 1))
        for _ in range(self.depth):
            side = flat.take(base + self._cut.take(node))
            node += self._step.take(2 * node + side)
        return self._leaf.take(node)

    @property
    def numbers_per_row(self) -> int:
        """Numbers that :meth:`leaves` handles at once for every row."""
        return len(self.feature) // 2 + 6 * len(self.sizes)

    def export(self) -> Tree:
        names = ("feature", "threshold", "cut", "right", "sizes")
        return {name: getattr(self, name) for name in names} | {"inner": np.packbits(self.inner)}

    @classmethod
    def restore(cls, tree: Tree, n_features: int) -> TreeStack:
        feature = checked(tree, "feature", (np.uint16,), (None,))
        threshold = checked(tree, "threshold", (np.float32,), (len(feature),))
        cut = checked(tree, "cut", (np.uint16, np.uint32), (None,))
        right = checked(tree, "right", (np.uint8, np.uint16), (len(cut),))
        sizes = checked(tree, "sizes", (np.uint16,), (None,))
        bits = checked(tree, "inner", (np.uint8,), (None,))
        n_nodes = int(sizes.astype(np.int64).sum())
        if not 0 < len(sizes) <= MAX_TREES or n_nodes > 2 * MAX_LEAVES or len(bits) != -(-n_nodes // 8):
            raise ValueError(f"a stack must have 1 to {MAX_TREES} trees, up to {MAX_LEAVES} leaves, and all its nodes")
        if (feature >= n_features).any() or (len(cut) and cut.max() >= len(feature)):
            raise ValueError("a tree cuts a feature that is not there")
        inner = np.unpackbits(bits, count=n_nodes).astype(bool)
        return cls(feature, threshold, cut, right, inner, sizes)


def build(trees: list[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]]) -> TreeStack:
    """A stack from trees given as (feature, threshold, right) per node in pre-order; feature -1 marks a leaf."""
    feature = np.concatenate([tree[0] for tree in trees]).astype(np.int64)
    threshold = np.concatenate([tree[1] for tree in trees])
    right = np.concatenate([tree[2] for tree in trees])
    inner = feature >= 0
    steps = right[inner]
    # Rows are float32: a threshold rounded down separates the same rows.
    rounded = threshold[inner].astype(np.float32)
    rounded = np.where(rounded > threshold[inner], np.nextafter(rounded, np.float32(-np.inf)), rounded)
    pairs = np.empty(int(inner.sum()), dtype=[("feature", np.int64), ("threshold", np.float32)])
    pairs["feature"], pairs["threshold"] = feature[inner], rounded
    cuts, cut = np.unique(pairs, return_inverse=True)
    small = np.uint16 if len(cuts) <= 2**16 else np.uint32
    return TreeStack(
        cuts["feature"].astype(np.uint16),
        np.ascontiguousarray(cuts["threshold"]),
        cut.astype(small),
        steps.astype(np.uint8 if steps.max(initial=0) < 256 else np.uint16),
        inner,
        np.asarray([len(tree[0]) for tree in trees], dtype=np.uint16),
    )
