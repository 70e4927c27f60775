"""Products and look-ups of quantised weights.

A weight w with scales and zero points is (w - zero) * scale, laid out as `dequantize_linear` says.
"""

from __future__ import annotations

from ..declare.kinds import composite
from ..declare.opdef import cast_value, full_value, wide
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import I32, DType, axis_of
from .contract import grouped_matmul, matmul, swap_last
from .gather import gather
from .movement import unsqueeze
from .quantize import dequantize_affine, dequantize_linear

ORACLE = "tests.oracles.quantize"


def _integers(w: Value, rank: int) -> None:
    if w.dtype.sort not in ("int", "uint") or w.dtype.bits > 8:
        raise OperatorError(f"the weight is {w.type}, not integers of at most 8 bits",
                            hint="other weights: matmul of dequantize_linear")
    if w.type.rank != rank:
        raise OperatorError(f"the weight is {w.type}, rank {rank} was expected")


def _weight(x: Value, w: Value, scale: Value, zero: Value | None, axis: int, block_size: int,
            transposed: bool) -> Value:
    """The weight [.., K, N] in f32."""
    if x.dtype.sort != "float" or x.dtype.bits < 16:
        raise OperatorError(f"x is {x.type}, a floating tensor was expected")
    real = wide(dequantize_linear(w, scale, zero=zero, axis=axis, block_size=block_size,
                                  dtype=x.dtype))
    return swap_last(real) if transposed else real


@composite(samples=[
    known([[1.0, 2.0]], arr([[3, 1], [0, 15]], "u4"), [[0.5], [2.0]], zero=arr([[1], [8]], "u4"),
          block_size=2, expect=[[[1.0, 12.0]]]),
    sample("f32[3,64]", "u4[5,64]", "f32[5,2]", zero="u4[5,2]", block_size=32, low=1, high=15,
           expect=f"{ORACLE}:quantized_matmul"),
    sample("f32[2,1,40]", "i4[5,40]", "f32[5,2]", block_size=32, low=-1, high=1,
           expect=f"{ORACLE}:quantized_matmul"),
    sample("f32[3,64]", "i8[64,5]", "f32[5]", axis=-1, transposed=False, low=-20, high=20,
           expect=f"{ORACLE}:quantized_matmul"),
    sample("f32[1,64]", "u2[64,4]", "f32[2,4]", zero="u2[2,4]", axis=0, block_size=32,
           transposed=False, bias="f32[4]", low=0, high=3, expect=f"{ORACLE}:quantized_matmul"),
    sample("f16[1,64]", "u4[8,64]", "f16[8,2]", bias="f16[8]", block_size=32, low=1, high=2),
    sample("bf16[2,128]", "u8[4,128]", "f32[4]", zero="u8[4]", axis=0, low=1, high=4)])
def quantized_matmul(x: Value, w: Value, scale: Value, *, zero: Value | None = None,
                     bias: Value | None = None, axis: int = 1, block_size: int = 0,
                     transposed: bool = True) -> Value:
    """x[..,K] times a quantised weight, plus bias[N]: [..,N] in the dtype of x.

    w[N,K] (or w[K,N] if not `transposed`) holds integers of at most 8 bits; scale, zero, axis and
    block_size are those of dequantize_linear, whose result is rounded to the dtype of x. The sum
    and the bias are f32, rounded once. ONNX Runtime's MatMulNBits is axis=1 with blocks.
    """
    _integers(w, 2)
    y = matmul(wide(x), _weight(x, w, scale, zero, axis, block_size, transposed))
    return cast_value(y if bias is None else y + wide(bias), x.dtype)


@composite(samples=[
    known([[1.0, 2.0], [1.0, 1.0]], arr([[[3, 1]], [[0, 15]]], "u4"), [[[0.5]], [[2.0]]],
          arr([1, 0], "i32"), axis=2, block_size=2, expect=[[[60.0], [2.0]]]),
    sample("f32[3,64]", "u4[2,5,64]", "f32[2,5,2]", "i64[3]", zero="u4[2,5,2]", axis=2,
           block_size=32, low=0, high=1, expect=f"{ORACLE}:quantized_grouped_matmul")])
def quantized_grouped_matmul(x: Value, w: Value, scale: Value, expert: Value, *,
                             zero: Value | None = None, axis: int = 1, block_size: int = 0,
                             transposed: bool = True) -> Value:
    """Row m of x[M,K] times the quantised matrix w[expert[m]]: [M,N] in the dtype of x.

    w[E,N,K] (or w[E,K,N] if not `transposed`) and its parameters are those of quantized_matmul
    with an axis of experts in front. An expert outside 0..E-1 is an error.
    """
    _integers(w, 3)
    real = _weight(x, w, scale, zero, axis, block_size, transposed)
    return cast_value(grouped_matmul(wide(x), real, expert), x.dtype)


@composite(samples=[
    known(arr([[3, 1], [0, 15]], "u4"), [[0.5], [2.0]], arr([1, 0, -1], "i64"), block_size=2,
          expect=[[[0.0, 30.0], [1.5, 0.5], [0.0, 30.0]]]),
    sample("u4[5,64]", "f32[5,2]", "i64[2,3]", zero="u4[5,2]", block_size=32, low=0, high=4,
           expect=f"{ORACLE}:quantized_gather"),
    sample("i8[5,8]", "f16[5]", "i32[3]", axis=0, low=-5, high=4)])
def quantized_gather(w: Value, scale: Value, indices: Value, *, zero: Value | None = None,
                     axis: int = 1, block_size: int = 0, dtype: DType | None = None) -> Value:
    """The rows of a quantised table w[V,D] that indices[..] name, dequantised.

    scale, zero, axis, block_size and dtype are those of dequantize_linear; only the rows taken are
    computed. Indices count from the end if negative; one outside -V..V-1 is an error.
    """
    _integers(w, 2)
    along, lead = axis_of(axis, 2), indices.type.rank
    if block_size and along == 0:
        raise OperatorError("the blocks lie along the axis of the rows",
                            hint="gather from dequantize_linear")
    rows = gather(w, indices, axis=0)
    if block_size:
        scale = gather(scale, indices, axis=0)
        zero = None if zero is None else gather(zero, indices, axis=0)
    elif along == 0 and scale.shape not in ((), (1,)):
        _per_row(scale, zero, w)
        by = unsqueeze(gather(scale, indices, axis=0), axes=(-1,))
        offset = full_value(0, I32) if zero is None else unsqueeze(
            gather(zero, indices, axis=0), axes=(-1,))
        return dequantize_affine(rows, by, offset, dtype=dtype or scale.dtype)
    return dequantize_linear(rows, scale, zero=zero, axis=lead, block_size=block_size,
                             dtype=dtype)


def _per_row(scale: Value, zero: Value | None, w: Value) -> None:
    for v in (scale, zero):
        if v is not None and v.shape != w.shape[:1]:
            raise OperatorError(f"a parameter of {v.type} does not hold one number for each row "
                                f"of {w.type}")
