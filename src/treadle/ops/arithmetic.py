"""Elementwise arithmetic, comparison, selection and conversion."""

from __future__ import annotations

from collections.abc import Sequence

from ..declare import m, scalar, scalar_text
from ..declare.kinds import elementwise
from ..declare.scalar import Scalar
from ..declare.schema import arr, known, sample
from ..ir.types import F32, DType

PAIR = [sample("f32[4,8]", "f32[8]", low=0.5), sample("bf16[3,1]", "f32[1,5]", low=0.5),
        sample("f16[4]", "f16[4]", low=0.5)]


@elementwise(samples=[*PAIR, sample("i32[4]", "i64[4]"), known([1.5, 2.0], [3.0, 4.0],
                                                                expect=[[4.5, 6.0]])])
def add(a: Scalar, b: Scalar) -> Scalar:
    """a + b; integers wrap."""
    return scalar.make("add", a, b)


@elementwise(samples=[*PAIR, known([1.5], [3.0], expect=[[-1.5]])])
def sub(a: Scalar, b: Scalar) -> Scalar:
    """a - b; integers wrap."""
    return scalar.make("sub", a, b)


@elementwise(samples=[*PAIR, known([1.5], [3.0], expect=[[4.5]])])
def mul(a: Scalar, b: Scalar) -> Scalar:
    """a * b; integers wrap."""
    return scalar.make("mul", a, b)


@elementwise(samples=[*PAIR, known([1.0, 1.0], [4.0, 0.0], expect=[[0.25, float("inf")]])])
def div(a: Scalar, b: Scalar) -> Scalar:
    """a / b, for floating operands; integers have floordiv and truncdiv."""
    return scalar.make("div", a, b)


@elementwise(samples=[sample("f32[5]"), known([1.0, -0.0], expect=[[-1.0, 0.0]])])
def neg(x: Scalar) -> Scalar:
    """-x."""
    return scalar.make("neg", x)


@elementwise(samples=[known([1.0, 2.0], [1.0, 0.0], expect=[[False, True]])])
def gt(a: Scalar, b: Scalar) -> Scalar:
    """Whether a > b."""
    return scalar.make("gt", a, b)


@elementwise(keep=("cond",), samples=[
    sample("bool[4,1]", "f32[4,8]", "f32[]"), sample("bool[3]", "i32[3]", "i64[3]"),
    known([True, False], [1.0, 2.0], [3.0, 4.0], expect=[[1.0, 4.0]])])
def where(cond: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """A where cond, else b."""
    return m.where(cond, a, b)


_MAX = {"f8e4m3fn": 448.0, "f8e5m2": 57344.0, "f8e4m3fnuz": 240.0, "f8e5m2fnuz": 57344.0}


@elementwise(keep=("*",), samples=[
    sample("f32[4]", dtype="bf16"), sample("i32[4]", dtype="f32"),
    known([1e9, -2.7, float("nan")], dtype="i8", expect=[[127, -2, 0]]),
    known(arr([300, -1], "i32"), dtype="u8", expect=[[44, 255]])])
def cast_(x: Scalar, *, dtype: DType, saturate: bool = True) -> Scalar:
    """Convert to another dtype.

    Floats become integers by truncation, saturating, NaN to 0; integers wrap. `saturate` clamps
    to the largest finite float8 (ONNX Cast); without it they overflow to NaN or infinity.
    """
    if saturate and (top := _MAX.get(dtype.name)) is not None and x.dtype.sort == "float":
        wide = x if x.dtype.bits >= 32 else m.cast(x, F32)
        return m.cast(m.max_(m.min_(wide, top), -top), dtype)
    return m.cast(x, dtype)


@elementwise(keep=("*",), samples=[
    sample("f32[4]", "f32[4]", expr="t0=exp(x0);add(mul(t0,x1),t0)"),
    known(arr([2], "i8"), [1.5], expr="mul(f32(x0),x1)", expect=[[3.0]])])
def map_(xs: Sequence[Scalar], *, expr: str) -> tuple[Scalar, ...]:
    """Any scalar expressions, one output each: what fusion and derivatives make."""
    roots = scalar_text.parse(expr, tuple([x.dtype for x in xs]))
    return tuple([scalar.substitute(r, xs) for r in roots])
