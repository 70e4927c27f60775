"""Elementwise conversion, and the expressions that fusion makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..declare import m, scalar, scalar_text
from ..declare.kinds import elementwise
from ..declare.scalar import Num, Scalar
from ..declare.schema import arr, known, sample
from ..ir.types import DTYPES, F32, DType

INF, NAN = float("inf"), float("nan")
_MAX = {"f8e4m3fn": 448.0, "f8e5m2": 57344.0, "f8e4m3fnuz": 240.0, "f8e5m2fnuz": 57344.0}
_E8M0, _U8, _I32 = DTYPES["f8e8m0fnu"], DTYPES["u8"], DTYPES["i32"]
_FRACTION = 2**23
_E8M0_TABLE = [0.0, NAN, INF, 3e38, 1.0, 1.4, 1.5, 3.0]


def _to_e8m0(x: Scalar, saturate: bool, round_mode: str) -> Scalar:
    """The exponent of x as f8e8m0fnu, from the bits of the f32."""
    bits = m.bitcast(x, _I32)
    # What is added to round, and the bits of the largest float that still gives code 0, 2**-127:
    # floats below 2**-126 are subnormal, so there the carry alone would be one too high.
    add, low = {"up": (_FRACTION - 1, 0x400000), "down": (0, 0x7FFFFF),
                "nearest": (_FRACTION // 2, 0x5FFFFF)}[round_mode]
    code = m.where(bits <= low, 0, (bits + add) >> 23)
    # Without saturation what is out of range is NaN, as infinity and NaN already are.
    code = m.min_(code, 254) if saturate else m.where(bits < 0x400000, 255, code)
    return m.bitcast(m.cast(m.where(x >= 0, code, 255), _U8), _E8M0)


@elementwise(keep=("*",), samples=[
    sample("f32[4]", dtype="bf16"), sample("i32[4]", dtype="f32"),
    known([1e9, -2.7, NAN], dtype="i8", expect=[[127, -2, 0]]),
    known(arr([300, -1], "i32"), dtype="u8", expect=[[44, 255]]),
    known([0.0, -0.0, 0.5, NAN], dtype="bool", expect=[[False, False, True, True]]),
    known([1e5, -INF, NAN, 17.0], dtype="f8e4m3fn", expect=[[448.0, -448.0, NAN, 16.0]]),
    known([1e6, -INF], dtype="f8e5m2", saturate=False, expect=[[INF, -INF]]),
    known(arr([1000], "i32"), dtype="f8e4m3fn", expect=[[448.0]]),
    known(_E8M0_TABLE, dtype="f8e8m0fnu",
          expect=[[2.0**-127, NAN, 2.0**127, 2.0**127, 1.0, 2.0, 2.0, 4.0]]),
    known(_E8M0_TABLE, dtype="f8e8m0fnu", saturate=False, round_mode="nearest",
          expect=[[NAN, NAN, NAN, NAN, 1.0, 1.0, 2.0, 4.0]]),
    known(_E8M0_TABLE, dtype="f8e8m0fnu", round_mode="down",
          expect=[[2.0**-127, NAN, 2.0**127, 2.0**127, 1.0, 1.0, 1.0, 2.0]]),
    known(arr(["3.5", "-INF", "nan"], "string"), dtype="f32", expect=[[3.5, -INF, NAN]]),
    known(arr([1.5, 0.1], "f32"), dtype="string", expect=[["1.5", "0.1"]])])
def cast_(x: Scalar, *, dtype: DType, saturate: bool = True,
          round_mode: Literal["up", "down", "nearest"] = "up") -> Scalar:
    """Convert to another dtype, with the meaning of ONNX Cast 25.

    Floats become integers by truncation, saturating, NaN to 0; integers wrap; bool is x != 0.
    `saturate` clamps to the largest finite float8; without it float8 overflows to NaN or infinity.
    `round_mode` is for f8e8m0fnu alone: zero gives 2**-127 or, without `saturate`, NaN; negative
    numbers give NaN.
    """
    if dtype is x.dtype or x.dtype.sort in ("bool", "string") and dtype is not _E8M0:
        return m.cast(x, dtype)
    if dtype is _E8M0:
        return _to_e8m0(m.cast(x, F32), saturate, round_mode)
    if saturate and (top := _MAX.get(dtype.name)) is not None:
        wide = x if x.dtype.sort == "float" and x.dtype.bits >= 32 else m.cast(x, F32)
        return m.cast(m.max_(m.min_(wide, top), -top), dtype)
    return m.cast(x, dtype)


@elementwise(keep=("*",), samples=[
    known([1.0, -0.0], dtype="i32", expect=[[0x3F800000, -(2**31)]]),
    known(arr([0x3C00, 0xFC00], "u16"), dtype="f16", expect=[[1.0, -INF]]),
    known(arr([-1, 7], "i4"), dtype="u4", expect=[[15, 7]]),
    known(arr([0, 2], "u8"), dtype="bool", expect=[[False, True]])])
def bitcast(x: Scalar, *, dtype: DType) -> Scalar:
    """The bits of x read as another dtype of the same width (ONNX BitCast); a bool is byte != 0."""
    return m.bitcast(x, dtype)


@elementwise(keep=("*",), samples=[
    sample("f32[4]", "f32[4]", expr="t0=exp(x0);add(mul(t0,x1),t0)"),
    known(arr([2], "i8"), [1.5], expr="mul(f32(x0),x1)", expect=[[3.0]])])
def map_(xs: Sequence[Scalar], *, expr: str) -> tuple[Scalar, ...]:
    """Any scalar expressions, one output each: what fusion and derivatives make."""
    roots = scalar_text.parse(expr, tuple([x.dtype for x in xs]))
    return tuple([scalar.substitute(r, xs) for r in roots])


@elementwise(keep=("*",), samples=[sample("f32[3]"), known([1.5, NAN], expect=[[1.5, NAN]]),
                                   known(arr(["a"], "string"), expect=[["a"]])])
def identity(x: Scalar) -> Scalar:
    """X itself."""
    return x


def _stop(x: Scalar) -> Sequence[Num]:
    return (m.like(x, 0),)


@elementwise(keep=("*",), derivative=_stop, samples=[known([1.5, INF], expect=[[1.5, INF]])])
def stop_gradient(x: Scalar) -> Scalar:
    """X itself, with derivative 0."""
    return x
