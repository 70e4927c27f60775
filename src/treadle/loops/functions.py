"""Vector mathematics in f32 as expressions of simpler primitives.

Errors are in units in the last place (ulp) against the exact result rounded once, measured by
tests/loops/test_functions.py. Infinities, NaN, signed zeros and denormals come out as IEEE 754
functions should give them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from ..declare import m
from ..declare.scalar import (
    PRIMS,
    AttrItems,
    Scalar,
    bitcast_to,
    cast_to,
    const,
    fold,
    intern,
    make,
    rebuild,
)
from ..ir.types import F32, I32

Body: TypeAlias = Callable[..., Scalar]


def fma(a: Scalar, b: Scalar | float, c: Scalar | float) -> Scalar:
    """`a * b + c`, rounded once."""
    full = tuple([x if isinstance(x, Scalar) else const(x, a.dtype) for x in (a, b, c)])
    return intern("fma", a.dtype, full)


def _horner(x: Scalar, *coefficients: float) -> Scalar:
    y: Scalar | float = coefficients[0]
    for c in coefficients[1:]:
        y = fma(y if isinstance(y, Scalar) else const(y, x.dtype), x, c)
    return cast(Scalar, y)


def _below(x: Scalar, top: float) -> Scalar:
    """min(x, top) that keeps NaN."""
    return m.where(m.like(x, top) < x, m.like(x, top), x)


def _above(x: Scalar, low: float) -> Scalar:
    return m.where(m.like(x, low) > x, m.like(x, low), x)


_MAGIC = 12582912.0
"""1.5 * 2**23: adding it rounds to an integer, which then is in the low bits."""
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4


def _power_of_two(n: Scalar) -> Scalar:
    """2**n for an i32 n in [-126, 127]."""
    return bitcast_to(make("shift_left", n + 127, const(23, I32)), F32)


def _reduced(x: Scalar) -> tuple[Scalar, Scalar]:
    """n as i32 and r with x = n ln 2 + r, |r| <= ln 2 / 2 (Cody and Waite)."""
    t = fma(x, 1.4426950408889634, _MAGIC)
    n = t - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    return bitcast_to(t, I32) - 0x4B400000, r


def _exp(x: Scalar) -> Scalar:
    """2 ulp. Degree 5 for exp(r) (Cephes expf), scaled in two steps: denormals round once."""
    n, r = _reduced(_above(_below(x, 89.0), -104.0))
    p = _horner(r, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                1.6666665459e-1, 5.0000001201e-1)
    half = make("shift_right", n, const(1, I32))
    return (fma(p, r * r, r) + 1.0) * _power_of_two(half) * _power_of_two(n - half)


def _expm1(x: Scalar) -> Scalar:
    """2 ulp. 2**n (exp(r) - 1) + (2**n - 1), at half the scale so that it cannot overflow early."""
    n, r = _reduced(_above(_below(x, 89.0), -18.0))
    p = _horner(r, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                1.6666665459e-1, 5.0000001201e-1)
    scale = _power_of_two(n - 1)
    y = fma(fma(p, r * r, r), scale, scale - 0.5) * 2.0
    return m.where(m.eq(x, 0.0), x, y)


def _log_parts(x: Scalar) -> tuple[Scalar, Scalar]:
    """The exponent e as f32 and f with x = 2**e (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1]."""
    bits = bitcast_to(x, I32) - 0x3F3504F3
    e = make("shift_right", bits, const(23, I32))
    mantissa = make("bitwise_and", bits, const(0x7FFFFF, I32)) + 0x3F3504F3
    return m.cast(e, F32), bitcast_to(mantissa, F32) - 1.0


def _log_of(e: Scalar, f: Scalar) -> Scalar:
    """log(2**e (1 + f)); degree 8 (Cephes logf)."""
    z = f * f
    p = _horner(f, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
                1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
                3.3333331174e-1)
    y = fma(p, z * f, fma(e, _LN2_LOW, z * -0.5))
    return fma(e, _LN2_HIGH, f + y)


def _log(x: Scalar) -> Scalar:
    """2 ulp."""
    tiny = x < 1.17549435e-38
    e, f = _log_parts(m.where(tiny, x * 8388608.0, x))
    y = _log_of(m.where(tiny, e - 23.0, e), f)
    y = m.where(m.eq(x, float("inf")), x, y)
    y = m.where(m.eq(x, 0.0), m.like(x, float("-inf")), y)
    return m.where(m.or_(x < 0.0, m.ne(x, x)), m.like(x, float("nan")), y)


def _log1p(x: Scalar) -> Scalar:
    """3 ulp. log(u) with u = 1 + x rounded, plus what rounding lost, divided by u."""
    u = x + 1.0
    lost = m.where(m.abs_(x) < 1.0, x - (u - 1.0), 1.0 - (u - x))
    e, f = _log_parts(u)
    y = _log_of(e, f) + lost / u
    y = m.where(m.abs_(x) < 1e-4, fma(x * x, -0.5, x), y)
    y = m.where(m.eq(x, float("inf")), x, y)
    y = m.where(m.eq(x, -1.0), m.like(x, float("-inf")), y)
    y = m.where(m.eq(x, 0.0), x, y)
    return m.where(m.or_(x < -1.0, m.ne(x, x)), m.like(x, float("nan")), y)


_ERF_P = (-1.3618908231e-08, 4.7684050182e-06, 0.00038265604277, 0.0038530908323,
          0.054369392421, 0.18505351493, 1.12837917)
_ERF_Q = (6.3907928028e-05, 0.0013124131456, 0.015479382526, 0.11396060979, 0.49733283896, 1.0)
"""Of erf(x) / x in x * x for |x| <= 4: the fit of `declare.special`."""


def _erf(x: Scalar) -> Scalar:
    """5 ulp."""
    a = _above(_below(x, 3.9192059), -3.9192059)
    z = a * a
    return _above(_below(a * _horner(z, *_ERF_P) / _horner(z, *_ERF_Q), 1.0), -1.0)


def _tanh(x: Scalar) -> Scalar:
    """3 ulp: t / (t + 2) with t = expm1(2x); 1 from |x| = 9.02 on."""
    t = _expm1(_below(m.abs_(x), 9.02) * 2.0)
    y = t / (t + 2.0)
    return m.where(x < 0.0, -y, m.where(m.eq(x, 0.0), x, y))


FUNCTIONS: dict[str, Body] = {
    "exp": _exp, "expm1": _expm1, "log": _log, "log1p": _log1p, "erf": _erf, "tanh": _tanh}
"""Bodies for f32; other dtypes and functions are the printer's."""


def _pow(a: Scalar, b: Scalar) -> Scalar | None:
    """Powers by small whole numbers are products, exact as far as multiplication is."""
    if b.op != "const" or b.value not in (1.0, 2.0, 3.0):
        return None
    return {1.0: a, 2.0: a * a, 3.0: a * a * a}[cast(float, b.value)]


def open_functions(roots: Sequence[Scalar]) -> list[Scalar]:
    """`roots` with derived primitives opened and functions replaced by their bodies."""
    def op(e: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        if PRIMS.get(e.op, PRIMS["cast"]).rule in ("compare", "order"):
            args = tuple([cast_to(a, F32) if a.dtype.narrow else a for a in args])
        if e.op == "pow" and e.dtype.sort == "float" and (found := _pow(*args)) is not None:
            return found
        if e.op in FUNCTIONS and e.dtype is F32:
            return FUNCTIONS[e.op](*args)
        body = PRIMS[e.op].body if e.op in PRIMS else None
        if body is None:
            return rebuild(e, args)
        return open_functions([body(*args, **dict(cast(AttrItems, e.value or ())))])[0]

    return fold(roots, lambda s: s, op)
