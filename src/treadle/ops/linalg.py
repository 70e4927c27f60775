"""Dense linear algebra: solve, inverse, determinant."""

from __future__ import annotations

import numpy as np

from ..declare.arrays import Array, widen
from ..declare.kinds import structured
from ..declare.schema import arr, known
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import TensorType
from .arithmetic import mul, neg
from .contract import matmul, swap_last
from .movement import unsqueeze


def _square(a: TensorType, halves: bool = False) -> None:
    if a.dtype.sort != "float" or a.dtype.bits < (16 if halves else 32):
        raise OperatorError(f"{a.dtype} matrices are not supported", hint="cast to f32 or f64")
    if a.rank < 2 or a.shape[-1] != a.shape[-2]:
        raise OperatorError(f"{a} holds no square matrices in its last two axes")


def _vectors(a_rank: int, b_rank: int) -> bool:
    return b_rank == a_rank - 1


def _solve_types(a: TensorType, b: TensorType) -> TensorType:
    _square(a)
    if a.dtype is not b.dtype:
        raise OperatorError(f"operands have dtypes {a.dtype} and {b.dtype}", hint="cast one")
    rows = b.shape[:a.rank - 1]
    if b.rank not in (a.rank - 1, a.rank) or rows != a.shape[:-1]:
        raise OperatorError(f"{b} is no right-hand side for {a}",
                            hint="A[..,n,n] takes b[..,n] or b[..,n,k] with equal batch axes")
    return b


def _outer(x: Value, y: Value, vectors: bool) -> Value:
    """x yT over the last axes."""
    if vectors:
        return mul(unsqueeze(x, axes=(-1,)), unsqueeze(y, axes=(-2,)))
    return matmul(x, swap_last(y))


def _solve_back(g: Value, a: Value, b: Value) -> tuple[Value, Value]:
    vectors = _vectors(a.type.rank, b.type.rank)
    db = dense_solve(swap_last(a), g)
    return neg(_outer(db, dense_solve(a, b), vectors)), db


def _each(name: str, a: Array, failure: np.linalg.LinAlgError) -> OperatorError:
    """The error for the first singular matrix of a batch."""
    flat = a.reshape(-1, *a.shape[-2:])
    for i, matrix in enumerate(flat):
        try:
            np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            at = [int(k) for k in np.unravel_index(i, a.shape[:-2])] if a.ndim > 2 else []
            where = f"the matrix of batch entry {at}" if at else "the matrix"
            return OperatorError(f"{where} is singular, so {name} has no answer")
    return OperatorError(f"{name} failed: {failure}")


@structured(types=_solve_types, vjp=_solve_back, samples=[
    known([[3.0, 1.0], [1.0, 2.0]], [9.0, 8.0], expect=[[2.0, 3.0]], rtol=1e-5),
    known([[[3.0, 1.0], [1.0, 2.0]]], [[[9.0, 3.0], [8.0, 1.0]]],
          expect=[[[[2.0, 1.0], [3.0, 0.0]]]], rtol=1e-5),
    known(arr([[[3.0, 1.0], [1.0, 2.0]], [[2.0, 0.0], [0.0, 4.0]]], "f64"),
          arr([[9.0, 8.0], [2.0, 2.0]], "f64"), expect=[arr([[2.0, 3.0], [1.0, 0.5]], "f64")])])
def dense_solve(a: Array, b: Array) -> Array:
    """The x with a x = b, for a[..,n,n] and b[..,n] or b[..,n,k] with the same batch axes.

    f32 and f64 (LAPACK gesv). A singular matrix is an error that names its batch entry.
    """
    vectors = _vectors(a.ndim, b.ndim)
    try:
        x = np.linalg.solve(a, b[..., None] if vectors else b)
    except np.linalg.LinAlgError as e:
        raise _each("dense_solve", a, e) from None
    return x[..., 0] if vectors else x


def _inverse_types(x: TensorType) -> TensorType:
    _square(x, halves=True)
    return x


def _inverse_back(g: Value, x: Value) -> Value:
    y = swap_last(inverse(x))
    return neg(matmul(matmul(y, g), y))


@structured(types=_inverse_types, vjp=_inverse_back, samples=[
    known([[4.0, 7.0], [2.0, 6.0]], expect=[[[0.6, -0.7], [-0.2, 0.4]]], rtol=1e-5),
    known(arr([[[2.0, 0.0], [0.0, 4.0]]], "f16"),
          expect=[arr([[[0.5, 0.0], [0.0, 0.25]]], "f16")])])
def inverse(x: Array) -> Array:
    """The inverse of each matrix of x[..,n,n]; a singular one is an error that names it.

    Halves compute in f32 (com.microsoft Inverse).
    """
    try:
        return np.linalg.inv(widen(x)).astype(x.dtype)
    except np.linalg.LinAlgError as e:
        raise _each("inverse", widen(x), e) from None


def _det_types(x: TensorType) -> TensorType:
    _square(x, halves=True)
    return x.with_(shape=x.shape[:-2])


def _det_back(g: Value, x: Value) -> Value:
    factor = unsqueeze(mul(g, det(x)), axes=(-2, -1))
    return mul(factor, swap_last(inverse(x)))


@structured(types=_det_types, vjp=_det_back, samples=[
    known([[0.0, 1.0], [2.0, 3.0]], expect=[-2.0], rtol=1e-5),
    known([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [2.0, 1.0]], [[1.0, 3.0], [3.0, 1.0]]],
          expect=[[-2.0, -3.0, -8.0]], rtol=1e-5)])
def det(x: Array) -> Array:
    """The determinant of each matrix of x[..,n,n] (ONNX Det).

    Its gradient, det(x) x^-T (Jacobi's formula), needs a regular matrix.
    """
    return np.asarray(np.linalg.det(widen(x))).astype(x.dtype)


__all__ = ["dense_solve", "det", "inverse"]
