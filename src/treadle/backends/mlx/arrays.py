"""Arrays between NumPy and MLX."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

import mlx.core as mx
import numpy as np

from ...declare.arrays import Array, np_dtype
from ...ir.types import BF16, DTYPES, DType

_NAMES = {"bool": "bool_", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
          "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16",
          "bf16": "bfloat16", "f32": "float32", "c64": "complex64"}
HELD: dict[DType, mx.Dtype] = {DTYPES[k]: getattr(mx, v) for k, v in _NAMES.items()}
"""MLX's dtypes for ours. float64 is absent: MLX's GPUs raise on it."""
OURS: dict[mx.Dtype, DType] = {v: k for k, v in HELD.items()}
EXACT = frozenset(OURS.values())
"""Dtypes that MLX has itself."""
_SMALL = {"i4": mx.int8, "i2": mx.int8, "u4": mx.uint8, "u2": mx.uint8}
HELD.update({DTYPES[k]: v for k, v in _SMALL.items()})  # a byte an element


_BYTES = {np_dtype(DTYPES[k]): np.int8 if k[0] == "i" else np.uint8 for k in _SMALL}


def holds(dtype: DType) -> bool:
    """Whether MLX has arrays of `dtype` on every device."""
    return dtype in HELD


def to_mlx(array: Array) -> mx.array:
    """A copy of a NumPy array."""
    if array.dtype in _BYTES:
        array = array.astype(_BYTES[array.dtype])
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return mx.array(np.array(native, order="C", copy=None))


def to_numpy(x: mx.array, dtype: DType) -> Array:
    """A copy of an MLX array, evaluated, as NumPy has `dtype`."""
    if x.dtype == mx.bfloat16:
        return np.array(x.view(mx.uint16)).view(np_dtype(BF16))
    return np.array(x).astype(np_dtype(dtype), copy=False)


@lru_cache(4096)
def _constant(text: str, value: complex, dtype: DType) -> mx.array:
    out = to_mlx(np.asarray(np.asarray(value).astype(np_dtype(dtype))))
    mx.eval(out)
    return out


def constant(value: complex, dtype: DType) -> mx.array:
    """A number as a scalar; equal ones are one array, so that no trace sees a new one.

    It goes through NumPy: MLX reads no Python integer beyond 63 bits.
    """
    return _constant(repr(value), value, dtype)


def number(value: complex, dtype: mx.Dtype) -> mx.array:
    """`constant` for MLX's dtype."""
    return constant(value, OURS[dtype])


def wide(x: mx.array) -> mx.array:
    """Halves as f32, in which they are computed; all else as it is."""
    return x.astype(mx.float32) if x.dtype in (mx.float16, mx.bfloat16) else x


@lru_cache(1)
def on_gpu() -> bool:
    """Whether the default device is a GPU."""
    return mx.default_device().type == cast("mx.DeviceType", mx.gpu)
