"""log, log1p, their inverse hyperbolic relatives, and powers.

log(1 + f) in f64 by s = f / (2 + f), as log(1 + f) = 2 atanh(s), in the order of Sun's
fdlibm; the coefficients for f32 are those of Cephes' logf.
"""

from __future__ import annotations

from typing import cast

from ...declare import m
from ...declare.scalar import Scalar, const, make
from ...ir.types import F32, F64
from .exponential import EXP_SHORT, exp_of
from .forms import (
    SINGLE,
    Format,
    fma,
    format_of,
    horner,
    rounded,
    scaled,
    series,
    sign_bits,
    with_sign,
)

_LOG32 = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
          -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
_LOG64 = (0.666666666666667, 0.3999999999989938, 0.28571428626031065, 0.2222221112572281,
          0.18182889786191042, 0.15331699633543858, 0.14616721179861816)
_LOG_SHORT = (0.6666666655440618, 0.4000012191414928, 0.28550812382590146, 0.2333069667245578)
"""(log((1 + s) / (1 - s)) - 2 s) / s**3 in s * s."""
_LOG_DEEP = (0.14285714285714285, 0.11111111111111474, 0.09090909090650176, 0.0769230776251003,
             0.0666665733245744, 0.05883025350730358, 0.05236442130314114, 0.05308630484722615)
"""(atanh(s) - s - s**3 / 3 - s**5 / 5) / s**7 in s * s."""
_THIRD, _THIRD_LOW = 0.3333333333333333, 1.850371707708594e-17
_FIFTH, _FIFTH_LOW = 0.2, -1.1102230246251566e-17
_ROOT_HALF = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}
"""The bits of sqrt(1 / 2)."""
_INF, _NAN = float("inf"), float("nan")


def _split(x: Scalar) -> tuple[Scalar, Scalar]:
    """The exponent e as a float and f with x = 2**e (1 + f), 1 + f in [sqrt(1/2), sqrt(2))."""
    t = format_of(x)
    root = _ROOT_HALF[t.mantissa]
    bits = sign_bits(x) - root
    e = make("shift_right", bits, const(t.mantissa, t.whole))
    mantissa = make("bitwise_and", bits, const((1 << t.mantissa) - 1, t.whole)) + root
    return m.cast(e, t.dtype), m.bitcast(mantissa, t.dtype) - 1.0


def _parts(x: Scalar) -> tuple[Scalar, Scalar]:
    """`_split` of any positive number."""
    t = format_of(x)
    up = t.mantissa + 2
    tiny = x < t.smallest
    e, f = _split(m.where(tiny, x * 2.0**up, x))
    return m.where(tiny, e - float(up), e), f


def _log_of(e: Scalar, f: Scalar, low: Scalar | None = None) -> Scalar:
    """log(2**e (1 + f)) + low; `low` is small."""
    t: Format = format_of(f)
    rest = e * t.ln2[1] if low is None else fma(e, t.ln2[1], low)
    if t is SINGLE:
        z = f * f
        y = fma(horner(f, _LOG32), z * f, fma(z, -0.5, rest))
        return fma(e, t.ln2[0], f + y)
    s, half = f / (f + 2.0), f * f * 0.5
    z = s * s
    y = fma(s, fma(series(z, _LOG64), z, half), rest)
    return fma(e, t.ln2[0], f - (half - y))


def log(x: Scalar) -> Scalar:
    """The natural logarithm."""
    y = _log_of(*_parts(x))
    y = m.where(m.eq(x, _INF), x, y)
    y = m.where(m.eq(x, 0.0), m.like(x, -_INF), y)
    return m.where(m.or_(x < 0.0, m.ne(x, x)), m.like(x, _NAN), y)


def log1p(x: Scalar) -> Scalar:
    """log(u) with u = 1 + x rounded, plus what rounding lost, divided by u."""
    u = x + 1.0
    lost = m.where(m.abs_(x) < 1.0, x - (u - 1.0), 1.0 - (u - x))
    e, f = _split(u)
    y = _log_of(e, f, lost / u)
    y = m.where(m.eq(x, _INF), x, y)
    y = m.where(m.eq(x, -1.0), m.like(x, -_INF), y)
    y = m.where(m.eq(x, 0.0), x, y)
    return m.where(m.or_(x < -1.0, m.ne(x, x)), m.like(x, _NAN), y)


_LN2, _HUGE = 0.6931471805599453, 2.0**28


def asinh(x: Scalar) -> Scalar:
    """log1p(a + a a / (1 + sqrt(1 + a a))), log(2 a) where that is the same."""
    a = m.abs_(x)
    z, huge = a * a, a > _HUGE
    y = log1p(m.where(huge, a - 1.0, a + z / (m.sqrt(z + 1.0) + 1.0)))
    return with_sign(y + m.where(huge, m.like(x, _LN2), m.like(x, 0.0)), x)


def acosh(x: Scalar) -> Scalar:
    """log1p(t + sqrt(2 t + t t)) with t = x - 1, log(2 x) where that is the same."""
    t, huge = x - 1.0, x > _HUGE
    y = log1p(m.where(huge, t, t + m.sqrt(fma(t, t, t * 2.0))))
    y = y + m.where(huge, m.like(x, _LN2), m.like(x, 0.0))
    return m.where(x < 1.0, m.like(x, _NAN), y)


def atanh(x: Scalar) -> Scalar:
    """log1p(2 a / (1 - a)) / 2."""
    a = m.abs_(x)
    y = log1p((a + a) / (1.0 - a)) * 0.5
    return m.where(m.ne(y, y), y, with_sign(y, x))


def _two_logs(a: Scalar) -> tuple[Scalar, Scalar]:
    """The logarithm of a positive f64 as a sum, to about 100 bits.

    2 atanh(s), where s, its square and the sums with the first coefficients have two parts each.
    Products and sums of pairs after T. J. Dekker, "A floating-point technique for extending the
    available precision" (1971), with fused remainders.
    """
    e, f = _parts(a)
    d = f + 2.0
    s = f / d
    s_low = (fma(-s, d, f) - s * (f - (d - 2.0))) / d
    z = s * s
    z_low = fma(s, s, -z) + (s + s) * s_low
    p = z * series(z, _LOG_DEEP)
    t = p + _FIFTH
    t_low = (_FIFTH - t) + p + _FIFTH_LOW
    u, u_low = _times(z, z_low, t, t_low)
    v = u + _THIRD
    w, w_low = _times(z, z_low, v, (_THIRD - v) + u + (u_low + _THIRD_LOW))
    g, g_low = _times(s, s_low, w, w_low)
    h = s + g
    h_low = (s - h) + g + (g_low + s_low)
    high, low = format_of(a).ln2
    y = fma(e, high, h + h)
    return y, (fma(e, high, -y) + (h + h)) + fma(e, low, h_low + h_low)


def _times(a: Scalar, a_low: Scalar, b: Scalar, b_low: Scalar) -> tuple[Scalar, Scalar]:
    y = a * b
    return y, fma(a, b, -y) + fma(a, b_low, a_low * b)


def _short_log(a: Scalar) -> Scalar:
    """The logarithm of a positive f64, to about 35 bits."""
    e, f = _parts(a)
    s = f / (f + 2.0)
    z = s * s
    return fma(e, _LN2, fma(series(z, _LOG_SHORT), s * z, s + s))


def _magnitude(a: Scalar, b: Scalar, short: bool) -> Scalar:
    """`a ** b` for f64 a >= 0, which is 1 or NaN where IEEE 754 has special rules."""
    whole, low = (_short_log(a), None) if short else _two_logs(a)
    ends = m.or_(m.eq(a, 0.0), m.eq(a, _INF))
    whole = m.where(ends, m.where(m.eq(a, 0.0), m.like(a, -_INF), a), whole)
    y = b * whole
    if low is None:
        return exp_of(y, coefficients=EXP_SHORT)
    rest = fma(b, whole, -y) + b * m.where(ends, m.like(a, 0.0), low)
    return exp_of(y, m.where(m.abs_(y) < 800.0, rest, m.like(a, 0.0)))


def pow64(a: Scalar, b: Scalar, short: bool = False) -> Scalar:
    """`a ** b` in f64; `short` is enough for a result in f32."""
    if a.op == "const" and a.value == 2.0:
        return exp2(b)
    size = m.abs_(a)
    y = m.where(m.ne(a, a), a, _magnitude(size, b, short))
    whole = m.eq(m.trunc(b), b)
    odd = m.and_(whole, m.ne(m.trunc(b * 0.5), b * 0.5))
    negative = sign_bits(a) < 0
    y = m.where(m.and_(negative, odd), -y, y)
    inside = m.and_(a < 0.0, m.ne(size, _INF))
    y = m.where(m.and_(inside, m.and_(m.not_(whole), m.eq(b, b))), m.like(a, _NAN), y)
    one = m.or_(m.eq(a, 1.0), m.or_(m.eq(b, 0.0), m.and_(
        m.eq(a, -1.0), m.eq(m.abs_(b), _INF))))
    return m.where(one, m.like(a, 1.0), y)


def exp2(x: Scalar) -> Scalar:
    """2 ** x in f64."""
    t = format_of(x)
    x = m.where(x > 1025.0, m.like(x, 1025.0), m.where(x < -1076.0, m.like(x, -1076.0), x))
    n, bits = rounded(x, 1.0)
    r = x - n
    return scaled(exp_of(r * _LN2, fma(r, _LN2, -(r * _LN2)) + r * 2.3190468138462996e-17),
                  bits - t.magic_bits, t)


def pow32(a: Scalar, b: Scalar) -> Scalar:
    """`a ** b` in f32 by f64."""
    wide = [const(cast(float, x.value), F64) if x.op == "const" else m.cast(x, F64) for x in (a, b)]
    return m.cast(pow64(wide[0], wide[1], short=True), F32)
