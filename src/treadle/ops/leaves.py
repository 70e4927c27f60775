"""Values made from attributes alone, and the bridge between tensors and sizes."""

from __future__ import annotations

import numpy as np

from ..declare.arrays import Array, array_of, ints, np_dtype
from ..declare.kinds import leaf, structured
from ..declare.schema import known, sample
from ..errors import OperatorError
from ..ir.dims import Size, sym
from ..ir.graph import Blob
from ..ir.types import BOOL, I64, DType, Shape, TensorType


def _constant_types(*, value: Blob) -> TensorType:
    return value.type


@leaf(types=_constant_types, samples=[known(value=np.array([1.5, 2.0], "f4"), expect=[[1.5, 2.0]])])
def constant(*, value: Blob) -> Array:
    """A tensor stored in the graph."""
    return array_of(value)


def _full_types(*, value: complex | float | int | bool | Size, shape: Shape, dtype: DType
                ) -> TensorType:
    return TensorType(shape, dtype)


@leaf(types=_full_types, samples=[
    known(value=2.5, shape=(), dtype="f32", expect=[2.5]),
    known(value=7, shape=(2, 1), dtype="i64", expect=[[[7], [7]]])])
def full(*, value: complex | float | int | bool | Size, shape: tuple[Size, ...], dtype: DType
         ) -> Array:
    """One number in every element; a symbolic size as the number becomes its run-time value."""
    return np.full(ints(shape), value, np_dtype(dtype))


def _sizes_types(*, sizes: Shape) -> TensorType:
    return TensorType((len(sizes),), I64)


@leaf(types=_sizes_types, samples=[known(sizes=(3, 4), expect=[[3, 4]])])
def sizes(*, sizes: tuple[Size, ...]) -> Array:
    """The run-time values of sizes, as an i64 vector."""
    return np.asarray(sizes, np.int64)


def _shape_of_types(x: TensorType) -> TensorType:
    return TensorType((x.rank,), I64)


@structured(types=_shape_of_types, samples=[known([[1.0, 2.0, 3.0]], expect=[[1, 3]])])
def shape_of(x: Array) -> Array:
    """The sizes of the axes of x, as an i64 vector."""
    return np.asarray(x.shape, np.int64)


def _witness_types(x: TensorType, *, names: tuple[str, ...]) -> TensorType:
    if x.rank > 1 or x.dtype.sort not in ("int", "uint"):
        raise OperatorError("sizes come from an integer scalar or vector")
    length = x.shape[0] if x.rank else 1
    if length != len(names):
        raise OperatorError(f"{len(names)} names for {length} sizes")
    return TensorType(tuple(map(sym, names)), BOOL)


@structured(types=_witness_types, samples=[
    sample("i64[2]", names=("a", "b"), low=1, high=4),
    known([2, 1], names=("a", "b"), expect=[[[False], [False]]])])
def witness(x: Array, *, names: tuple[str, ...]) -> Array:
    """Let the elements of x be known as sizes: the symbols `names` are bound when it runs.

    The result is a bool tensor of that shape without storage, whose type carries the symbols.
    A negative element is an error.
    """
    shape = tuple([int(n) for n in x.reshape(-1)])
    if any(n < 0 for n in shape):
        raise OperatorError(f"the computed size {min(shape)} is negative")
    return np.broadcast_to(np.False_, shape)
