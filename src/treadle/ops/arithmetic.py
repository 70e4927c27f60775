"""Elementwise arithmetic."""

from __future__ import annotations

from ..declare import m, scalar
from ..declare.kinds import composite, elementwise
from ..declare.scalar import Scalar
from ..declare.schema import arr, known, sample
from ..ir.graph import Value

INF, NAN = float("inf"), float("nan")
PAIR = [sample("f32[4,8]", "f32[8]", low=0.5), sample("bf16[3,1]", "f32[1,5]", low=0.5),
        sample("f16[4]", "f16[4]", low=0.5)]


@elementwise(samples=[*PAIR, sample("i32[4]", "i64[4]"),
                      known([1.5, 2.0, INF, INF], [3.0, NAN, 1.0, -INF],
                            expect=[[4.5, NAN, INF, NAN]]),
                      known(arr([250, 3], "u8"), arr([10, 4], "u8"), expect=[[4, 7]]),
                      known(arr([60000.0], "f16"), arr([60000.0], "f16"), expect=[[INF]])])
def add(a: Scalar, b: Scalar) -> Scalar:
    """a + b; integers wrap."""
    return scalar.make("add", a, b)


@elementwise(samples=[*PAIR, known([1.5, INF], [3.0, INF], expect=[[-1.5, NAN]]),
                      known(arr([3], "u8"), arr([4], "u8"), expect=[[255]])])
def sub(a: Scalar, b: Scalar) -> Scalar:
    """a - b; integers wrap."""
    return scalar.make("sub", a, b)


@elementwise(samples=[*PAIR, known([1.5, 0.0], [3.0, INF], expect=[[4.5, NAN]]),
                      known(arr([300.0, -2.0], "f16"), arr([300.0, 0.5], "f16"),
                            expect=[[INF, -1.0]]),
                      known(arr([100], "i8"), arr([3], "i8"), expect=[[44]])])
def mul(a: Scalar, b: Scalar) -> Scalar:
    """a * b; integers wrap."""
    return scalar.make("mul", a, b)


@elementwise(samples=[*PAIR, known([1.0, 1.0, 0.0, -1.0], [4.0, 0.0, 0.0, INF],
                                   expect=[[0.25, INF, NAN, -0.0]])])
def div(a: Scalar, b: Scalar) -> Scalar:
    """a / b, for floating operands; integers have floordiv and truncdiv."""
    return scalar.make("div", a, b)


@elementwise(samples=[sample("f32[5]"), known([1.0, -0.0, INF], expect=[[-1.0, 0.0, -INF]]),
                      known(arr([1, -128], "i8"), expect=[[-1, -128]])])
def neg(x: Scalar) -> Scalar:
    """-x; integers wrap."""
    return scalar.make("neg", x)


@elementwise(samples=[known(arr([7, -7, 7, -7, 5], "i32"), arr([2, 2, -2, -2, 0], "i32"),
                            expect=[[3, -4, -4, 3, 0]]),
                      known([7.5, -7.5, 1.0], [2.0, 2.0, 0.0], expect=[[3.0, -4.0, INF]])])
def floordiv(a: Scalar, b: Scalar) -> Scalar:
    """The quotient rounded down, `a // b`; integer division by zero gives 0."""
    return scalar.make("floordiv", a, b)


@elementwise(samples=[known(arr([7, -7, 7, -7, 5], "i32"), arr([2, 2, -2, -2, 0], "i32"),
                            expect=[[3, -3, -3, 3, 0]]),
                      known(arr([-128, 200], "i16"), arr([-1, 7], "i16"), expect=[[128, 28]]),
                      known([7.5, -7.5, 1.0], [2.0, 2.0, 0.0], expect=[[3.0, -3.0, INF]])])
def truncdiv(a: Scalar, b: Scalar) -> Scalar:
    """The quotient rounded towards zero, as in C; integer division by zero gives 0."""
    return scalar.make("truncdiv", a, b) if a.dtype.sort != "float" else m.trunc(a / b)


@elementwise(samples=[known(arr([7, -7, 7, -7, 5], "i32"), arr([3, 3, -3, -3, 0], "i32"),
                            expect=[[1, 2, -2, -1, 0]]),
                      known([5.5, -5.5, 5.5, 1.0, 1.0], [2.0, 2.0, -2.0, 0.0, INF],
                            expect=[[1.5, 0.5, -0.5, NAN, 1.0]])])
def mod(a: Scalar, b: Scalar) -> Scalar:
    """The remainder with the sign of b, `a % b`; integers modulo zero give 0."""
    return scalar.make("mod", a, b)


@elementwise(samples=[known(arr([7, -7, 7, -7, 5], "i32"), arr([3, 3, -3, -3, 0], "i32"),
                            expect=[[1, -1, 1, -1, 0]]),
                      known([5.5, -5.5, 5.5, 1.0, 1.0], [2.0, 2.0, -2.0, 0.0, INF],
                            expect=[[1.5, -1.5, 1.5, NAN, 1.0]])])
def fmod(a: Scalar, b: Scalar) -> Scalar:
    """The remainder with the sign of a, as C's fmod; integers modulo zero give 0."""
    return scalar.make("fmod", a, b)


@elementwise(samples=[sample("f32[4,3]", "f32[3]", low=0.5), sample("f64[4]", "f64[4]", low=0.5),
                      known([2.0, -2.0, -8.0, 0.0, 0.0], [10.0, 3.0, 0.5, 0.0, -1.0],
                            expect=[[1024.0, -8.0, NAN, 1.0, INF]]),
                      known(arr([3, -1, -1, 2, 1], "i32"), arr([4, -3, -2, -1, -5], "i32"),
                            expect=[[81, -1, 1, 0, 1]])])
def pow(a: Scalar, b: Scalar) -> Scalar:
    """a ** b; an integer to a negative power truncates towards zero, and 0 gives 0 there.

    The derivative by the exponent is 0 where a <= 0, the one by the base where b == 0.
    """
    return scalar.make("pow", a, b)


@elementwise(samples=[sample("f32[4,8]", "f32[8]"),
                      known([1.0, NAN, 2.0, -INF], [3.0, 1.0, NAN, INF],
                            expect=[[3.0, NAN, NAN, INF]]),
                      known(arr([1, -5], "i8"), arr([0, -7], "i8"), expect=[[1, -5]])])
def max_(a: Scalar, b: Scalar) -> Scalar:
    """The larger one, NaN if either is; of equal floats each takes half of the gradient."""
    return m.max_(a, b)


@elementwise(samples=[sample("f32[4,8]", "f32[8]"),
                      known([1.0, NAN, 2.0, -INF], [3.0, 1.0, NAN, INF],
                            expect=[[1.0, NAN, NAN, -INF]]),
                      known(arr([1, -5], "i8"), arr([0, -7], "i8"), expect=[[0, -7]])])
def min_(a: Scalar, b: Scalar) -> Scalar:
    """The smaller one, NaN if either is; of equal floats each takes half of the gradient."""
    return m.min_(a, b)


@elementwise(samples=[sample("f32[5]"),
                      known([-1.5, -0.0, INF, NAN], expect=[[1.5, 0.0, INF, NAN]]),
                      known(arr([-3, -128], "i8"), expect=[[3, -128]])])
def abs_(x: Scalar) -> Scalar:
    """|x|, with derivative 0 at 0; the lowest integer is its own absolute value."""
    return m.abs_(x)


@elementwise(samples=[sample("f32[5]"),
                      known([-1.5, 0.0, INF, NAN], expect=[[-1.0, 0.0, 1.0, NAN]]),
                      known(arr([-3, 0, 9], "i32"), expect=[[-1, 0, 1]])])
def sign(x: Scalar) -> Scalar:
    """-1, 0 or 1; NaN for NaN."""
    return m.sign(x)


@elementwise(samples=[sample("f32[5]", low=0.5),
                      known([4.0, 0.0, -INF], expect=[[0.25, INF, -0.0]])])
def reciprocal(x: Scalar) -> Scalar:
    """1 / x."""
    return 1.0 / x


@composite(samples=[
    sample("f32[3,4]", lo="f32[]", hi="f32[]"), sample("f32[4]", hi="f32[]"),
    known([-2.0, 0.5, 3.0, NAN], lo=-1.0, hi=1.0, expect=[[-1.0, 0.5, 1.0, NAN]]),
    known([-2.0, 3.0], lo=5.0, hi=1.0, expect=[[1.0, 1.0]]),
    known(arr([-2, 3], "i8"), lo=arr(0, "i8"), expect=[[0, 3]])])
def clip(x: Value, *, lo: Value | None = None, hi: Value | None = None) -> Value:
    """min(max(x, lo), hi); each bound may be left out, and is a tensor or a number.

    NaN stays NaN, and hi wins where lo > hi (ONNX Clip, numpy.clip).
    """
    above = x if lo is None else max_(x, lo)
    return above if hi is None else min_(above, hi)


@elementwise(samples=[sample("f32[4,3]", "f32[3]", low=0.5),
                      known([1.0, -1.0, 0.0, 2.0], [1.0, -2.0, -1.0, 0.0],
                            expect=[[0.785398163, -2.67794504, 3.14159265, 1.57079633]])])
def atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y) in (-pi, pi]; the derivative at the origin is 0."""
    return m.atan2(y, x)
