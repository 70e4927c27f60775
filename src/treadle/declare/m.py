"""The math namespace of elementwise bodies."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.types import DType
from .scalar import Num, Scalar, bitcast_to, cast_to, const, make


def _unary(name: str) -> Callable[[Num], Scalar]:
    return lambda x: make(name, x)


def _binary(name: str) -> Callable[[Num, Num], Scalar]:
    return lambda a, b: make(name, a, b)


exp, expm1, log, log1p, sqrt, erf = map(
    _unary, ("exp", "expm1", "log", "log1p", "sqrt", "erf"))
floor, ceil, round_, trunc = map(_unary, ("floor", "ceil", "round", "trunc"))
sin, cos, tan, asin, acos, atan = map(_unary, ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, tanh = map(_unary, ("sinh", "cosh", "tanh"))
asinh, acosh, atanh = map(_unary, ("asinh", "acosh", "atanh"))
abs_, sign, not_ = map(_unary, ("abs", "sign", "bitwise_not"))
max_, min_, eq, ne, atan2, fmod, truncdiv, and_, or_ = map(_binary, (
    "max", "min", "eq", "ne", "atan2", "fmod", "truncdiv", "bitwise_and", "bitwise_or"))


def cast(x: Scalar, dtype: DType) -> Scalar:
    """Convert to `dtype`."""
    return cast_to(x, dtype)


def bitcast(x: Scalar, dtype: DType) -> Scalar:
    """Read the bits as `dtype`."""
    return bitcast_to(x, dtype)


def like(x: Scalar, value: float) -> Scalar:
    """The constant `value` in the dtype of `x`."""
    return const(value, x.dtype)


def where(cond: Scalar, a: Num, b: Num) -> Scalar:
    """`a` where `cond`, else `b`."""
    return make("where", cond, a, b)
