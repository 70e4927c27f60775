"""What a call returns: fresh arrays, or the caller's own storage filled."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare.arrays import Array, dtype_of_array
from ..errors import BindingError
from .signature import Leaf, Signature

Outputs = dict[str, Any]
"""Arrays by name; sequences are lists, optionals the value or None, maps dicts."""


def check_out(signature: Signature, out: Mapping[str, Array] | None) -> None:
    """Refuse names and dtypes in `out` that no output has."""
    leaves = {leaf.name: leaf for leaf in signature.outputs}
    for name, array in (out or {}).items():
        if (leaf := leaves.get(name)) is None:
            raise BindingError(f"out: there is no output '{name}'",
                               hint=f"the outputs are {', '.join(leaves)}")
        if not isinstance(array, np.ndarray):
            raise BindingError(f"out: '{name}' needs a NumPy array, got {type(array).__name__}")
        if any(array is other for n, other in (out or {}).items() if n != name):
            raise BindingError(f"out: '{name}' and another output share one array")
        if dtype_of_array(array) is not leaf.dtype or not array.flags.writeable:
            raise BindingError(f"out: '{name}' needs a writeable array of {leaf.dtype}, got "
                               f"{array.dtype}")


def deliver(signature: Signature, found: Sequence[Array], inputs: Sequence[Array],
            out: Mapping[str, Array] | None, kept: Collection[int] = ()) -> Outputs:
    """Results as fresh arrays, or copied into the storage that the caller supplied.

    Outputs whose numbers are `kept` are no results.
    """
    taken = {id(a) for a in inputs}
    result: Outputs = {}
    for i, (leaf, array) in enumerate(zip(signature.outputs, found, strict=True)):
        if i in kept:
            continue
        if out is not None and leaf.name in out:
            result[leaf.name] = _fill(leaf, out[leaf.name], array)
        elif leaf.dtype.sort == "host":
            result[leaf.name] = plain(array)
        else:
            result[leaf.name] = fresh(array, taken)
    return result


def fresh(array: Array, taken: set[int]) -> Array:
    """The array itself if nobody else has its memory, else a copy; it is `taken` then."""
    owned = array.base is None and array.flags.owndata and array.flags.writeable and (
        array.flags.c_contiguous)
    if not owned or id(array) in taken or array.dtype == object:
        array = np.array(array, order="C", copy=True)
    taken.add(id(array))
    return array


def owned(array: Array) -> Array:
    """A copy that nobody else can change."""
    return copy.deepcopy(array) if array.dtype == object else np.array(array, order="C", copy=True)


def plain(value: object) -> Any:  # noqa: ANN401 - whatever a host value holds
    """A host value as its user knows it: lists, dicts and None, with fresh arrays inside."""
    if isinstance(value, np.ndarray):
        host = value.dtype == object and not value.ndim and not isinstance(value.item(), str)
        return plain(value.item()) if host else np.array(value, order="C", copy=True)
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) if isinstance(v, np.ndarray) else v for k, v in value.items()}
    return value


def _fill(leaf: Leaf, target: Array, array: Array) -> Array:
    if target.shape != array.shape:
        raise BindingError(f"out: '{leaf.name}' has shape {list(target.shape)}, the result is "
                           f"{list(array.shape)}")
    np.copyto(target, array)
    return target
