"""What a call returns: fresh arrays, or the caller's own storage filled."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare.arrays import Array, dtype_of_array
from ..errors import BindingError
from .signature import Leaf, Signature

Outputs = dict[str, Any]
"""Arrays by name; sequences are lists, optionals the value or None, maps dicts."""


def check_out(signature: Signature, out: Mapping[str, Array] | None) -> None:
    """Refuse names and dtypes in `out` that no output has, and arrays that share elements."""
    if out is None:
        return
    if not isinstance(out, Mapping):
        raise BindingError(f"out: names of outputs with arrays are needed, got "
                           f"{type(out).__name__}", hint="out={name: array}")
    leaves = {leaf.name: leaf for leaf in signature.outputs}
    for name, array in out.items():
        if (leaf := leaves.get(name)) is None:
            raise BindingError(f"out: there is no output '{name}'",
                               hint=f"the outputs are {', '.join(leaves)}")
        _check_target(leaf, array)
    for (name, array), (other, second) in itertools.combinations(out.items(), 2):
        if _overlap(array, second):
            raise BindingError(f"out: '{name}' and '{other}' share memory",
                               hint="give each output an array of its own")


def _check_target(leaf: Leaf, array: object) -> None:
    if not isinstance(array, np.ndarray):
        raise BindingError(f"out: '{leaf.name}' needs a NumPy array, got {type(array).__name__}")
    if dtype_of_array(array) is not leaf.dtype:
        raise BindingError(f"out: '{leaf.name}' needs an array of {leaf.dtype}, got {array.dtype}")
    if not array.flags.writeable:
        raise BindingError(f"out: '{leaf.name}' needs an array that can be written, this one is "
                           "read-only", hint="array.copy() can be written")
    if not array.size:
        return
    extent = array.itemsize
    for step, n in sorted([(abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)
                           if n > 1]):
        if step < extent:
            raise BindingError(f"out: elements of the array for '{leaf.name}' share memory",
                               hint="array.copy() has memory for each")
        extent += (n - 1) * step


def _overlap(a: Array, b: Array) -> bool:
    """Whether two arrays have an element's memory in common; True if that is hard to tell."""
    try:
        return np.may_share_memory(a, b) and np.shares_memory(
            a, b, max_work=10_000)  # type: ignore[arg-type] - the stub knows two of all numbers
    except np.exceptions.TooHardError:
        return True


def own(signature: Signature, found: Sequence[Array], taken: set[int],
        out: Mapping[str, Array] | None, changing: Sequence[Array], kept: Collection[int] = ()
        ) -> Outputs:
    """Results that nothing else has a hold on: not the arrays in `taken`, which grows.

    What `out` will take need only be apart from the arrays in it and those in `changing`. Outputs
    whose numbers are `kept` are no results.
    """
    targets = {**out} if out else {}
    written = [*targets.values(), *changing]
    result: Outputs = {}
    for i, (leaf, array) in enumerate(zip(signature.outputs, found, strict=True)):
        if i in kept:
            continue
        if (target := targets.get(leaf.name)) is not None:
            if target.shape != array.shape:
                raise BindingError(f"out: '{leaf.name}' has shape {list(target.shape)}, the result "
                                   f"is {list(array.shape)}")
            result[leaf.name] = apart(array, written)
        elif leaf.dtype.sort == "host":
            result[leaf.name] = plain(array)
        else:
            result[leaf.name] = fresh(array, taken)
    return result


def fill(result: Outputs, out: Mapping[str, Array] | None) -> Outputs:
    """The results, those with storage of the caller copied there."""
    for name, target in (out or {}).items():
        np.copyto(target, result[name])
        result[name] = target
    return result


def apart(array: Array, others: Iterable[Array]) -> Array:
    """The array, or a copy where it may share memory with others."""
    return array.copy() if any(np.may_share_memory(array, a) for a in others) else array


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
