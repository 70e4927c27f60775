"""Opens functions in expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...declare import m
from ...declare.scalar import PRIMS, AttrItems, Scalar, cast_to, fold, rebuild
from ...ir.types import F32
from .table import FUNCTIONS


def _power(a: Scalar, b: Scalar) -> Scalar | None:
    """Powers by small numbers are products and roots, each step rounded."""
    if b.op != "const" or b.dtype.sort != "float":
        return None
    inf = float("inf")
    bodies = {1.0: lambda: a, 2.0: lambda: a * a, 3.0: lambda: a * a * a, -1.0: lambda: 1.0 / a,
              0.5: lambda: m.where(m.eq(a, -inf), m.like(a, inf), m.sqrt(a + 0.0))}
    found = bodies.get(cast(float, b.value))
    return found() if found is not None else None


def open_functions(roots: Sequence[Scalar]) -> list[Scalar]:
    """`roots` with derived primitives opened and functions replaced by their bodies."""
    def op(e: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        if PRIMS.get(e.op, PRIMS["cast"]).rule in ("compare", "order"):
            args = tuple([cast_to(a, F32) if a.dtype.narrow else a for a in args])
        if e.op == "pow" and (found := _power(*args)) is not None:
            return found
        if (body := FUNCTIONS.get((e.op, e.dtype))) is not None:
            return body(*args)
        opened = PRIMS[e.op].body if e.op in PRIMS else None
        if opened is None:
            return rebuild(e, args)
        return open_functions([opened(*args, **dict(cast(AttrItems, e.value or ())))])[0]

    return fold(roots, lambda s: s, op)
