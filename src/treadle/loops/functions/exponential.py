"""exp, expm1, and what is made of them: sigmoid, tanh, sinh, cosh, erf.

Reduction to |r| <= ln 2 / 2 after W. J. Cody and W. Waite, "Software Manual for the Elementary
Functions" (1980). The coefficients for f32 are those of Cephes' expf.
"""

from __future__ import annotations

import math

from ...declare import m, special
from ...declare.scalar import Scalar, bitcast_to
from ...ir.types import F32
from .forms import (
    DOUBLE,
    SINGLE,
    Format,
    above,
    below,
    fma,
    format_of,
    horner,
    monic,
    series,
    shifted,
    with_sign,
)

_EXP32 = (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3,
          1.9875691500e-4)
_EXP64 = (0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326136,
          0.0013888888888883878, 0.00019841269874820627, 2.4801587325301673e-05,
          2.7557255400206422e-06, 2.7557273847932753e-07, 2.5105217004720745e-08,
          2.0914624971597965e-09)
EXP_SHORT = (0.500000001346581, 0.16666666681623232, 0.041666464925285904, 0.0083333109254809,
             0.0013933649996309251, 0.00019890990824673654)
_EXP_BRIEF = (0.5, 0.16666576989698775, 0.041666554617204574, 0.008363179052722578,
              0.0013926183587713498)
"""(exp(r) - 1 - r) / (r * r) in r; the short one serves f32 results of f64 arithmetic, the brief
one adds 2**-26.9 to the error of f32."""
_LEAST = {SINGLE: -88.0, DOUBLE: -709.0}
"""Where n of `exp_of_negative` is -bias."""


def _limits(f: Format) -> tuple[float, float]:
    return (-104.0, 90.0) if f is SINGLE else (-746.0, 711.0)


_LOG2_E = 1.4426950408889634


def _parts(x: Scalar, low: Scalar | float, coefficients: tuple[float, ...] | None,
           offset: int = 0) -> tuple[Scalar, Scalar]:
    """The bits of n + `offset` in `magic`'s, and exp(r) - 1, for `x + low` = n ln 2 + r."""
    f = format_of(x)
    t = fma(x, _LOG2_E, f.magic + offset)
    n = t - (f.magic + offset)
    r = fma(n, -f.ln2[0], x)
    r = fma(n, -f.ln2[1], r) if isinstance(low, float) else r + fma(n, -f.ln2[1], low)
    p = series(r, coefficients or (_EXP32 if f is SINGLE else _EXP64))
    return bitcast_to(t, f.whole), fma(p, r * r, r)


def exp_of(x: Scalar, low: Scalar | float = 0.0, halvings: int = 0,
           coefficients: tuple[float, ...] | None = None) -> Scalar:
    """exp(x + low) / 2**halvings; `low` is small beside `x`."""
    bottom, top = _limits(format_of(x))
    return _exp_within(above(below(x, top), bottom), low, halvings, coefficients)


def _exp_within(x: Scalar, low: Scalar | float = 0.0, halvings: int = 0,
                coefficients: tuple[float, ...] | None = None) -> Scalar:
    """The same between the limits.

    2**n is two factors, so that denormals round once: half of n is rounded from x as n is.
    """
    f = format_of(x)
    n, y = _parts(x, low, coefficients, 2 * f.bias)
    half = bitcast_to(fma(x, _LOG2_E / 2, f.magic + f.bias), f.whole)
    rest = n - half - halvings if halvings else n - half
    first, second = (bitcast_to(shifted(e, f), f.dtype) for e in (half, rest))
    return fma(y, first, first) * second


def exp(x: Scalar) -> Scalar:
    """E ** x."""
    return exp_of(x)


def exp_of_negative(x: Scalar) -> Scalar:
    """E ** x for x <= 0, and 0 from -88 on (-709 in f64), where it would be denormal.

    The bits of x / ln 2, rounded where the exponent's bias is added, give 2**n in one shift; n is
    -bias at the limit, which makes that 0. In f32 n ln 2 is taken off in one step and leaves
    n * 2e-9, less than a difference `x` of that size was rounded by.
    """
    f = format_of(x)
    t = fma(above(x, _LEAST[f]), 1.4426950408889634, f.magic + f.bias)
    n = t - (f.magic + f.bias)
    scale = shifted(bitcast_to(t, f.whole), f)
    if f is SINGLE:
        r, coefficients = fma(n, -0.6931471805599453, above(x, _LEAST[f])), _EXP_BRIEF
    else:
        r = fma(n, -f.ln2[1], fma(n, -f.ln2[0], above(x, _LEAST[f])))
        coefficients = _EXP64
    y = fma(series(r, coefficients), r * r, r)
    scale = bitcast_to(scale, f.dtype)
    return fma(y, scale, scale)


def expm1(x: Scalar) -> Scalar:
    """E ** x - 1."""
    single = x.dtype is F32
    y = _expm1_within(above(below(x, 89.0 if single else 710.0), -18.0 if single else -38.0))
    return m.where(m.eq(x, 0.0), x, y)


def _expm1_within(x: Scalar) -> Scalar:
    """2**n (exp(r) - 1) + (2**n - 1), at half the scale so that it cannot overflow early."""
    f = format_of(x)
    n, y = _parts(x, 0.0, None, f.bias - 1)
    scale = bitcast_to(shifted(n, f), f.dtype)
    return fma(y, scale, scale - 0.5) * 2.0


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + e ** -x) by e ** -|x|, which cannot overflow."""
    t = _exp_within(above(-m.abs_(x), _limits(format_of(x))[0]))
    return m.where(x < 0.0, t, m.like(x, 1.0)) / (t + 1.0)


def tanh(x: Scalar) -> Scalar:
    """T / (t + 2) with t = expm1(2 |x|); 1 from 9.02 on, from 20 on in f64."""
    t = _expm1_within(below(m.abs_(x), 9.02 if x.dtype is F32 else 20.0) * 2.0)
    return with_sign(t / (t + 2.0), x)


def sinh(x: Scalar) -> Scalar:
    """(t + t / (t + 1)) / 2 with t = expm1(|x|), e ** |x| / 2 from 22 on."""
    a = m.abs_(x)
    t = expm1(below(a, 22.0))
    return with_sign(m.where(a > 22.0, exp_of(a, halvings=1), (t + t / (t + 1.0)) * 0.5), x)


def cosh(x: Scalar) -> Scalar:
    """E + 1 / (4 E) with E = e ** |x| / 2."""
    e = exp_of(m.abs_(x), halvings=1)
    return e + 0.25 / e


_ERF_P = (28414.4707, 4651.54945, 1313.48367, 89.6857977, 7.24079184, 0.0552620472)
_ERF_Q = (25181.6692, 12516.2103, 2817.98906, 366.668654, 28.3567928)
"""Of erf(x) / x in x * x, the last coefficient of the divisor being 1: tools/error_function.py."""
ERF_END, _GELU_END = 3.638420581817627, 5.125274181365967
"""The first f32 whose rounded quotient is 1, and 1 / 2; those of smaller ones are smaller."""
_GELU_P = tuple([c * 2.0**(5 - k) * 0.5**1.5 for k, c in enumerate(_ERF_P)])
_GELU_Q = tuple([c * 2.0**(5 - k) for k, c in enumerate(_ERF_Q)])
"""Of erf(x / sqrt(2)) / (2 x)."""


def _quotient(x: Scalar, end: float, p: tuple[float, ...], q: tuple[float, ...]) -> Scalar:
    """X p(x * x) / q(x * x) of the nearest x between -end and end."""
    a = above(below(x, end), -end)
    z = a * a
    return a * series(z, p) / monic(z, q)


def erf(x: Scalar) -> Scalar:
    """In f32 one quotient; in f64 those of Cody 1969 that `declare.special` cites."""
    if x.dtype is F32:
        return _quotient(x, ERF_END, _ERF_P, _ERF_Q)
    y = below(m.abs_(x), 6.0)
    z = y * y
    near = y * (horner(z, special.ERF_P) / horner(z, special.ERF_Q))
    far = 1.0 - exp_of(-z) * (horner(y, special.ERFC_P) / horner(y, special.ERFC_Q))
    return with_sign(m.where(y <= 0.46875, near, far), x)


def gelu(x: Scalar) -> Scalar:
    """X (1 / 2 + erf(x / sqrt(2)) / 2), the scales of erf in its coefficients."""
    return x * (_quotient(x, _GELU_END, _GELU_P, _GELU_Q) + 0.5)


_TANH_SCALE = math.sqrt(2.0 / math.pi)


def gelu_tanh(x: Scalar) -> Scalar:
    """X / (1 + e ** -2 s), which is x (1 + tanh(s)) / 2, for s = sqrt(2 / pi) (x + 0.044715 x**3).

    The power is the square of e ** -s, which so overflows where it should.
    """
    f = format_of(x)
    s = x * fma(x * x, -0.044715 * _TANH_SCALE, -_TANH_SCALE)
    n, y = _parts(above(below(s, 60.0), -60.0), 0.0, None, f.bias)
    scale = bitcast_to(shifted(n, f), x.dtype)
    e = fma(y, scale, scale)
    return x / fma(e, e, 1.0)
