"""NumPy's side of the element types: dtypes, blobs and encoded arrays."""

from __future__ import annotations

import json
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..errors import OperatorError
from ..ir.graph import Blob
from ..ir.types import DTYPES, F32, STRING, DType, Shape, TensorType, host_dtype
from .hosts import Elem, join_elems

Array: TypeAlias = npt.NDArray[Any]  # element types are data here: no static dtype exists


class Encoded:
    """Packed bytes of a block encoding with their logical shape; the last axis is blocked."""

    __slots__ = ("data", "dtype", "shape")

    def __init__(self, dtype: DType, shape: tuple[int, ...], data: npt.NDArray[np.uint8]) -> None:
        if not shape or shape[-1] % dtype.block:
            raise OperatorError(f"{dtype} needs a last axis in blocks of {dtype.block}, "
                                f"got {list(shape)}")
        want = int(np.prod(shape, dtype=np.int64)) // dtype.block * dtype.bits // 8
        if data.nbytes != want:
            raise OperatorError(f"{dtype}{list(shape)} takes {want} bytes, got {data.nbytes}")
        self.dtype, self.shape, self.data = dtype, shape, data


def np_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy's dtype for ours."""
    if not dtype.numpy:
        raise OperatorError(f"{dtype} has no NumPy dtype", hint="dequantize first")
    return _NP[dtype.name] if dtype.name in _NP else np.dtype(object)


_NP: dict[str, np.dtype[Any]] = {
    d.name: np.dtype(getattr(ml_dtypes, d.numpy, None) or d.numpy)
    for d in DTYPES.values() if d.numpy}
_BY_NUMPY: dict[np.dtype[Any], DType] = {
    np_dtype(d): d for d in DTYPES.values() if d.numpy and d is not STRING}


def dtype_of_array(array: Array) -> DType:
    """Our dtype for an array's; Python strings are `string`, other objects host values."""
    if (found := _BY_NUMPY.get(array.dtype)) is not None:
        return found
    if array.dtype.kind in "US" or (array.dtype.kind == "O" and _holds_strings(array)):
        return STRING
    if array.dtype.kind == "O" and not array.ndim:
        return _host_dtype(array.item())
    native = array.dtype.newbyteorder("=")
    if native in _BY_NUMPY:
        return _BY_NUMPY[native]
    raise OperatorError(f"arrays of {array.dtype} are not supported",
                        hint=f"use one of {', '.join(d.name for d in _BY_NUMPY.values())}")


def _host_dtype(value: object) -> DType:
    if isinstance(value, dict):
        return _map_dtype(cast("dict[object, object]", value))
    if value is None or not isinstance(value, list):
        inner = None if value is None else type_of(cast(Array, value))
        return Elem(inner.dtype if inner else None, inner, inner is None).host("opt").dtype
    elem = Elem(None, empty=True)
    for item in cast("list[Array]", value):
        inner = type_of(item)
        elem = join_elems(elem, Elem(inner.dtype, inner))
    return elem.host("seq").dtype


def _map_dtype(value: dict[object, object]) -> DType:
    """Maps go by their first entry: Python numbers count as i64 and f32."""
    for key, item in value.items():
        kinds = ["string" if isinstance(x, str | bytes) else _BY_NUMPY.get(
            getattr(x, "dtype", np.dtype(np.float32 if isinstance(x, float) else np.int64)))
            for x in (key, item)]
        return host_dtype("map", text=f"{kinds[0]},{kinds[1]}[]")
    return host_dtype("map")


def _holds_strings(array: Array) -> bool:
    return not array.size or all(isinstance(x, str | bytes) for x in array.flat)


def type_of(array: Array | Encoded) -> TensorType:
    """The tensor type of an array."""
    if isinstance(array, Encoded):
        return TensorType(array.shape, array.dtype)
    return TensorType(array.shape, dtype_of_array(array))


def compute_dtype(dtype: DType) -> DType:
    """What arithmetic on `dtype` runs in: f32 for narrower floats, 8 bits for narrower integers."""
    if not dtype.narrow:
        return dtype
    return F32 if dtype.sort == "float" else DTYPES["u8" if dtype.sort == "uint" else "i8"]


def blob(array: Array) -> Blob:
    """The contents of an array as an attribute."""
    dtype = dtype_of_array(array)
    if dtype.sort == "host":
        raise OperatorError(f"a value of {dtype} cannot be stored in a graph",
                            hint="make it an input")
    if dtype is STRING:
        text = [x.decode() if isinstance(x, bytes) else str(x) for x in array.flat]
        return Blob(dtype, array.shape, json.dumps(text).encode())
    return Blob(dtype, array.shape, np.ascontiguousarray(array, np_dtype(dtype)).tobytes())


def array_of(value: Blob) -> Array:
    """The array that a blob holds; read-only where that needs no copy."""
    if value.dtype is STRING:
        return _text_of(value)
    dtype = np_dtype(value.dtype)
    want = int(np.prod(value.shape, dtype=np.int64)) * dtype.itemsize
    if len(value.data) != want:
        raise OperatorError(f"a blob of {value.type} takes {want} bytes, got {len(value.data)}")
    return np.frombuffer(value.data, dtype).reshape(value.shape)


def _text_of(value: Blob) -> Array:
    out = np.empty(value.shape, object)
    try:
        found: object = json.loads(value.data)
    except ValueError:
        found = None
    if not isinstance(found, list) or len(cast("list[object]", found)) != out.size:
        raise OperatorError(f"a blob of {value.type} holds JSON of {out.size} strings")
    out.reshape(-1)[:] = found
    return out


def widen(x: Array) -> Array:
    """`x` in its compute dtype."""
    return x.astype(np_dtype(compute_dtype(dtype_of_array(x))), copy=False)


def host(value: object) -> Array:
    """A sequence, optional or map as the rank-0 array that carries it."""
    out = np.empty((), object)
    out[()] = value
    return out


def ints(shape: Shape) -> tuple[int, ...]:
    """A bound shape: bodies run when every size is a number."""
    return cast("tuple[int, ...]", shape)
