"""What the functions are made of: fused steps, signs, scales, the layout of floating formats."""

from __future__ import annotations

from collections.abc import Sequence

from ...declare import m
from ...declare.scalar import Scalar, bitcast_to, const, intern, make
from ...ir.types import F32, F64, I32, I64, DType
from ...records import dataclass


@dataclass(frozen=True)
class Format:
    """A floating format. Adding `magic` rounds to an integer, which then is in the low bits.

    `ln2` and what is left of it: the first part times an exponent is exact.
    """

    dtype: DType
    whole: DType
    mantissa: int
    bias: int
    ln2: tuple[float, float]

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa."""
        return 1.5 * 2.0**self.mantissa

    @property
    def magic_bits(self) -> int:
        """The bits of `magic`."""
        return (self.bias + self.mantissa << self.mantissa) + (1 << self.mantissa - 1)

    @property
    def smallest(self) -> float:
        """The smallest normal number."""
        return 2.0**(1 - self.bias)


SINGLE = Format(F32, I32, 23, 127, (0.693359375, -2.12194440e-4))
DOUBLE = Format(F64, I64, 52, 1023, (0.693147180559663, 2.8235290563031577e-13))


def format_of(x: Scalar) -> Format:
    """The format of an f32 or f64 expression."""
    return SINGLE if x.dtype is F32 else DOUBLE


def fma(a: Scalar, b: Scalar | float, c: Scalar | float) -> Scalar:
    """`a * b + c`, rounded once."""
    full = tuple([x if isinstance(x, Scalar) else const(x, a.dtype) for x in (a, b, c)])
    return intern("fma", a.dtype, full)


def horner(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """A polynomial; the coefficient of the highest power first."""
    return _steps(const(coefficients[0], x.dtype), x, coefficients[1:])


def monic(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """A polynomial whose highest power counts once; the constant first, without that power."""
    return _steps(x + coefficients[-1], x, coefficients[-2::-1])


def _steps(y: Scalar, x: Scalar, coefficients: Sequence[float]) -> Scalar:
    for c in coefficients:
        y = fma(y, x, c)
    return y


def series(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """A polynomial; the constant first."""
    return horner(x, coefficients[::-1])


def below(x: Scalar, top: float) -> Scalar:
    """min(x, top) that keeps NaN."""
    return m.where(m.like(x, top) < x, m.like(x, top), x)


def above(x: Scalar, low: float) -> Scalar:
    """max(x, low) that keeps NaN."""
    return m.where(m.like(x, low) > x, m.like(x, low), x)


def sign_bits(x: Scalar) -> Scalar:
    """The bits as a signed integer, which is negative where the sign is."""
    return bitcast_to(x, format_of(x).whole)


def with_sign(y: Scalar, x: Scalar) -> Scalar:
    """A `y` that is not negative, with the sign of `x`."""
    whole = format_of(x).whole
    sign = make("bitwise_and", sign_bits(x), const(-(1 << whole.bits - 1), whole))
    return bitcast_to(make("bitwise_or", bitcast_to(y, whole), sign), y.dtype)


def rounded(x: Scalar, scale: float) -> tuple[Scalar, Scalar]:
    """The integer next to `x * scale`: as a float, and in the low bits of an integer."""
    f = format_of(x)
    t = fma(x, scale, f.magic)
    return t - f.magic, bitcast_to(t, f.whole)


def shifted(n: Scalar, f: Format) -> Scalar:
    """The low bits of an integer at the place of the exponent; `magic` has none there."""
    return make("shift_left", n, const(f.mantissa, f.whole))


def power_of_two(n: Scalar, f: Format) -> Scalar:
    """2**n for an integer n from 1 - bias to bias."""
    return bitcast_to(shifted(n + f.bias, f), f.dtype)


def scaled(y: Scalar, n: Scalar, f: Format) -> Scalar:
    """`y * 2**n` in two steps, so that denormals round once."""
    half = make("shift_right", n, const(1, f.whole))
    return y * power_of_two(half, f) * power_of_two(n - half, f)


def rarely(condition: Scalar, usual: Scalar, unusual: Scalar, x: Scalar) -> Scalar:
    """`unusual`, a function of `x`, where the condition holds.

    It is not computed for vectors where the condition never holds.
    """
    return intern("rarely", usual.dtype, (condition, usual, unusual, x))
