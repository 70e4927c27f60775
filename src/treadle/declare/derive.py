"""Derivatives and simplification of scalar expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import cast

from ..ir.types import DType
from . import m
from .scalar import (
    PRIMS,
    AttrItems,
    Num,
    Scalar,
    cast_to,
    const,
    evaluate,
    fold,
    intern,
    is_const,
    make,
    rebuild,
    walk,
)

TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)

UNARY: dict[str, Callable[[Scalar], Num]] = {
    "neg": lambda _: -1,
    "abs": lambda x: m.sign(x),  # 0 at 0
    **{n: lambda _: 0 for n in ("sign", "floor", "ceil", "trunc", "bitcast")},
    "round": lambda _: 1,  # straight through
    "exp": lambda x: m.exp(x),
    "expm1": lambda x: m.exp(x),
    "log": lambda x: 1 / x,
    "log1p": lambda x: 1 / (1 + x),
    "sqrt": lambda x: m.where(x > 0, 0.5 / m.sqrt(x), 0),  # 0 where x <= 0
    "tan": lambda x: 1 + m.tan(x) * m.tan(x),
    "tanh": lambda x: 1 - m.tanh(x) * m.tanh(x),
    "erf": lambda x: TWO_OVER_SQRT_PI * m.exp(-x * x),
    "sin": lambda x: m.cos(x),
    "cos": lambda x: -m.sin(x),
    "asin": lambda x: 1 / m.sqrt(1 - x * x),
    "acos": lambda x: -1 / m.sqrt(1 - x * x),
    "atan": lambda x: 1 / (1 + x * x),
    "sinh": lambda x: m.cosh(x),
    "cosh": lambda x: m.sinh(x),
    "asinh": lambda x: 1 / m.sqrt(x * x + 1),
    "acosh": lambda x: 1 / m.sqrt(x * x - 1),
    "atanh": lambda x: 1 / (1 - x * x),
}


def _pow(a: Scalar, b: Scalar) -> tuple[Num, Num]:
    """The base's partial is 0 at exponent 0; the exponent's needs a positive base."""
    return (m.where(m.eq(b, 0), 0, b * a ** (b - 1)),
            m.where(a > 0, a**b * m.log(m.where(a > 0, a, 1)), 0))


def _atan2(y: Scalar, x: Scalar) -> tuple[Num, Num]:
    """0 at the origin; scaled by the larger operand, so that no square overflows."""
    scale = m.max_(m.abs_(x), m.abs_(y))
    v, u = y / scale, x / scale
    r = (u * u + v * v) * scale
    return m.where(scale > 0, u / r, 0), m.where(scale > 0, -v / r, 0)


BINARY: dict[str, Callable[[Scalar, Scalar], tuple[Num, Num]]] = {
    "add": lambda _a, _b: (1, 1),
    "sub": lambda _a, _b: (1, -1),
    "mul": lambda a, b: (b, a),
    "div": lambda a, b: (1 / b, -a / (b * b)),
    "pow": _pow,
    "atan2": _atan2,
    "mod": lambda a, b: (1, -(a // b)),
    "fmod": lambda a, b: (1, -m.trunc(a / b)),
    **{n: lambda _a, _b: (0, 0) for n in ("floordiv", "truncdiv")},
}


def differentiable(dtype: DType) -> bool:
    """Whether values of this type have a tangent."""
    return dtype.sort in ("float", "complex")


def _zero(x: Scalar) -> bool:
    return is_const(x, 0)


def _times(a: Scalar, b: Scalar) -> Scalar:
    if _zero(a) or _zero(b):
        return const(0, a.dtype)
    for x, y in ((a, b), (b, a)):
        if is_const(x, 1) or is_const(x, -1):
            return y if is_const(x, 1) else -y
    return a * b


def _plus(a: Scalar, b: Scalar) -> Scalar:
    return b if _zero(a) else a if _zero(b) else a + b


def _partials(s: Scalar) -> Sequence[Num]:
    if (override := PRIMS[s.op].derivative) is not None:
        return override(*s.args, **dict(cast(AttrItems, s.value or ())))
    if len(s.args) == 1:
        return (UNARY[s.op](s.args[0]),)
    return BINARY[s.op](s.args[0], s.args[1])


def _chain(s: Scalar, d: Sequence[Scalar]) -> Scalar:
    """Derivative of one primitive. Selections select tangents: no 0 * inf can arise."""
    if s.op == "where":
        return d[1] if d[1] is d[2] else m.where(s.args[0], d[1], d[2])
    if s.op == "cast":
        return cast_to(d[0], s.dtype) if differentiable(s.args[0].dtype) else const(0, s.dtype)
    if s.op in ("max", "min"):
        a, b = s.args if s.op == "max" else s.args[::-1]
        da, db = d
        return m.where(a > b, da, m.where(m.eq(a, b), 0.5 * _plus(da, db), db))
    total = const(0, s.dtype)
    for partial, di in zip(_partials(s), d, strict=True):
        p = partial if isinstance(partial, Scalar) else const(partial, s.dtype)
        total = _plus(total, _times(p, di))
    return total


@lru_cache(4096)
def derivative(root: Scalar, index: int) -> Scalar:
    """The simplified partial derivative with respect to operand `index`, in the root's dtype.

    A derived primitive without its own derivative is opened first.
    """
    out: dict[Scalar, Scalar] = {}
    for s in walk(_open_underived(root)):
        if not differentiable(s.dtype):
            out[s] = const(0, s.dtype)
        elif not s.args:
            out[s] = const(int(s.op == "var" and s.value == index), s.dtype)
        else:
            d = [out[a] for a in s.args]
            out[s] = _chain(s, d) if not all(map(_zero, d)) else const(0, s.dtype)
    return simplify(out[_open_underived(root)])


@lru_cache(4096)
def _open_underived(root: Scalar) -> Scalar:
    from .scalar import expand

    keep = {n for n, p in PRIMS.items() if p.body is None or p.derivative is not None}
    return expand(root, keep)


IDENTITIES: dict[str, Callable[[tuple[Scalar, ...]], Scalar | None]] = {
    "mul": lambda a: a[1] if is_const(a[0], 1) else a[0] if is_const(a[1], 1) else None,
    "div": lambda a: a[0] if is_const(a[1], 1) else None,
    "sub": lambda a: a[0] if is_const(a[1], 0) else None,
    "neg": lambda a: a[0].args[0] if a[0].op == "neg" else None,
    "where": lambda a: (a[1] if a[1] is a[2] or is_const(a[0], True) else
                        a[2] if is_const(a[0], False) else None),
}
"""Rules that hold bit for bit for real operands, NaN, infinities and -0 included; `x+0` and `x*0`
do not, and a complex product by 1 makes NaN out of infinities."""
_WIDER = {("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f64"), ("f32", "f64")}


def _simple(s: Scalar, args: tuple[Scalar, ...]) -> Scalar:
    if args and all(a.op == "const" for a in args):
        value = evaluate([rebuild(s, args)], ())[0].item()
        if s.dtype.sort != "complex" and (s.dtype.sort != "float" or math.isfinite(value)):
            return const(value, s.dtype)
    if s.op == "cast":
        return _simple_cast(s.dtype, args[0])
    rule = IDENTITIES.get(s.op) if s.dtype.sort != "complex" else None
    same = rule(args) if rule else None
    return rebuild(s, args) if same is None else same


def _simple_cast(dtype: DType, x: Scalar) -> Scalar:
    """A widening followed by its narrowing back is the value itself."""
    if x.op == "cast" and x.args[0].dtype is dtype and (dtype.name, x.dtype.name) in _WIDER:
        return x.args[0]
    return cast_to(x, dtype)


@lru_cache(4096)
def simplify(root: Scalar) -> Scalar:
    """Fold constants and apply the exact identities."""
    return fold([root], lambda s: s, _simple)[0]


__all__ = ["BINARY", "IDENTITIES", "UNARY", "derivative", "differentiable", "intern", "make",
           "simplify"]
