"""Elementwise functions that NumPy lacks or leaves undefined, vectorised."""

from __future__ import annotations

import numpy as np

from ..ir.types import DType
from .arrays import Array, np_dtype

# Coefficients of the rational approximations of erf in W. J. Cody, "Rational Chebyshev
# approximations for the error function", Math. Comp. 23 (1969), as tabulated in SPECFUN's CALERF.
_A = (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2,
      3.20937758913846947e3)
_B = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
      2.84423683343917062e3)
_C = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1,
      2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
      1.23033935479799725e3)
_D = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
      1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
      1.23033935480374942e3)
_P = (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
      1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4)
_Q = (1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1,
      6.05183413124413191e-2, 2.33520497626869185e-3)
_INV_SQRT_PI = 5.6418958354775628695e-1


def _rational(x: Array, p: tuple[float, ...], q: tuple[float, ...]) -> Array:
    return np.polyval(p, x) / np.polyval(q, x)


def erf(x: Array) -> Array:
    """The error function; within 1e-15 of the exact value in f64."""
    a = np.abs(np.asarray(x, np.float64))
    out = np.where(np.isnan(a), np.nan, 1.0)
    small, large = a <= 0.46875, (a > 4.0) & (a < 6.0)
    middle = (a > 0.46875) & (a <= 4.0)
    out[small] = a[small] * _rational(a[small] ** 2, _A, _B)
    m = a[middle]
    out[middle] = 1.0 - np.exp(-m * m) * _rational(m, _C, _D)
    big = a[large]
    s = 1.0 / (big * big)
    tail = (_INV_SQRT_PI - s * _rational(s, _P, _Q)) / big
    out[large] = 1.0 - np.exp(-big * big) * tail
    return np.copysign(out, x).astype(x.dtype)


def truncdiv(a: Array, b: Array) -> Array:
    """Integer division towards zero; a zero divisor gives 0."""
    q = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return q
    inexact = (q * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    return (q + inexact).astype(a.dtype)


def power(a: Array, b: Array) -> Array:
    """`a ** b`; an integer to a negative power truncates towards zero, as 1 / a**-b does."""
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    out = np.power(a, np.maximum(b, 0))
    if a.dtype.kind == "i":
        unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
        out = np.where(b < 0, unit.astype(a.dtype), out)
    return out


def cast(dtype: DType, x: Array) -> Array:
    """Convert; floats outside an integer type's range saturate and NaN becomes 0."""
    target = np_dtype(dtype)
    if x.dtype == target:
        return x
    if dtype.sort in ("int", "uint") and x.dtype.kind not in "iub":
        real = np.real(x) if x.dtype.kind == "c" else x
        return _to_integer(dtype, real.astype(np.float32) if x.dtype.itemsize < 4 else real)
    if dtype.bits < 8 and dtype.sort in ("int", "uint"):
        shift = 8 - dtype.bits  # keep the low bits, then sign-extend
        wide = x.astype(np.int8 if dtype.sort == "int" else np.uint8)
        return ((wide << shift) >> shift).astype(target)
    return x.astype(target)


def _to_integer(dtype: DType, x: Array) -> Array:
    signed = dtype.sort == "int"
    low = -(2 ** (dtype.bits - 1)) if signed else 0
    high = 2 ** (dtype.bits - 1 if signed else dtype.bits) - 1
    wide = np.dtype(np.uint64 if dtype.name == "u64" else np.int64)
    over, under = x >= high + 1, x <= low  # high + 1 is a power of two, so exact in any float
    plain = np.where(over | under | np.isnan(x), 0, x).astype(wide)
    plain = np.where(over, wide.type(high), np.where(under, wide.type(low), plain))
    return plain.astype(np_dtype(dtype))


def bitcast(dtype: DType, x: Array) -> Array:
    """The same bits read as another type of the same width."""
    return np.ascontiguousarray(x).view(np_dtype(dtype)).reshape(x.shape)
