"""Conversions that lose nothing, and selections."""

from __future__ import annotations

from ...ir.graph import Value
from ...ir.types import DType
from ..pattern import op, rule

_DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
_EXPONENTS = {"f64": 1023, "f32": 127, "bf16": 127, "f16": 15}
"""Significant bits and largest binary exponent of the floating types (IEEE 754; bfloat16)."""


def _magnitude(dtype: DType) -> int:
    """Bits of the largest magnitude of an integer type."""
    return 1 if dtype.sort == "bool" else dtype.bits - (dtype.sort == "int")


def lossless(a: DType, b: DType) -> bool:
    """Whether b represents every value of a."""
    if a is b:
        return True
    if a.sort in ("bool", "int", "uint"):
        if b.sort == "float":
            return _magnitude(a) <= _DIGITS.get(b.name, 0) and (
                _magnitude(a) <= _EXPONENTS.get(b.name, 0))
        if b.sort == "int":
            return _magnitude(a) <= _magnitude(b)
        return b.sort == "uint" and a.sort != "int" and _magnitude(a) <= _magnitude(b)
    return a.name in _DIGITS and b.name in _DIGITS and (
        _DIGITS[a.name] <= _DIGITS[b.name] and _EXPONENTS[a.name] <= _EXPONENTS[b.name])


def by_value(x: Value, a: DType, b: DType) -> bool:
    """Whether x -> a -> b is x -> b: a keeps every value and b reads a as it reads x.

    Text shows the type it came from. Integers wrap and floats saturate on the way to an integer,
    and a narrow float may round twice, so an integer that passes through a float has to fit.
    """
    if a is x.dtype:
        return True
    if not lossless(x.dtype, a) or b.sort == "string":
        return False
    turns = x.dtype.sort in ("int", "uint") and a.sort == "float"
    return not turns or b.name in ("f32", "f64") or lossless(x.dtype, b)


PAIRS = ("f32", "f64", "i16", "i32", "i64")
TARGETS = ("bool", "u8", "i32", "f16", "bf16", "f32", "f8e4m3fn", "f8e8m0fnu", "T")
MODES = {"s": True, "m": "up"}
rule("cast_same", lambda x, d, s, m: op.cast(x, dtype=d, saturate=s, round_mode=m), lambda x: x,
     when=lambda x, d: x.dtype is d, examples=[{"x": "T", "d": "T", **MODES}])
rule("cast_cast",
     lambda x, a, s, m, b, t, n: op.cast(op.cast(x, dtype=a, saturate=s, round_mode=m),
                                         dtype=b, saturate=t, round_mode=n),
     lambda x, b, t, n: op.cast(x, dtype=b, saturate=t, round_mode=n), when=by_value,
     examples=[{"x": "T", "a": a, "b": b, **MODES, "t": t, "n": "nearest"}
               for a in PAIRS for b in TARGETS for t in (True, False)])
rule("identity", lambda x: op.identity(x), lambda x: x)

rule("where_same", lambda c, x: op.where(c, x, x), lambda x: x,
     examples=[{"c": "bool", "x": "T"}])
rule("where_true", lambda x, y: op.where(True, x, y), lambda x: x)
rule("where_false", lambda x, y: op.where(False, x, y), lambda y: y)
rule("where_not", lambda c, x, y: op.where(op.logical_not(c), x, y),
     lambda c, x, y: op.where(c, y, x), examples=[{"c": "bool[4]", "x": "T[4]", "y": "T[4]"}])
rule("where_where", lambda c, x, y, z: op.where(c, op.where(c, x, y), z),
     lambda c, x, z: op.where(c, x, z),
     examples=[{"c": "bool[4]", "x": "T[4]", "y": "T[4]", "z": "T[4]"}])
rule("where_where_else", lambda c, x, y, z: op.where(c, x, op.where(c, y, z)),
     lambda c, x, z: op.where(c, x, z),
     examples=[{"c": "bool[4]", "x": "T[4]", "y": "T[4]", "z": "T[4]"}])
rule("where_one_zero", lambda c: op.where(c, 1, 0), lambda c, out: op.cast(c, dtype=out.dtype),
     examples=[{"c": "bool"}])
