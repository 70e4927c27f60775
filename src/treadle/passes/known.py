"""Record a value whose elements are known: `full`, `constant` or `sizes`."""

from __future__ import annotations

from typing import cast

import numpy as np

from ..declare.arrays import Array, blob, np_dtype
from ..declare.opdef import cast_value
from ..ir.dims import Dim
from ..ir.graph import Attrs, Node, Value, current
from ..ir.types import I64, DType, TensorType
from ..ops.library import REGISTRY

LEAVES = frozenset({"constant", "full", "sizes"})
"""The forms in which a known value stays in the graph."""


def storable(dtype: DType) -> bool:
    """Whether a blob can hold elements of this type."""
    return dtype.sort not in ("block", "host")


def number_at(array: Array, dtype: DType) -> complex:
    """The first element as Python's own number."""
    first: object = array.reshape(-1)[0]
    if dtype.sort == "bool":
        return bool(first)
    if dtype.sort in ("int", "uint"):
        return int(cast(int, first))
    return complex(cast(complex, first)) if dtype.sort == "complex" else float(cast(float, first))


def uniform(array: Array, dtype: DType) -> complex | None:
    """The number that every element of `array` is, bit for bit; None when they differ."""
    if not array.size or not storable(dtype) or dtype.sort == "string":
        return None
    flat = array.reshape(-1)
    if flat[0].tobytes() != flat[-1].tobytes():
        return None
    raw = np.ascontiguousarray(flat).view(np.uint8).reshape(array.size, -1)
    if not (raw == raw[0]).all():
        return None
    number = number_at(array, dtype)
    back = np.asarray(number).astype(np_dtype(dtype))
    return number if back.tobytes() == raw[0].tobytes() else None


def _emit(op: str, attrs: Attrs, type_: TensorType) -> Value:
    return current().emit(Node(op, (), attrs, loc=current().loc or ""), (type_,))[0]


def record_number(number: complex | Dim, type_: TensorType) -> Value:
    """One number in every element."""
    attrs = {"value": number, "shape": type_.shape, "dtype": type_.dtype}
    return _emit("full", attrs, type_)


def record_array(array: Array, dtype: DType) -> Value:
    """An array, as `full` when its elements are equal."""
    type_ = TensorType(array.shape, dtype)
    if (number := uniform(array, dtype)) is not None:
        return record_number(number, type_)
    return _emit("constant", {"value": blob(array)}, type_)


def record_content(array: Array, dtype: DType) -> Value:
    """Integers and sizes, as `declare.content` gives them."""
    items = cast("list[int | Dim]", array.reshape(-1).tolist())
    if array.dtype != object or not any([isinstance(x, Dim) for x in items]):
        return record_array(array.astype(np_dtype(dtype)), dtype)
    if array.ndim == 0:
        return record_number(items[0], TensorType((), dtype))
    value = _emit("sizes", {"sizes": tuple(items)}, TensorType((len(items),), I64))
    if array.ndim > 1:
        value = cast(Value, REGISTRY["reshape"](value, shape=array.shape))
    return cast_value(value, dtype)
