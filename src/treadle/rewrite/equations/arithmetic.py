"""Identities of arithmetic on numbers."""

from __future__ import annotations

import math

from ...ir.graph import Value
from ..constants import number_of
from ..driver import floating, integer, real
from ..pattern import op, rule


def zeros(out: Value) -> Value:
    """Zeros of a type."""
    return op.full(value=0.0 if floating(out) else 0, shape=out.shape, dtype=out.dtype)


# Neutral constants. A float x + 0 is not x when x is -0; x + -0.0 and x - 0 are, always.
rule("mul_one", lambda x: x * 1, lambda x: x, when=lambda x: real(x))
rule("div_one", lambda x: x / 1, lambda x: x, when=lambda x: real(x))
rule("sub_zero", lambda x: x - 0, lambda x: x, when=lambda x: real(x))
rule("add_zero", lambda x: x + 0, lambda x: x, when=lambda x: integer(x))
rule("add_negative_zero", lambda x: x + -0.0, lambda x: x, when=lambda x: floating(x))
rule("add_zero_float", lambda x: x + 0.0, lambda x: x, domain="finite", when=lambda x: floating(x))
rule("mul_minus_one", lambda x: x * -1, lambda x: -x, when=lambda x: real(x))

# Absorbing constants and equal operands.
rule("mul_zero", lambda x: x * 0, lambda out: zeros(out), when=lambda x: integer(x))
rule("mul_zero_float", lambda x: x * 0.0, lambda out: zeros(out), domain="finite",
     when=lambda x: floating(x))
rule("sub_self", lambda x: x - x, lambda out: zeros(out), when=lambda x: integer(x))
rule("sub_self_float", lambda x: x - x, lambda out: zeros(out), domain="finite",
     when=lambda x: floating(x))
rule("div_self", lambda x: x / x,
     lambda out: op.full(value=1.0, shape=out.shape, dtype=out.dtype), domain="finite",
     when=lambda x: floating(x))

# Signs. IEEE 754 defines a - b as a + (-b).
rule("neg_neg", lambda x: op.neg(op.neg(x)), lambda x: x)
rule("add_neg", lambda x, y: x + (-y), lambda x, y: x - y, when=lambda x: real(x))
rule("sub_neg", lambda x, y: x - (-y), lambda x, y: x + y, when=lambda x: real(x))
rule("mul_neg_neg", lambda x, y: (-x) * (-y), lambda x, y: x * y, when=lambda x: real(x))
rule("div_neg_neg", lambda x, y: (-x) / (-y), lambda x, y: x / y, when=lambda x: real(x))
rule("neg_sub", lambda x, y: -(x - y), lambda x, y: y - x, domain="finite",
     when=lambda x: real(x))


def inverse_power_of_two(x: Value, c: Value) -> bool:
    """Whether c is a number whose reciprocal is exact in the dtype that x computes in."""
    number = number_of(c)
    if not floating(x) or x.dtype.bits < 16 or not isinstance(number, int | float):
        return False
    if not math.isfinite(number) or not number:
        return False
    mantissa, exponent = math.frexp(number)
    return abs(mantissa) == 0.5 and abs(exponent) < (1000 if x.dtype.bits == 64 else 120)


def times_inverse(x: Value, c: Value) -> Value:
    """x times the reciprocal of the constant c."""
    number = number_of(c)
    assert isinstance(number, int | float)
    return x * op.full(value=1.0 / number, shape=c.shape, dtype=c.dtype)


def inverse_fits(x: Value, c: Value) -> bool:
    """Whether the reciprocal of c is a normal number of its own dtype."""
    number = number_of(c)
    return inverse_power_of_two(x, c) and isinstance(number, int | float) and (
        x.dtype.name != "f16" or 2.0**-14 <= abs(1.0 / number) <= 2.0**15)


rule("div_power_of_two", lambda x, c: x / c, times_inverse, when=inverse_fits,
     examples=[{"x": "T", "c": 4.0}, {"x": "T", "c": -0.125}])

# Constants gather on one side, where folding combines them. Integers wrap, so these hold.
CHAIN = [{"x": "T", "a": 3, "b": 5}]


def _both(a: Value, b: Value) -> bool:
    return number_of(a) is not None and number_of(b) is not None


rule("add_add", lambda x, a, b: (x + a) + b, lambda x, a, b: x + (a + b), examples=CHAIN,
     when=lambda x, a, b: integer(x) and _both(a, b))
rule("mul_mul", lambda x, a, b: (x * a) * b, lambda x, a, b: x * (a * b), examples=CHAIN,
     when=lambda x, a, b: integer(x) and _both(a, b))
rule("add_add_float", lambda x, a, b: (x + a) + b, lambda x, a, b: x + (a + b), domain="fast",
     examples=CHAIN, when=lambda x, a, b: floating(x) and _both(a, b))
rule("mul_mul_float", lambda x, a, b: (x * a) * b, lambda x, a, b: x * (a * b), domain="fast",
     examples=CHAIN, when=lambda x, a, b: floating(x) and _both(a, b))
rule("div_constant", lambda x, c: x / c, lambda x, c: x * (1.0 / c), domain="fast",
     examples=[{"x": "T", "c": 3.0}], when=lambda x, c: floating(x) and number_of(c) is not None)
rule("zero_sub", lambda x: 0 - x, lambda x: -x, when=lambda x: integer(x))
rule("zero_sub_float", lambda x: 0.0 - x, lambda x: -x, domain="finite",
     when=lambda x: floating(x))
rule("add_sub_same", lambda x, y: (x + y) - y, lambda x: x, when=lambda x: integer(x))
rule("sub_add_same", lambda x, y: (x - y) + y, lambda x: x, when=lambda x: integer(x))
