"""Affine quantisation: real = (stored - zero) * scale."""

from __future__ import annotations

from ..declare import m
from ..declare.kinds import composite, elementwise
from ..declare.opdef import cast_value, full_value, wide
from ..declare.scalar import Scalar
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.dims import Size, cdiv
from ..ir.graph import Value
from ..ir.types import DTYPES, F32, F64, I32, I64, DType, axis_of, shape_text
from .arithmetic import max_, min_, neg
from .compare import eq, where
from .contract import matmul_integer
from .conv import convolution
from .convert import cast_
from .movement import expand, narrow, reshape, unsqueeze
from .reduce import reduce_max, reduce_min

U8 = DTYPES["u8"]
FLOATS = ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f6e2m3fn", "f6e3m2fn", "f4e2m1fn")
_TOP = {"f6e2m3fn": 7.5, "f6e3m2fn": 28.0, "f4e2m1fn": 6.0}
"""Largest values of the formats that have no infinity, so that conversion always saturates."""


def _range(dtype: DType) -> tuple[int, int]:
    low = -(2 ** (dtype.bits - 1)) if dtype.sort == "int" else 0
    return low, low + 2**dtype.bits - 1


def _real(x: Scalar) -> Scalar:
    """`x` in the type that quantisation computes in: f64 for f64, else f32."""
    return x if x.dtype.bits == 64 and x.dtype.sort == "float" else m.cast(x, F32)


@elementwise(keep=("*",), samples=[
    known([0.0, 2.0, 3.0, 1000.0, -254.0, -1000.0, 1.0, 5.0], [2.0], arr([128], "u8"), dtype="u8",
          expect=[arr([128, 129, 130, 255, 1, 0, 128, 130], "u8")]),
    known([2.5, -20.0, float("nan")], [1.0], arr([0], "i4"), dtype="i4",
          expect=[arr([2, -8, 0], "i4")]),
    sample("f16[4]", "f16[1]", "i8[1]", dtype="i8", low=0.5, high=2.0),
    known([600.0, 1.06], [1.0], arr([0], "i8"), dtype="f8e4m3fn",
          expect=[arr([448.0, 1.0], "f8e4m3fn")])])
def quantize_affine(x: Scalar, scale: Scalar, zero: Scalar, *, dtype: DType,
                    saturate: bool = True, precision: DType | None = None) -> Scalar:
    """x / scale, rounded half to even, plus zero, clamped to the range of `dtype`; NaN gives 0.

    The quotient is f32 (f64 for f64 operands), rounded to `precision` when given. For float8
    `saturate` clamps and rounding is the conversion's; float6 and float4 always saturate.
    """
    quotient = _real(x) / m.cast(scale, _real(x).dtype)
    if precision is not None and precision.bits < 32:
        quotient = m.cast(m.cast(quotient, precision), quotient.dtype)
    offset = m.cast(zero, quotient.dtype)
    if dtype.sort == "float":
        y = quotient + offset
        if (top := _TOP.get(dtype.name)) is not None:
            y = m.max_(m.min_(y, top), -top)
        return cast_(y, dtype=dtype, saturate=saturate)
    low, high = map(float, _range(dtype))
    y = m.round_(quotient) + offset
    return m.cast(m.max_(m.min_(y, high), low), dtype)


@elementwise(keep=("*",), samples=[
    known(arr([0, 3, 128, 255], "u8"), [2.0], arr([128], "u8"), dtype="f32",
          expect=[[-256.0, -250.0, 0.0, 254.0]]),
    known(arr([-8, 7], "i4"), arr([0.5], "f16"), arr([1], "i4"), dtype="f16",
          expect=[arr([-4.5, 3.0], "f16")]),
    sample("f8e4m3fn[4]", "f32[1]", "i8[1]", dtype="f32")])
def dequantize_affine(x: Scalar, scale: Scalar, zero: Scalar, *, dtype: DType) -> Scalar:
    """(x - zero) * scale, rounded once to `dtype`; integers subtract exactly."""
    real = DTYPES["f64"] if dtype.bits == 64 else F32
    if x.dtype.sort in ("int", "uint"):
        centred = m.cast(m.cast(x, I32) - m.cast(zero, I32), real)
    else:
        centred = m.cast(x, real) - m.cast(zero, real)
    return m.cast(centred * m.cast(scale, real), dtype)


@elementwise(keep=("*",), samples=[
    known(arr([100, 300, -5, 5], "i32"), [0.5], arr([3], "u8"), dtype="u8",
          expect=[arr([53, 153, 1, 5], "u8")]),
    sample("i32[4]", "f32[]", "i8[]", dtype="i8", low=0, high=1)])
def requantize(acc: Scalar, scale: Scalar, zero: Scalar, *, dtype: DType) -> Scalar:
    """acc * scale in f32, rounded half to even, plus zero, clamped to the range of `dtype`.

    What quantised products end with (ONNX QLinearMatMul, QLinearConv).
    """
    low, high = map(float, _range(dtype))
    y = m.round_(m.cast(acc, F32) * m.cast(scale, F32)) + m.cast(zero, F32)
    return m.cast(m.max_(m.min_(y, high), low), dtype)


def _spread(p: Value, x: Value, axis: int, block_size: int, name: str) -> Value:
    """A scale or zero point in a shape that broadcasts against `x`."""
    if p.type.rank == 0 or p.shape == (1,) and not block_size:
        return p
    at = axis_of(axis, x.type.rank)
    if block_size:
        return _blocked(p, x, at, block_size, name)
    if p.shape != (x.shape[at],):
        raise OperatorError(
            f"{name} of shape {shape_text(p.shape)} does not fit axis {axis} of {x.type}",
            hint="give a scalar, one number per index of the axis, or block_size with blocks")
    return reshape(p, shape=(*p.shape, *[1] * (x.type.rank - at - 1)))


def _blocked(p: Value, x: Value, at: int, block: int, name: str) -> Value:
    size = x.shape[at]
    blocks = cdiv(size, block)
    want = (*x.shape[:at], blocks, *x.shape[at + 1:])
    if p.shape != want:
        raise OperatorError(f"{name} of shape {shape_text(p.shape)} does not hold one number for "
                            f"each {block} elements of axis {at} of {x.type}",
                            hint=f"expected {shape_text(want)}")
    split = (*x.shape[:at], blocks, block, *x.shape[at + 1:])
    repeated = reshape(expand(unsqueeze(p, axes=(at + 1,)), shape=split),
                       shape=(*x.shape[:at], blocks * block, *x.shape[at + 1:]))
    return narrow(repeated, axis=at, start=0, length=size)


def _parameters(x: Value, scale: Value, zero: Value | None, axis: int, block_size: int,
                dtype: DType) -> tuple[Value, Value]:
    """Scale and zero point ready to broadcast; a missing zero point is 0."""
    if scale.dtype.sort != "float":
        raise OperatorError(f"the scale is {scale.dtype}, not a floating tensor")
    if block_size < 0:
        raise OperatorError(f"block_size={block_size} is negative")
    if zero is None:
        start = full_value(0, I32) if dtype.sort != "float" else full_value(0.0, F32)
        return _spread(scale, x, axis, block_size, "scale"), start
    if zero.shape != scale.shape:
        raise OperatorError(f"scale and zero have shapes {shape_text(scale.shape)} and "
                            f"{shape_text(zero.shape)}", hint="they must be equal")
    return (_spread(scale, x, axis, block_size, "scale"),
            _spread(zero, x, axis, block_size, "zero"))


def _stored(dtype: DType) -> DType:
    if dtype.name not in FLOATS and (dtype.sort not in ("int", "uint") or dtype.bits > 16):
        raise OperatorError(f"nothing is quantised to {dtype}",
                            hint="use integers of 2 to 16 bits, float8, float6 or float4")
    return dtype


ORACLE = "tests.oracles.quantize"


@composite(samples=[
    known([[[[-162.0, 10.0], [-100.0, 232.0]], [[-20.0, -50.0], [-76.0, 0.0]]]], [2.0, 4.0],
          zero=arr([84, 24], "u8"), expect=[arr([[[[3, 89], [34, 200]], [[19, 12], [5, 24]]]], "u8")
                                            ]),
    sample("f32[3,5]", "f32[5]", zero="i8[5]", axis=-1, low=0.5, high=2.0,
           expect=f"{ORACLE}:quantize_linear"),
    sample("f32[3,5]", "f32[3,3]", axis=1, block_size=2, dtype="i16", low=0.01, high=0.02,
           expect=f"{ORACLE}:quantize_linear"),
    known([0.0, 1.5, 2.5, 100.0, -3.0], 1.0, dtype="u4", expect=[arr([0, 2, 2, 15, 0], "u4")]),
    sample("f16[6]", "f16[]", dtype="i8", low=0.1, high=2.0),
    sample("f32[3]", "f32[]", dtype="f8e5m2", low=0.1, high=2.0),
    known([0.0, 1.0, -1.5, 9.0], 1.0, dtype="f4e2m1fn",
          expect=[arr([0.0, 1.0, -1.5, 6.0], "f4e2m1fn")]),
    known([0.0, 1.0, 2.0, 9.0], 1.0, dtype="u2", expect=[arr([0, 1, 2, 3], "u2")])])
def quantize_linear(x: Value, scale: Value, *, zero: Value | None = None, axis: int = 1,
                    block_size: int = 0, dtype: DType | None = None, saturate: bool = True,
                    precision: DType | None = None) -> Value:
    """saturate(round(x / scale) + zero), per tensor, per index of `axis`, or per block of it.

    ONNX QuantizeLinear: scale is a scalar, [D_axis], or shaped like x with ceil(D_axis /
    block_size) on `axis`; zero has its shape and dtype `dtype` (default: zero's, else u8).
    See quantize_affine for rounding, `saturate` and `precision`.
    """
    target = _stored(dtype or (zero.dtype if zero is not None else U8))
    if zero is not None and zero.dtype is not target:
        raise OperatorError(f"zero is {zero.dtype}, the output {target}", hint="they must be equal")
    by, offset = _parameters(x, scale, zero, axis, block_size, target)
    return quantize_affine(x, by, offset, dtype=target, saturate=saturate, precision=precision)


@composite(samples=[
    known(arr([[3, 89], [34, 200]], "u8"), [2.0, 4.0], zero=arr([84, 24], "u8"), axis=0,
          expect=[[[-162.0, 10.0], [40.0, 704.0]]]),
    sample("i8[3,5]", "f32[5]", zero="i8[5]", axis=-1, low=-100, high=100,
           expect=f"{ORACLE}:dequantize_linear"),
    sample("u16[3,5]", "f32[3,3]", zero="u16[3,3]", axis=1, block_size=2, low=1, high=100,
           expect=f"{ORACLE}:dequantize_linear"),
    sample("i32[4]", "f32[]", low=-100, high=100, expect=f"{ORACLE}:dequantize_linear"),
    sample("i4[4,2]", "f32[4]", axis=0), sample("u2[4,2]", "f16[2]"),
    sample("f8e4m3fn[4]", "f16[]", dtype="f32"), sample("f4e2m1fn[4]", "bf16[]")])
def dequantize_linear(x: Value, scale: Value, *, zero: Value | None = None, axis: int = 1,
                      block_size: int = 0, dtype: DType | None = None) -> Value:
    """(x - zero) * scale, with parameters shaped as in quantize_linear (ONNX DequantizeLinear).

    The result is `dtype`, by default the scale's; halves are rounded once, from f32.
    """
    if zero is not None and zero.dtype is not x.dtype:
        raise OperatorError(f"zero is {zero.dtype}, x {x.dtype}", hint="they must be equal")
    by, offset = _parameters(x, scale, zero, axis, block_size, x.dtype)
    target = dtype or scale.dtype
    if target.sort != "float" or target.bits < 16:
        raise OperatorError(f"nothing is dequantised to {target}", hint="give dtype f32 or f16")
    return dequantize_affine(x, by, offset, dtype=target)


@composite(samples=[
    known([0.0, 2.0, -3.0, -2.5, 1.34, 0.5], expect=[
        arr([153, 255, 0, 26, 221, 179], "u8"), 0.019607844, arr(153, "u8")]),
    known([-1.0, -2.1, -1.3, -2.5, -3.34, -4.0], expect=[
        arr([191, 121, 172, 96, 42, 0], "u8"), 0.015686275, arr(255, "u8")]),
    known([0.0, 0.0], expect=[arr([0, 0], "u8"), 1.0, arr(0, "u8")]),
    sample("f32[3,4]", expect=f"{ORACLE}:dynamic_quantize_linear")])
def dynamic_quantize_linear(x: Value) -> tuple[Value, ...]:
    """Quantise f32 to u8 over its own range: values, scale and zero point.

    The range includes 0; scale = (max - min) / 255, and 1 for a tensor of zeros (as ONNX Runtime,
    where the ONNX text divides by 0); zero = round(-min / scale).
    """
    axes = tuple(range(x.type.rank))
    low = min_(reduce_min(x, axes=axes), 0.0)
    span = max_(reduce_max(x, axes=axes), 0.0) - low
    scale = where(eq(span, 0.0), 1.0, span / 255.0)
    zero = quantize_affine(neg(low), scale, full_value(0, I32), dtype=U8)
    return quantize_affine(x, scale, zero, dtype=U8), scale, zero


def _rows(p: Value, rank: int) -> Value:
    """A per-row parameter [M] as [M,1]."""
    return unsqueeze(p, axes=(-1,)) if p.type.rank == 1 and p.shape != (1,) and rank > 1 else p


@composite(samples=[
    known(arr([[208, 236, 0, 238], [3, 214, 255, 29]], "u8"), 0.0066, arr(113, "u8"),
          arr([[152, 51, 244], [60, 26, 255], [0, 127, 246], [127, 254, 247]], "u8"), 0.00705,
          arr(114, "u8"), 0.0107, arr(118, "u8"),
          expect=[arr([[168, 115, 255], [1, 66, 151]], "u8")]),
    sample("u8[2,3,64]", "f32[]", "u8[]", "i8[64,4]", "f32[4]", "i8[4]", "f32[]", "u8[]", low=1,
           high=100, expect=f"{ORACLE}:qmatmul")])
def qmatmul(a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
            y_scale: Value, y_zero: Value) -> Value:
    """The product of two affine-quantised matrices, requantised (ONNX QLinearMatMul).

    Parameters of a and y are scalars or one per row of a, those of b scalars or one per column.
    The sum is exact in i32; the rescaling is f32.
    """
    acc = matmul_integer(a, b, a_zero=a_zero, b_zero=b_zero)
    rows = a.type.rank
    scale = wide(_rows(a_scale, rows)) * wide(b_scale) / wide(_rows(y_scale, rows))
    return requantize(acc, scale, _rows(y_zero, rows), dtype=_eight(y_zero.dtype))


def _eight(dtype: DType) -> DType:
    if dtype.sort not in ("int", "uint") or dtype.bits != 8:
        raise OperatorError(f"the output zero point is {dtype}, not i8 or u8")
    return dtype


def _per_filter(p: Value, rank: int, filters: Size, name: str) -> Value:
    """A scalar, or one number per filter shaped to stand on the first of `rank` axes."""
    if p.shape in ((), (1,)):
        return p
    if p.shape != (filters,):
        raise OperatorError(f"{name} has shape {shape_text(p.shape)}, a scalar or one number for "
                            f"each of {filters} filters was expected")
    return reshape(p, shape=(*p.shape, *[1] * (rank - 1)))


def _centred(x: Value, zero: Value | None) -> Value:
    if x.dtype.sort not in ("int", "uint") or x.dtype.bits != 8:
        raise OperatorError(f"the operands are i8 or u8, not {x.dtype}")
    real = cast_value(x, F64)
    return real if zero is None else real - cast_value(zero, F64)


@composite(samples=[
    known(arr([[[[2, 3, 4], [5, 6, 7], [8, 9, 10]]]], "u8"), arr([[[[1, 1], [1, 1]]]], "u8"),
          x_zero=arr(1, "u8"), expect=[arr([[[[12, 16], [24, 28]]]], "i32")]),
    sample("u8[1,4,5,6]", "i8[6,2,3,3]", x_zero="u8[]", w_zero="i8[6]", strides=(2, 1),
           pads=(1, 0, 1, 2), groups=2, low=0, high=9, expect=f"{ORACLE}:conv_integer")])
def conv_integer(x: Value, w: Value, *, x_zero: Value | None = None,
                 w_zero: Value | None = None, strides: tuple[int, ...] = (),
                 dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (), groups: int = 1
                 ) -> Value:
    """convolution of x - x_zero with w - w_zero, for i8 or u8, exact in i32 (ONNX ConvInteger).

    x_zero is a scalar, w_zero a scalar or one number per filter; pads hold x_zero. f64 carries
    the sums, which it holds exactly.
    """
    if x_zero is not None and x_zero.shape not in ((), (1,)):
        raise OperatorError(f"x_zero has shape {shape_text(x_zero.shape)}, not that of a scalar")
    if not w.type.rank:
        raise OperatorError("w is a scalar, filters [M,C/groups,..] were expected")
    by = None if w_zero is None else _per_filter(w_zero, w.type.rank, w.shape[0], "w_zero")
    y = convolution(_centred(x, x_zero), _centred(w, by), strides=strides, dilations=dilations,
                    pads=pads, groups=groups)
    return cast_value(cast_value(y, I64), I32)


_QCONV = ("u8[1,4,5,6]", "f32[]", "u8[]", "i8[6,2,3,3]", "f32[6]", "i8[6]", "f32[]", "u8[]")


@composite(samples=[
    sample(*_QCONV, bias="i32[6]", strides=(2, 1), pads=(1, 0, 1, 2), groups=2, low=1, high=9,
           expect=f"{ORACLE}:qconv"),
    sample("i8[1,2,6]", "f32[]", "i8[]", "i8[3,2,3]", "f32[]", "i8[]", "f32[]", "i8[]", low=1,
           high=9)])
def qconv(x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value, w_zero: Value,
          y_scale: Value, y_zero: Value, *, bias: Value | None = None,
          strides: tuple[int, ...] = (), dilations: tuple[int, ...] = (),
          pads: tuple[Size, ...] = (), groups: int = 1) -> Value:
    """The convolution of affine-quantised tensors, requantised (ONNX QLinearConv).

    Parameters are scalars, those of w alternatively one per filter; bias[M] is i32 in units of
    x_scale * w_scale. The sum is exact in i32; the rescaling is f32.
    """
    space = x.type.rank - 1
    acc = conv_integer(x, w, x_zero=x_zero, w_zero=w_zero, strides=strides, dilations=dilations,
                       pads=pads, groups=groups)
    if bias is not None:
        acc = acc + _per_filter(cast_value(bias, I32), space, w.shape[0], "bias")
    scale = x_scale * _per_filter(w_scale, space, w.shape[0], "w_scale") / y_scale
    return requantize(acc, scale, y_zero, dtype=_eight(y_zero.dtype))
