"""sin, cos, tan and their inverses, in f64; f32 goes through it with shorter polynomials.

Arguments up to 2**30 are reduced by pi / 2 in three parts (Cody and Waite 1980), larger ones by the
bits of 2 / pi that matter (M. Payne and R. Hanek, "Radian reduction for trigonometric functions",
1983) in integers of 32 bits. The inverses reduce as Sun's fdlibm does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...declare import m
from ...declare.scalar import Scalar, bitcast_to, const, make
from ...ir.types import DTYPES, F64, I64
from .forms import fma, rarely, rounded, series, sign_bits, with_sign

_SIN = (-0.16666666666666666, 0.008333333333333331, -0.0001984126984126506, 2.7557319219335453e-06,
        -2.5052106231157904e-08, 1.605853141458901e-10, -7.586685070091267e-13)
_SIN_SHORT = (-0.16666666663853044, 0.008333331873837089, -0.00019840086263755443,
              2.7249864655139585e-06)
"""(sin(r) - r) / r**3 in r * r for |r| <= pi / 4."""
_COS = (0.041666666666666664, -0.0013888888888887395, 2.4801587298763433e-05,
        -2.7557317270560326e-07, 2.0876146024689747e-09, -1.1382614868556325e-11)
_COS_SHORT = (0.04166666666431933, -0.0013888887671288108, 2.480059998353171e-05,
              -2.7300908167996537e-07)
"""(cos(r) - 1 + r * r / 2) / r**4."""
_ASIN = (0.16666666666666669, 0.07499999999998425, 0.04464285714637338, 0.030381944137085216,
         0.022372173002005596, 0.017352391265909227, 0.013971235301124539, 0.011478952690257387,
         0.010324318288744113, 0.00545087818772055, 0.017419357964884856, -0.014881409392818066,
         0.02877844261259304)
"""(asin(s) - s) / s**3 in s * s for s <= 1 / 2."""
_ATAN = (-0.3333333333333333, 0.19999999999999404, -0.14285714285565465, 0.111111110965279,
         -0.09090908350382436, 0.07692285419714515, -0.06666239748865294, 0.05876924062763387,
         -0.05216532007308444, 0.044916556747777434, -0.033114228762660534, 0.014759380407779155)
"""(atan(t) - t) / t**3 in t * t for t <= 7 / 16."""
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_PI = (3.141592653589793, 1.2246467991473532e-16)
_LARGE = 2.0**30
_TWO_OVER_PI = (
    0, 2734261102, 1313084713, 4230436817, 4113882560, 3680671129, 1011060801, 4266746795,
    3736847713, 3072618042, 1112396512, 105459434, 164729372, 4263373596, 2972297022, 3900847605,
    784024708, 3919343654, 3026157121, 965858873, 2203269620, 2625920907, 3187222587, 536385535,
    3724908559, 4012839307, 1510632735, 1832287951, 667617719, 1330003814, 2657085997, 1965537991,
    3957715323, 1023883767, 2320667370, 1811636145, 529358088, 1443049542, 4235946923)
"""32 bits each, after a word of integer bits."""
_LIMBS, _LIMB = 7, 0xFFFFFFFF
U64 = DTYPES["u64"]


def _u64(value: int) -> Scalar:
    return const(value, U64)


def _left(x: Scalar, by: int | Scalar) -> Scalar:
    return make("shift_left", x, _u64(by) if isinstance(by, int) else by)


def _right(x: Scalar, by: int | Scalar) -> Scalar:
    return make("shift_right", x, _u64(by) if isinstance(by, int) else by)


def _and(x: Scalar, mask: int) -> Scalar:
    return make("bitwise_and", x, const(mask, x.dtype))


def _or(a: Scalar, b: Scalar) -> Scalar:
    return make("bitwise_or", a, b)


def _words(skip: Scalar, most: int) -> list[Scalar]:
    """`_LIMBS` words of 2 / pi from word `skip`, which is at most `most`."""
    words = [_u64(w) for w in _TWO_OVER_PI[:most + _LIMBS]]
    step = 1 << most.bit_length() - 1
    while step:
        far = m.ne(_and(skip, step), 0)
        words = [m.where(far, words[i + step], words[i]) if i + step < len(words) else words[i]
                 for i in range(min(len(words), _LIMBS + step - 1))]
        step //= 2
    return words


def _product(mantissa: Scalar, words: Sequence[Scalar]) -> list[Scalar]:
    """The lowest limbs of the product, least significant first; the first word is the highest."""
    low, high = _and(mantissa, _LIMB), _right(mantissa, 32)
    columns: list[list[Scalar]] = [[] for _ in range(len(words) + 2)]
    for i, w in enumerate(reversed(words)):
        a, b = low * w, high * w
        columns[i].append(_and(a, _LIMB))
        columns[i + 1] += [_right(a, 32), _and(b, _LIMB)]
        columns[i + 2].append(_right(b, 32))
    limbs, carry = list[Scalar](), _u64(0)
    for column in columns[:len(words)]:
        for x in column:
            carry = carry + x
        limbs.append(_and(carry, _LIMB))
        carry = _right(carry, 32)
    return limbs


def _far(x: Scalar, most: int) -> tuple[Scalar, Scalar]:
    """q and r with x = q pi / 2 + r for |x| >= 2**30: 126 bits of the fraction of 2 |x| / pi."""
    bits = _and(bitcast_to(x, U64), (1 << 63) - 1)
    mantissa = _or(_and(bits, (1 << 52) - 1), _u64(1 << 52))
    place = _right(bits, 52) - 1045
    limbs = _product(mantissa, _words(_right(place, 5), most))
    top, middle, last = (_or(_left(limbs[i], 32), limbs[i - 1]) for i in (6, 4, 2))
    by = _and(place, 31)
    rest = 64 - by
    top, middle = _or(_left(top, by), _right(middle, rest)), _or(
        _left(middle, by), _right(last, rest))
    q = bitcast_to(_right(top, 62), I64)
    high = bitcast_to(_or(_left(top, 2), _right(middle, 62)), I64)
    f = m.cast(high, F64) * 2.0**-64 + m.cast(_left(middle, 2), F64) * 2.0**-128
    q = m.where(high < 0, q + 1, q)
    r = fma(f, _HALF_PI[0], f * _HALF_PI[1])
    negative = sign_bits(x) < 0
    return m.where(negative, -q, q), m.where(negative, -r, r)


def _near(x: Scalar) -> tuple[Scalar, Scalar]:
    n, q = rounded(x, 0.6366197723675814)
    r = x
    for part in _HALF_PI:
        r = fma(n, -part, r)
    return q, r


_Waves: TypeAlias = Callable[[Scalar, Scalar, Scalar], Scalar]


def _circular(x: Scalar, short: bool, wave: _Waves) -> Scalar:
    """`wave(q, sin(r), cos(r))` for x = q pi / 2 + r; NaN of infinities."""
    def at(q: Scalar, r: Scalar) -> Scalar:
        z = r * r
        s = fma(r * z, series(z, _SIN_SHORT if short else _SIN), r)
        half = z * 0.5
        top = 1.0 - half
        c = top + fma(z * z, series(z, _COS_SHORT if short else _COS), (1.0 - top) - half)
        return wave(q, s, c)

    a = m.abs_(x)
    y = rarely(a > _LARGE, at(*_near(x)), at(*_far(x, 3 if short else 31)), x)
    return m.where(m.eq(a, float("inf")), m.like(x, float("nan")), y)


def _turned(q: Scalar, s: Scalar, c: Scalar) -> Scalar:
    y = m.where(m.ne(_and(q, 1), 0), c, s)
    return m.where(m.ne(_and(q, 2), 0), -y, y)


def sin(x: Scalar, short: bool = False) -> Scalar:
    """Both series, chosen and signed by the quadrant."""
    return m.where(m.eq(x, 0.0), x, _circular(x, short, _turned))


def cos(x: Scalar, short: bool = False) -> Scalar:
    """The sine one quadrant further."""
    return _circular(x, short, lambda q, s, c: _turned(q + 1, s, c))


def tan(x: Scalar, short: bool = False) -> Scalar:
    """sin / cos, or -cos / sin in odd quadrants."""
    def wave(q: Scalar, s: Scalar, c: Scalar) -> Scalar:
        odd = m.ne(_and(q, 1), 0)
        return m.where(odd, c, s) / m.where(odd, -s, c)

    return m.where(m.eq(x, 0.0), x, _circular(x, short, wave))


def _half_asin(a: Scalar) -> tuple[Scalar, Scalar]:
    """Whether a > 1 / 2, and asin(a), or there asin(sqrt((1 - a) / 2))."""
    far = a > 0.5
    z = m.where(far, (1.0 - a) * 0.5, a * a)
    s = m.where(far, m.sqrt(z), a)
    return far, fma(s * z, series(z, _ASIN), s)


def asin(x: Scalar) -> Scalar:
    """Above 1 / 2 it is pi / 2 less twice the asin of sqrt((1 - a) / 2)."""
    far, p = _half_asin(m.abs_(x))
    y = m.where(far, _HALF_PI[0] - (p * 2.0 - _HALF_PI[1]), p)
    return m.where(m.ne(y, y), y, with_sign(y, x))


def acos(x: Scalar) -> Scalar:
    """2 asin(sqrt((1 - a) / 2)) above 1 / 2, pi / 2 - asin(x) below."""
    far, p = _half_asin(m.abs_(x))
    p2, negative = p * 2.0, x < 0.0
    signed = m.where(negative, -p, p)
    return m.where(far, m.where(negative, _PI[0] - (p2 - _PI[1]), p2),
                   _HALF_PI[0] - (signed - _HALF_PI[1]))


_CUTS = ((7 / 16, 0.5, 0.4636476090008061, 2.2698777452961687e-17),
         (11 / 16, 1.0, 0.7853981633974483, 3.061616997868383e-17),
         (19 / 16, 1.5, 0.982793723247329, 1.3903311031230998e-17))
"""From where on atan(a) = atan(c) + atan((a - c) / (1 + a c)): c, and its arc tangent in two."""


def _atan(a: Scalar) -> Scalar:
    """The arc tangent of a number that is not negative."""
    top, bottom = a, m.like(a, 1.0)
    base, low = m.like(a, 0.0), m.like(a, 0.0)
    for cut, c, high, rest in _CUTS:
        above = a >= cut
        top, bottom = m.where(above, a - c, top), m.where(above, fma(a, c, 1.0), bottom)
        base, low = m.where(above, m.like(a, high), base), m.where(above, m.like(a, rest), low)
    above = a >= 39 / 16
    t = m.where(above, m.like(a, -1.0), top) / m.where(above, a, bottom)
    base, low = m.where(above, m.like(a, _HALF_PI[0]), base), m.where(
        above, m.like(a, _HALF_PI[1]), low)
    z = t * t
    return base + (fma(t * z, series(z, _ATAN), low) + t)


def atan(x: Scalar) -> Scalar:
    """Around one of five points."""
    return with_sign(_atan(m.abs_(x)), x)


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """The arc tangent of the smaller by the larger, taken to the quadrant."""
    a, b = m.abs_(y), m.abs_(x)
    steep = a > b
    top, bottom = m.where(steep, b, a), m.where(steep, a, b)
    q = m.where(m.eq(top, bottom), m.where(m.eq(top, 0.0), top, m.like(a, 1.0)), top / bottom)
    r = _atan(q)
    r = m.where(steep, _HALF_PI[0] - (r - _HALF_PI[1]), r)
    r = m.where(sign_bits(x) < 0, _PI[0] - (r - _PI[1]), r)
    return m.where(m.ne(r, r), r, with_sign(r, y))
