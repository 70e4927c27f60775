"""What a value is when the graph itself says it: a number everywhere, or an array."""

from __future__ import annotations

import math

import numpy as np

from ..declare.arrays import Array, array_of, np_dtype
from ..declare.room import LARGEST
from ..ir.graph import Blob, Value


def number_of(value: Value) -> complex | None:
    """The number that every element of `value` is, from a `full` or a one-element `constant`."""
    node = value.producer
    if node is None:
        return None
    found = node.attrs.get("value")
    if node.op == "full":
        return found if isinstance(found, bool | int | float | complex) else None
    if node.op == "constant" and isinstance(found, Blob) and value.dtype.sort != "string" and (
            all(s == 1 for s in found.shape)):
        return array_of(found).item()
    return None


def array_value(value: Value) -> Array | None:
    """The elements of a `constant`, or of a `full` whose shape is known; a read-only array."""
    node = value.producer
    if node is None:
        return None
    if node.op == "constant":
        found = node.attrs["value"]
        return array_of(found) if isinstance(found, Blob) else None
    if node.op != "full" or (number := number_of(value)) is None:
        return None
    shape = [s for s in value.shape if isinstance(s, int)]
    if len(shape) != len(value.shape) or math.prod(filter(None, shape)) > LARGEST:
        return None
    return np.broadcast_to(np.asarray(number).astype(np_dtype(value.dtype)), shape)
