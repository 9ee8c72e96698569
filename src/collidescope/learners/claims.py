"""What a file claims of a fold, checked before memory is taken for it and before it predicts.

A file may come from anyone and its checksum can be made to fit, so sizes are compared with the arrays that came along.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope.learners.linear import n_regression_features
from collidescope.learners.trees import MAX_TREES

#: Features or channels that a file may claim for a module of one's own whatever its size; more than it has weights is
#: a lie otherwise.
MOST_CHANNELS = 4096
#: Weights of standardised inputs are far below this; larger ones overflow float32 a few layers on.
LARGEST_WEIGHT = 1e9

Arrays = Mapping[str, npt.NDArray[Any]]


def check_claims(arrays: Arrays, description: Mapping[str, Any]) -> None:
    """Refuse a fold that does not fit its arrays."""
    shape, members = description["input_shape"], description["members"]
    d, K = int(shape[0]), int(description["n_classes"])
    if min(*map(int, shape), K, len(members)) < 1:
        raise ValueError(f"a fold needs members, features and classes, got {len(members)}, {shape} and {K}")
    if description["model"] == "factorised":
        priors = check.check_finite(arrays["priors"], "priors of a fold", ndim=1)
        if priors.shape != (K,) or not (priors > 0).all() or arrays["priors"].dtype != np.float64:
            raise ValueError(f"priors of a fold must be {K} positive numbers, got shape {priors.shape}")
    else:
        check.check_finite(description["shift"], "shift", ndim=0)
    weights = check.check_finite([member["weight"] for member in members], "weights of members", ndim=1)
    check.check_non_negative(weights, "weights of members", "the file was edited")
    check.check_finite([float(member["val_loss"]) for member in members], "val_loss", ndim=1)
    if not weights.any():
        raise ValueError("weights of members must not all be zero")
    for i, member in enumerate(members):
        _check_member(i, member, {name: a for name, a in arrays.items() if name.startswith(f"{i}.")}, d, K)
        rotation = arrays.get(f"rotation.{i}")
        if rotation is not None:
            check.check_finite(rotation, "rotation", ndim=3)
            if rotation.dtype != np.float64 or rotation.shape[1:] != (K, K):
                raise ValueError(f"rotation of member {i} must be float64 of {K}×{K}, got shape {rotation.shape}")


def _check_member(i: int, member: Mapping[str, Any], own: Arrays, d: int, K: int) -> None:
    """Refuse a network larger than the weights that came with it, or weights that are no numbers."""
    kind, hidden = member["kind"], [int(size) for size in member.get("hidden_layer_sizes", ())]
    if kind == "regression":
        weight, wanted = own[f"{i}.weight"], n_regression_features(d, bool(member["quadratic"])) * K
        present = weight.size // max(weight.shape[0], 1)
    elif kind in ("network", "pairwise"):
        sizes = [d, *hidden, K] if kind == "network" else [2 * d, *hidden, 1]
        wanted = sum((a + 1) * b for a, b in pairwise(sizes))
        present = sum(array.size for array in own.values())
        present //= max(own[f"{i}.weight"].shape[0], 1) if kind == "network" else 1
    elif kind == "trees":  # a row is scored with all of them at once; where they point is checked later
        if max(len(array) for name, array in own.items() if name.startswith(f"{i}.roots")) > MAX_TREES:
            raise ValueError(f"member {member.get('name')!r} must not have more than {MAX_TREES} trees a forest")
        wanted = present = 0
        own = {name: array for name, array in own.items() if name.startswith((f"{i}.value", f"{i}.base"))}
    else:  # a module of one's own: its factory is called with d, and its buffers may hold anything
        if d > max(sum(array.size for array in own.values()), MOST_CHANNELS):
            raise ValueError(f"member {member.get('name')!r} cannot have {d} features with the weights in the file")
        return
    if wanted != present:
        raise ValueError(f"member {member.get('name')!r} needs {wanted} weights, the file holds {present}")
    for name, array in own.items():
        if not bool((np.abs(array) <= LARGEST_WEIGHT).all()):  # nan is not
            raise ValueError(f"{name} must be finite, and at most {LARGEST_WEIGHT:g}")
