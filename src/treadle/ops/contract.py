"""Contractions: matrix products, their general and grouped forms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..declare.arrays import Array, dtype_of_array, ints, np_dtype, widen
from ..declare.kinds import composite, linear, structured
from ..declare.opdef import cast_value, wide
from ..declare.schema import Tensor, arr, known, sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import I32, Shape, TensorType, axis_of, broadcast, shape_text
from .movement import reshape, transpose
from .reduce import sum_to

NUMERIC = ("int", "uint", "float", "complex")


def numeric_pair(a: TensorType, b: TensorType) -> None:
    """Both operands hold numbers of one dtype, or an error says what to cast."""
    for t in (a, b):
        if t.dtype.sort not in NUMERIC or t.dtype.sort != "float" and t.dtype.bits < 8:
            raise OperatorError(f"{t.dtype} tensors have no products",
                                hint="dequantize or cast the operand")
    if a.dtype is not b.dtype:
        raise OperatorError(f"operands have dtypes {a.dtype} and {b.dtype}",
                            hint="cast one of them; integer pairs have matmul_integer")


def _product(a: Array, b: Array) -> Array:
    """np.matmul; halves and float8 accumulate in f32 and round once."""
    if not dtype_of_array(a).narrow:
        return np.asarray(np.matmul(a, b))
    return np.asarray(np.matmul(widen(a), widen(b))).astype(a.dtype)


def product_shape(a: Shape, b: Shape) -> Shape:
    """The shape of a matrix product; a rank-1 `a` is a row, a rank-1 `b` a column."""
    if len(a) == 0 or len(b) == 0:
        raise OperatorError("a scalar has no axis to contract", hint="multiply with mul")
    inner = b[-2] if len(b) > 1 else b[0]
    if a[-1] != inner:
        raise OperatorError(f"inner sizes differ: {a[-1]} against {inner}",
                            hint="the last axis of a meets the second to last of b")
    columns = b[-1:] if len(b) > 1 else ()
    return (*broadcast([a[:-2], b[:-2]]), *a[-2:-1], *columns)


def _matmul_types(a: TensorType, b: TensorType) -> TensorType:
    numeric_pair(a, b)
    return a.with_(shape=product_shape(a.shape, b.shape))


def swap_last(x: Value) -> Value:
    """`x` with its last two axes exchanged."""
    n = x.type.rank
    return transpose(x, perm=(*range(n - 2), n - 1, n - 2))


def _matmul_back(g: Value, a: Value, b: Value) -> tuple[Value, Value]:
    left = reshape(a, shape=(1, *a.shape)) if a.type.rank == 1 else a
    right = reshape(b, shape=(*b.shape, 1)) if b.type.rank == 1 else b
    full = product_shape(left.shape, right.shape)
    out = g if g.shape == full else reshape(g, shape=full)
    da = sum_to(matmul(out, swap_last(right)), left.shape)
    db = sum_to(matmul(swap_last(left), out), right.shape)
    return (da if left is a else reshape(da, shape=a.shape),
            db if right is b else reshape(db, shape=b.shape))


@linear(types=_matmul_types, transpose=_matmul_back, samples=[
    sample("f32[4,8]", "f32[8,3]", expect="tests.oracles.contract:matmul"),
    sample("f32[2,1,4,8]", "f32[3,8,3]", expect="tests.oracles.contract:matmul"),
    sample("f32[8]", "f32[2,8,3]", expect="tests.oracles.contract:matmul"),
    sample("f32[2,4,8]", "f32[8]", expect="tests.oracles.contract:matmul"),
    sample("f32[8]", "f32[8]", expect="tests.oracles.contract:matmul"),
    sample("f16[4,64]", "f16[64,2]", low=20, high=30),
    sample("bf16[4,64]", "bf16[64,2]"), sample("i32[2,3]", "i32[3,2]"),
    sample("f32[3,0]", "f32[0,2]"), sample("f64[3,2]", "f64[2,2]"),
    known(arr([[1.0] * 4096], "f16"), arr([[0.5]] * 4096, "f16"),
          expect=[arr([[2048.0]], "f16")])])
def matmul(a: Array, b: Array) -> Array:
    """Matrix product of the last two axes; leading axes broadcast.

    A rank-1 `a` is a row and a rank-1 `b` a column, whose unit axis the result drops
    (numpy.matmul, ONNX MatMul). Halves accumulate in f32; integers wrap.
    """
    return _product(a, b)


def _dot_general_types(a: TensorType, b: TensorType, *, contract_a: tuple[int, ...],
                       contract_b: tuple[int, ...], batch_a: tuple[int, ...],
                       batch_b: tuple[int, ...]) -> TensorType:
    numeric_pair(a, b)
    for what, left, right in (("contracting", contract_a, contract_b), ("batch", batch_a, batch_b)):
        if len(left) != len(right):
            raise OperatorError(f"{len(left)} {what} axes of a meet {len(right)} of b")
        for i, j in zip(left, right, strict=True):
            m, n = a.shape[axis_of(i, a.rank)], b.shape[axis_of(j, b.rank)]
            if m != n:
                raise OperatorError(f"{what} axes {i} of a and {j} of b have sizes {m} and {n}")
    free_a = _free(a.rank, (*contract_a, *batch_a))
    free_b = _free(b.rank, (*contract_b, *batch_b))
    return a.with_(shape=(*(a.shape[axis_of(i, a.rank)] for i in batch_a),
                          *(a.shape[i] for i in free_a), *(b.shape[i] for i in free_b)))


def _free(rank: int, used: Sequence[int]) -> tuple[int, ...]:
    at = [axis_of(i, rank) for i in used]
    if len(set(at)) != len(at):
        raise OperatorError(f"the axes {tuple(used)} name one axis twice")
    return tuple([i for i in range(rank) if i not in at])


def _one_side(g: Value, other: Value, rank: int, mine: tuple[Sequence[int], Sequence[int]],
              theirs: tuple[Sequence[int], Sequence[int]], contracted: Sequence[int]) -> Value:
    """The cotangent of one operand: `g` against the other's free axes, axes put back in place."""
    contract, batch = ([axis_of(i, rank) for i in s] for s in mine)
    n = other.type.rank
    contract_o, batch_o = ([axis_of(i, n) for i in s] for s in theirs)
    d = dot_general(g, other, contract_a=tuple(contracted), batch_a=tuple(range(len(batch))),
                    contract_b=_free(n, (*contract_o, *batch_o)), batch_b=tuple(batch_o))
    by_other = sorted(range(len(contract)), key=lambda j: contract_o[j])
    made = [*batch, *_free(rank, (*contract, *batch)), *(contract[j] for j in by_other)]
    return transpose(d, perm=tuple([made.index(i) for i in range(rank)]))


def _dot_general_back(g: Value, a: Value, b: Value, *, contract_a: tuple[int, ...],
                      contract_b: tuple[int, ...], batch_a: tuple[int, ...],
                      batch_b: tuple[int, ...]) -> tuple[Value, Value]:
    n = len(batch_a)
    left = n + len(_free(a.type.rank, (*contract_a, *batch_a)))
    mine, theirs = (contract_a, batch_a), (contract_b, batch_b)
    return (_one_side(g, b, a.type.rank, mine, theirs, range(left, g.type.rank)),
            _one_side(g, a, b.type.rank, theirs, mine, range(n, left)))


@linear(types=_dot_general_types, transpose=_dot_general_back, samples=[
    sample("f32[2,3,4]", "f32[4,5,2]", contract_a=(2,), contract_b=(0,), batch_a=(0,),
           batch_b=(2,), expect="tests.oracles.contract:dot_general"),
    sample("f32[2,3,4,5]", "f32[5,6,3]", contract_a=(1, 3), contract_b=(2, 0), batch_a=(),
           batch_b=(), expect="tests.oracles.contract:dot_general"),
    sample("f32[2,3]", "f32[2,3]", contract_a=(), contract_b=(), batch_a=(0, 1),
           batch_b=(-2, -1), expect="tests.oracles.contract:dot_general"),
    sample("bf16[4,8]", "bf16[3,8]", contract_a=(1,), contract_b=(1,))])
def dot_general(a: Array, b: Array, *, contract_a: tuple[int, ...], contract_b: tuple[int, ...],
                batch_a: tuple[int, ...] = (), batch_b: tuple[int, ...] = ()) -> Array:
    """Sum products over the contracting axes; batch axes pair up.

    The result has the batch axes, then the free axes of a, then those of b, each in order
    (lax.dot_general). Paired sizes must be equal.
    """
    free_a = _free(a.ndim, (*contract_a, *batch_a))
    free_b = _free(b.ndim, (*contract_b, *batch_b))
    batch = tuple([a.shape[i] for i in batch_a])
    rows, columns = [a.shape[i] for i in free_a], [b.shape[i] for i in free_b]
    inner = int(np.prod([a.shape[i] for i in contract_a], dtype=np.int64))
    m, n = (int(np.prod(s, dtype=np.int64)) for s in (rows, columns))
    left = a.transpose(*batch_a, *free_a, *contract_a).reshape(*batch, m, inner)
    right = b.transpose(*batch_b, *contract_b, *free_b).reshape(*batch, inner, n)
    return _product(left, right).reshape((*batch, *rows, *columns))


def _grouped_types(x: TensorType, w: TensorType, expert: TensorType) -> TensorType:
    numeric_pair(x, w)
    if (x.rank, w.rank, expert.rank) != (2, 3, 1):
        raise OperatorError("the operands are x[M,K], w[E,K,N] and expert[M]")
    if x.shape[1] != w.shape[1]:
        raise OperatorError(f"inner sizes differ: {x.shape[1]} against {w.shape[1]}")
    _index_vector(expert, x.shape[0])
    return x.with_(shape=(x.shape[0], w.shape[2]))


def _index_vector(expert: TensorType, rows: Size) -> None:
    if expert.dtype.sort not in ("int", "uint"):
        raise OperatorError(f"expert holds integers, not {expert.dtype}")
    if expert.shape != (rows,):
        raise OperatorError(f"expert has shape {shape_text(expert.shape)}, one index for each of "
                            f"{rows} rows was expected")


def _segments(expert: Array, experts: int) -> list[tuple[int, Array]]:
    """The rows of each expert that has some."""
    bad = (expert < 0) | (expert >= experts)
    if bad.any():
        at = int(np.argmax(bad))
        raise OperatorError(f"expert[{at}] = {expert[at]} is outside 0..{experts - 1}")
    order = np.argsort(expert, kind="stable")
    ids, starts = np.unique(expert[order], return_index=True)
    return [(int(e), rows) for e, rows in zip(ids, np.split(order, starts[1:]), strict=False)]


def _grouped_back(g: Value, x: Value, w: Value, expert: Value) -> tuple[Value | None, ...]:
    return (grouped_matmul(g, swap_last(w), expert),
            grouped_outer(x, g, expert, experts=w.shape[0]), None)


_EXPERTS = arr([2, 0, 2, 2], "i32")


@linear(types=_grouped_types, transpose=_grouped_back, samples=[
    known([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [0.0, 1.0]],
          [[[1.0, 0.0], [0.0, 1.0]], [[9.0, 9.0], [9.0, 9.0]], [[1.0, 2.0], [3.0, 4.0]]],
          _EXPERTS, expect=[[[7.0, 10.0], [3.0, 4.0], [23.0, 34.0], [3.0, 4.0]]]),
    sample("f16[4,8]", "f16[2,8,3]", "i64[4]", low=0, high=1),
    sample("f32[0,8]", "f32[2,8,3]", "i64[0]")])
def grouped_matmul(x: Array, w: Array, expert: Array) -> Array:
    """Row m of x[M,K] times the matrix w[expert[m]] of w[E,K,N] (mixture of experts).

    An expert outside 0..E-1 is an error.
    """
    out = np.zeros((x.shape[0], w.shape[2]), x.dtype)
    for e, rows in _segments(expert, w.shape[0]):
        out[rows] = _product(x[rows], w[e])
    return out


def _outer_types(x: TensorType, y: TensorType, expert: TensorType, *, experts: Size
                 ) -> TensorType:
    numeric_pair(x, y)
    if (x.rank, y.rank) != (2, 2) or x.shape[0] != y.shape[0]:
        raise OperatorError("the operands are x[M,K], y[M,N] and expert[M]")
    _index_vector(expert, x.shape[0])
    return x.with_(shape=(experts, x.shape[1], y.shape[1]))


def _outer_back(g: Value, x: Value, y: Value, expert: Value, *, experts: Size
                ) -> tuple[Value | None, ...]:
    return grouped_matmul(y, swap_last(g), expert), grouped_matmul(x, g, expert), None


@linear(types=_outer_types, transpose=_outer_back, samples=[
    known([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [0.0, 1.0]], [[1.0], [2.0], [3.0], [4.0]],
          _EXPERTS, experts=3, expect=[[[[6.0], [8.0]], [[0.0], [0.0]], [[16.0], [24.0]]]]),
    sample("f16[4,8]", "f16[4,3]", "i64[4]", experts=2, low=0, high=1)])
def grouped_outer(x: Array, y: Array, expert: Array, *, experts: Size) -> Array:
    """The sums of outer products x[m] y[m] over the rows of each expert: [E,K,N].

    The transpose of grouped_matmul with respect to w; an expert without rows gets zeros.
    """
    (e,) = ints((experts,))
    out = np.zeros((e, x.shape[1], y.shape[1]), x.dtype)
    for i, rows in _segments(expert, e):
        out[i] = _product(x[rows].T, y[rows])
    return out


@composite(samples=[
    known([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0], [1.0]], [[2.0, 3.0]], scale=0.5,
          expect=[[[4.0, 6.5]]]),
    sample("f16[3,8]", "f16[8,4]", "f16[8,2]", "f16[2,4]", scale=0.5, low=8, high=16),
    sample("f32[2,3,8]", "f32[8,4]", "f32[8,2]", "f32[2,4]")])
def lora_matmul(x: Value, w: Value, a: Value, b: Value, *, scale: float = 1.0) -> Value:
    """A product with a low-rank correction of the weight: x w + scale (x a) b (LoRA, 2106.09685).

    x[..,K], w[K,N], a[K,R], b[R,N]. Halves are summed in f32.
    """
    x32 = wide(x)
    low = matmul(matmul(x32, wide(a)), wide(b))
    return cast_value(matmul(x32, wide(w)) + low * scale, x.dtype)


def _zero_shape(zero: TensorType, of: TensorType, axis: int, name: str) -> None:
    """A zero point is one number, one per row or column, or that with the operand's rank."""
    if zero.dtype is not of.dtype:
        raise OperatorError(f"{name} is {zero.dtype}, its operand {of.dtype}")
    if zero.shape in ((), (1,)) or of.rank >= 2 and zero.shape == (of.shape[axis],):
        return
    want = [*of.shape]
    want[-1 if axis == -2 else -2] = 1
    if of.rank < 2 or zero.shape != tuple(want):
        raise OperatorError(f"{name} of shape {shape_text(zero.shape)} does not fit {of}",
                            hint="give a scalar, one number a row of a, or one a column of b")


def _integer_types(a: TensorType, b: TensorType, *, a_zero: TensorType | None = None,
                   b_zero: TensorType | None = None) -> TensorType:
    for t in (a, b):
        if t.dtype.sort not in ("int", "uint") or t.dtype.bits != 8:
            raise OperatorError(f"the operands are i8 or u8, not {t.dtype}")
    for zero, of, axis, name in ((a_zero, a, -2, "a_zero"), (b_zero, b, -1, "b_zero")):
        if zero is not None:
            _zero_shape(zero, of, axis, name)
    return TensorType(product_shape(a.shape, b.shape), I32)


def _centred(x: Array, zero: Tensor | None, row: bool) -> Array:
    real = x.astype(np.float64)
    if zero is None:
        return real
    held: Array = np.asarray(zero)
    by_row = row and held.ndim == 1 and held.shape != (1,)
    return real - (held[:, None] if by_row else held)


@structured(types=_integer_types, samples=[
    known(arr([[11, 7, 3], [10, 6, 2], [9, 5, 1], [8, 4, 0]], "u8"),
          arr([[1, 4], [2, 5], [3, 6]], "u8"), a_zero=arr(12, "u8"), b_zero=arr(0, "u8"),
          expect=[arr([[-38, -83], [-44, -98], [-50, -113], [-56, -128]], "i32")]),
    sample("u8[2,4,64]", "i8[64,3]", a_zero="u8[]", b_zero="i8[3]", low=0, high=100,
           expect="tests.oracles.contract:matmul_integer"),
    sample("i8[4,64]", "i8[64,3]", a_zero="i8[4]", low=-100, high=100,
           expect="tests.oracles.contract:matmul_integer_exact")])
def matmul_integer(a: Array, b: Array, *, a_zero: Tensor | None = None,
                   b_zero: Tensor | None = None) -> Array:
    """The product (a - a_zero) (b - b_zero) of i8 or u8 matrices, in i32 (ONNX MatMulInteger).

    A zero point is a scalar, one per row of a ([M]) or column of b ([N]), or has its operand's
    rank. The sum wraps beyond 32 bits.
    """
    # f64 holds every such sum exactly and has a BLAS; integer np.matmul has none
    exact = np.matmul(_centred(a, a_zero, True), _centred(b, b_zero, False))
    return np.asarray(exact).astype(np.int64).astype(np_dtype(I32))


__all__ = ["dot_general", "grouped_matmul", "grouped_outer", "lora_matmul", "matmul",
           "matmul_integer", "numeric_pair", "product_shape", "swap_last"]
