"""Elementwise mathematical functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..declare import m, scalar, special
from ..declare.kinds import elementwise
from ..declare.scalar import Num, Scalar
from ..declare.schema import arr, known, sample

INF, NAN = float("inf"), float("nan")
X = [-3.0, -0.5, 0.0, 0.75, 2.0]
POSITIVE = [0.25, 0.5, 1.0, 3.0]
PLAIN = [sample("f32[5]", low=-0.9, high=0.9), sample("f16[4]", low=0.1, high=0.9)]


@elementwise(samples=[*PLAIN, known(X, expect=[[0.0497870684, 0.60653066, 1.0, 2.11700002,
                                                7.3890561]]),
                      known([-INF, INF, 89.0, NAN], expect=[[0.0, INF, INF, NAN]]),
                      known(arr([9.0, 12.0], "f16"), expect=[[8104.0, INF]])])
def exp(x: Scalar) -> Scalar:
    """e ** x."""
    return m.exp(x)


@elementwise(samples=[*PLAIN, known(X, expect=[[-0.950212932, -0.39346934, 0.0, 1.11700002,
                                                6.3890561]]),
                      known([1e-10, -INF, INF], expect=[[1e-10, -1.0, INF]])])
def expm1(x: Scalar) -> Scalar:
    """e ** x - 1, accurate near 0."""
    return m.expm1(x)


def _dexp2(x: Scalar) -> Sequence[Num]:
    return (exp2(x) * math.log(2.0),)


@elementwise(derivative=_dexp2, samples=[
    *PLAIN, known(X, expect=[[0.125, 0.707106781, 1.0, 1.68179283, 4.0]]),
    known([-INF, INF, 127.0], expect=[[0.0, INF, 2.0**127]])])
def exp2(x: Scalar) -> Scalar:
    """2 ** x."""
    return scalar.make("pow", 2.0, x)


@elementwise(samples=[*PLAIN[1:], sample("f32[5]", low=0.5),
                      known(POSITIVE, expect=[[-1.38629436, -0.693147181, 0.0, 1.09861229]]),
                      known([0.0, -1.0, INF], expect=[[-INF, NAN, INF]])])
def log(x: Scalar) -> Scalar:
    """The natural logarithm; NaN below 0."""
    return m.log(x)


@elementwise(samples=[*PLAIN, known(POSITIVE, expect=[[0.223143551, 0.405465108, 0.693147181,
                                                       1.38629436]]),
                      known([1e-10, -1.0, -2.0], expect=[[1e-10, -INF, NAN]])])
def log1p(x: Scalar) -> Scalar:
    """log(1 + x), accurate near 0; NaN below -1."""
    return m.log1p(x)


@elementwise(samples=[*PLAIN[1:], sample("f32[5]", low=0.5),
                      known(POSITIVE, expect=[[-2.0, -1.0, 0.0, 1.5849625]])])
def log2(x: Scalar) -> Scalar:
    """The logarithm to base 2; NaN below 0."""
    return m.log(x) * (1.0 / math.log(2.0))


@elementwise(samples=[*PLAIN[1:], sample("f32[5]", low=0.5),
                      known([4.0, 2.0, -1.0, 0.0, INF], expect=[[2.0, 1.41421356, NAN, 0.0, INF]]),
                      known(arr([65504.0], "f16"), expect=[[255.875]])])
def sqrt(x: Scalar) -> Scalar:
    """The square root, NaN below 0; the derivative is 0 where x <= 0."""
    return m.sqrt(x)


def _drsqrt(x: Scalar) -> Sequence[Num]:
    return (m.where(x > 0, -0.5 * rsqrt(x) / x, 0),)


@elementwise(derivative=_drsqrt, samples=[
    *PLAIN[1:], sample("f32[5]", low=0.5),
    known([0.25, 0.5, 3.0, 0.0, -1.0, INF],
          expect=[[2.0, 1.41421356, 0.577350269, INF, NAN, 0.0]])])
def rsqrt(x: Scalar) -> Scalar:
    """1 / sqrt(x), infinity at 0 and NaN below; the derivative is 0 where x <= 0."""
    return 1.0 / m.sqrt(x)


@elementwise(samples=[known([-1.5, -0.5, 0.5, 2.0, INF, NAN],
                            expect=[[-2.0, -1.0, 0.0, 2.0, INF, NAN]])])
def floor(x: Scalar) -> Scalar:
    """The largest integer not above x."""
    return m.floor(x)


@elementwise(samples=[known([-1.5, -0.5, 0.5, 2.0, INF, NAN],
                            expect=[[-1.0, -0.0, 1.0, 2.0, INF, NAN]])])
def ceil(x: Scalar) -> Scalar:
    """The smallest integer not below x."""
    return m.ceil(x)


@elementwise(samples=[known([-1.5, -0.5, 0.5, 2.7, INF, NAN],
                            expect=[[-1.0, -0.0, 0.0, 2.0, INF, NAN]])])
def trunc(x: Scalar) -> Scalar:
    """The integer part of x."""
    return m.trunc(x)


@elementwise(samples=[known([-1.5, -0.5, 0.5, 1.5, 2.5, 2.7, INF, NAN],
                            expect=[[-2.0, -0.0, 0.0, 2.0, 2.0, 3.0, INF, NAN]])])
def round_(x: Scalar) -> Scalar:
    """The nearest integer, ties to even; the derivative is straight-through, 1."""
    return m.round_(x)


@elementwise(samples=[*PLAIN, known(X, expect=[[-0.141120008, -0.479425539, 0.0, 0.68163876,
                                                0.909297427]]), known([INF], expect=[[NAN]])])
def sin(x: Scalar) -> Scalar:
    """Sine of radians."""
    return m.sin(x)


@elementwise(samples=[*PLAIN, known(X, expect=[[-0.989992497, 0.877582562, 1.0, 0.731688869,
                                                -0.416146837]]), known([INF], expect=[[NAN]])])
def cos(x: Scalar) -> Scalar:
    """Cosine of radians."""
    return m.cos(x)


@elementwise(samples=[*PLAIN, known(X, expect=[[0.142546543, -0.54630249, 0.0, 0.93159646,
                                                -2.18503986]])])
def tan(x: Scalar) -> Scalar:
    """Tangent of radians."""
    return m.tan(x)


@elementwise(samples=[*PLAIN, known([-1.0, -0.5, 0.0, 0.75, 1.5],
                                    expect=[[-1.57079633, -0.523598776, 0.0, 0.848062079, NAN]])])
def asin(x: Scalar) -> Scalar:
    """Inverse sine; NaN outside -1..1."""
    return m.asin(x)


@elementwise(samples=[*PLAIN, known([-1.0, -0.5, 0.0, 0.75, 1.5],
                                    expect=[[3.14159265, 2.0943951, 1.57079633, 0.722734248,
                                             NAN]])])
def acos(x: Scalar) -> Scalar:
    """Inverse cosine; NaN outside -1..1."""
    return m.acos(x)


@elementwise(samples=[*PLAIN, known([*X, INF],
                                    expect=[[-1.24904577, -0.463647609, 0.0, 0.643501109,
                                             1.10714872, math.pi / 2]])])
def atan(x: Scalar) -> Scalar:
    """Inverse tangent."""
    return m.atan(x)


@elementwise(samples=[*PLAIN, known(X, expect=[[-10.0178749, -0.521095305, 0.0, 0.822316732,
                                                3.62686041]])])
def sinh(x: Scalar) -> Scalar:
    """Hyperbolic sine."""
    return m.sinh(x)


@elementwise(samples=[*PLAIN, known(X, expect=[[10.067662, 1.12762597, 1.0, 1.29468328,
                                                3.76219569]])])
def cosh(x: Scalar) -> Scalar:
    """Hyperbolic cosine."""
    return m.cosh(x)


@elementwise(samples=[*PLAIN, known([*X, INF, -100.0],
                                    expect=[[-0.995054754, -0.462117157, 0.0, 0.635148952,
                                             0.96402758, 1.0, -1.0]])])
def tanh(x: Scalar) -> Scalar:
    """Hyperbolic tangent."""
    return m.tanh(x)


@elementwise(samples=[*PLAIN, known(X, expect=[[-1.81844646, -0.481211825, 0.0, 0.693147181,
                                                1.44363548]])])
def asinh(x: Scalar) -> Scalar:
    """Inverse hyperbolic sine."""
    return m.asinh(x)


@elementwise(samples=[sample("f32[5]", low=1.5, high=3.0),
                      known([1.0, 1.5, 10.0, 0.5], expect=[[0.0, 0.96242365, 2.99322285, NAN]])])
def acosh(x: Scalar) -> Scalar:
    """Inverse hyperbolic cosine; NaN below 1."""
    return m.acosh(x)


@elementwise(samples=[*PLAIN, known([-0.5, 0.0, 0.75, 1.0, 2.0],
                                    expect=[[-0.549306144, 0.0, 0.972955075, INF, NAN]])])
def atanh(x: Scalar) -> Scalar:
    """Inverse hyperbolic tangent; NaN outside -1..1."""
    return m.atanh(x)


@elementwise(samples=[*PLAIN, sample("f32[64]", low=-5.0, high=5.0, expect="scipy.special:erf"),
                      known([*X, INF, NAN], expect=[[-0.99997791, -0.520499878, 0.0, 0.711155634,
                                                     0.995322265, 1.0, NAN]])])
def erf(x: Scalar) -> Scalar:
    """The error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""
    return m.erf(x)


def _ratio(x: Scalar, p: Sequence[float], q: Sequence[float]) -> Scalar:
    """The quotient of two polynomials, highest power first, by Horner's rule."""
    def value(coefficients: Sequence[float]) -> Scalar:
        total = m.like(x, coefficients[0])
        for c in coefficients[1:]:
            total = total * x + c
        return total

    return value(p) / value(q)


def _derfc(x: Scalar) -> Sequence[Num]:
    return (m.exp(-x * x) * (-2.0 / math.sqrt(math.pi)),)


@elementwise(derivative=_derfc, samples=[
    *PLAIN, sample("f32[64]", low=-5.0, high=9.0, expect="scipy.special:erfc"),
    known([*X, INF, NAN], expect=[[1.99997791, 1.52049988, 1.0, 0.288844366, 0.00467773498, 0.0,
                                   NAN]])])
def erfc(x: Scalar) -> Scalar:
    """1 - erf(x), accurate where that is near 0. Cody 1969, as in SPECFUN's CALERF."""
    y = m.min_(m.abs_(x), 30.0)
    head = m.trunc(y * 16.0) * 0.0625  # few bits, so its square is exact
    bell = m.exp(-head * head) * m.exp((head - y) * (head + y))
    r = 1.0 / (y * y)
    middle = _ratio(y, special.ERFC_P, special.ERFC_Q)
    tail = (1.0 / math.sqrt(math.pi) - r * _ratio(r, special.TAIL_P, special.TAIL_Q)) / y
    far = bell * m.where(y <= 4.0, middle, tail)
    return m.where(y <= 0.46875, 1.0 - m.erf(x), m.where(x < 0, 2.0 - far, far))
