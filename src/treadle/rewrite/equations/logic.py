"""Identities of comparison, logic, extremes and idempotent functions."""

from __future__ import annotations

from ...ir.graph import Value
from ..driver import boolean, floating, integer, real
from ..pattern import op, rule

INF = float("inf")


def never_nan(x: Value) -> bool:
    """Whether every order comparison of such values has its opposite."""
    return integer(x) or boolean(x)


def idempotent(name: str) -> None:
    """f(f(x)) = f(x)."""
    rule(f"{name}_{name}", lambda x: getattr(op, name)(getattr(op, name)(x)),
         lambda x: getattr(op, name)(x))


for _name in ("abs", "sign", "floor", "ceil", "trunc", "round", "relu"):
    idempotent(_name)
rule("stop_gradient", lambda x: op.stop_gradient(x), lambda x: x)  # the gradient is taken before
rule("abs_neg", lambda x: op.abs(-x), lambda x: op.abs(x),
     when=lambda x: x.dtype.sort in ("int", "float"))
rule("relu_abs", lambda x: op.relu(op.abs(x)), lambda x: op.abs(x), when=lambda x: floating(x))

rule("max_self", lambda x: op.max(x, x), lambda x: x)
rule("min_self", lambda x: op.min(x, x), lambda x: x)
rule("max_negative_infinity", lambda x: op.max(x, -INF), lambda x: x, when=lambda x: floating(x))
rule("min_infinity", lambda x: op.min(x, INF), lambda x: x, when=lambda x: floating(x))
rule("max_neg_neg", lambda x, y: op.max(-x, -y), lambda x, y: -op.min(x, y), domain="finite",
     when=lambda x: floating(x))

rule("not_not", lambda x: op.logical_not(op.logical_not(x)), lambda x: x)
rule("not_eq", lambda x, y: op.logical_not(op.eq(x, y)), lambda x, y: op.ne(x, y))
rule("not_ne", lambda x, y: op.logical_not(op.ne(x, y)), lambda x, y: op.eq(x, y))
rule("not_lt", lambda x, y: op.logical_not(x < y), lambda x, y: x >= y,
     when=lambda x: never_nan(x))
rule("not_le", lambda x, y: op.logical_not(x <= y), lambda x, y: x > y,
     when=lambda x: never_nan(x))
rule("not_gt", lambda x, y: op.logical_not(x > y), lambda x, y: x <= y,
     when=lambda x: never_nan(x))
rule("not_ge", lambda x, y: op.logical_not(x >= y), lambda x, y: x < y,
     when=lambda x: never_nan(x))
rule("eq_self", lambda x: op.eq(x, x),
     lambda out: op.full(value=True, shape=out.shape, dtype=out.dtype),
     when=lambda x: never_nan(x))
rule("ne_self", lambda x: op.ne(x, x),
     lambda out: op.full(value=False, shape=out.shape, dtype=out.dtype),
     when=lambda x: never_nan(x))

rule("and_true", lambda x: op.logical_and(x, True), lambda x: x)
rule("and_false", lambda x: op.logical_and(x, False),
     lambda out: op.full(value=False, shape=out.shape, dtype=out.dtype))
rule("or_false", lambda x: op.logical_or(x, False), lambda x: x)
rule("or_true", lambda x: op.logical_or(x, True),
     lambda out: op.full(value=True, shape=out.shape, dtype=out.dtype))
rule("xor_false", lambda x: op.logical_xor(x, False), lambda x: x)
rule("and_self", lambda x: op.logical_and(x, x), lambda x: x)
rule("or_self", lambda x: op.logical_or(x, x), lambda x: x)
rule("bitwise_and_self", lambda x: op.bitwise_and(x, x), lambda x: x)
rule("bitwise_or_self", lambda x: op.bitwise_or(x, x), lambda x: x)
rule("bitwise_or_zero", lambda x: op.bitwise_or(x, 0), lambda x: x)
rule("bitwise_xor_zero", lambda x: op.bitwise_xor(x, 0), lambda x: x)
rule("bitwise_not_not", lambda x: op.bitwise_not(op.bitwise_not(x)), lambda x: x)
rule("shift_left_zero", lambda x: op.shift_left(x, 0), lambda x: x)
rule("shift_right_zero", lambda x: op.shift_right(x, 0), lambda x: x)

# Powers and roots.
rule("pow_one", lambda x: x ** 1, lambda x: x, when=lambda x: real(x))
rule("pow_zero", lambda x: x ** 0.0,
     lambda out: op.full(value=1.0, shape=out.shape, dtype=out.dtype),
     when=lambda x: floating(x))
rule("pow_two", lambda x: x ** 2, lambda x: x * x, when=lambda x: integer(x))
rule("pow_two_float", lambda x: x ** 2.0, lambda x: x * x, domain="fast",
     when=lambda x: floating(x))
rule("pow_half", lambda x: x ** 0.5, lambda x: op.sqrt(x), domain="fast",
     when=lambda x: floating(x))
rule("div_by_sqrt", lambda x, y: x / op.sqrt(y), lambda x, y: x * op.rsqrt(y), domain="fast",
     when=lambda y: floating(y))
rule("exp_log", lambda x: op.exp(op.log(x)), lambda x: x, domain="fast",
     when=lambda x: floating(x))
rule("log_exp", lambda x: op.log(op.exp(x)), lambda x: x, domain="fast",
     when=lambda x: floating(x))
