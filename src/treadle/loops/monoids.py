"""Reductions: an identity and an associative, commutative combination."""

from __future__ import annotations

from collections.abc import Callable

from ..declare import m
from ..declare.scalar import Scalar, const
from ..ir.types import I64, DType
from ..records import dataclass

Parts = tuple[Scalar, ...]


@dataclass(frozen=True)
class Monoid:
    """A combination of one or several components with its identity."""

    name: str
    dtypes: tuple[DType, ...]
    identity: Parts
    combine: Callable[[Parts, Parts], Parts]


def _limit(dtype: DType, low: bool) -> Scalar:
    if dtype.sort == "float":
        return const(float("-inf") if low else float("inf"), dtype)
    if dtype.sort == "bool":
        return const(not low, dtype)
    signed = dtype.sort == "int"
    ends = (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if signed else (
        0, (1 << dtype.bits) - 1)
    return const(ends[0 if low else 1], dtype)


def add(dtype: DType) -> Monoid:
    """Sum; integers wrap."""
    return Monoid("add", (dtype,), (const(0, dtype),), lambda a, b: (a[0] + b[0],))


def mul(dtype: DType) -> Monoid:
    """Product; integers wrap."""
    return Monoid("mul", (dtype,), (const(1, dtype),), lambda a, b: (a[0] * b[0],))


def largest(dtype: DType) -> Monoid:
    """Maximum, NaN if any element is."""
    return Monoid("max", (dtype,), (_limit(dtype, True),), lambda a, b: (m.max_(a[0], b[0]),))


def smallest(dtype: DType) -> Monoid:
    """Minimum, NaN if any element is."""
    return Monoid("min", (dtype,), (_limit(dtype, False),), lambda a, b: (m.min_(a[0], b[0]),))


def both(dtype: DType) -> Monoid:
    """Whether all flags hold."""
    return Monoid("all", (dtype,), (const(True, dtype),), lambda a, b: (m.and_(a[0], b[0]),))


def either(dtype: DType) -> Monoid:
    """Whether any flag holds."""
    return Monoid("any", (dtype,), (const(False, dtype),), lambda a, b: (m.or_(a[0], b[0]),))


def first_extreme(dtype: DType, low: bool, last: bool, place: DType = I64) -> Monoid:
    """The extreme value and the place of its first (or last) occurrence; NaN is the extreme."""
    far = const(-1 if last else 2**(place.bits - 1) - 1, place)

    def combine(a: Parts, b: Parts) -> Parts:
        (v, i), (w, j) = a, b
        beats = (v < w) if low else (v > w)
        tie = m.eq(v, w)
        if dtype.sort == "float":
            v_nan, w_nan = m.ne(v, v), m.ne(w, w)
            beats = m.or_(beats, m.and_(v_nan, m.eq(w, w)))
            tie = m.or_(tie, m.and_(v_nan, w_nan))
        mine = m.or_(beats, m.and_(tie, (i > j) if last else (i < j)))
        return m.where(mine, v, w), m.where(mine, i, j)

    name = f"arg{'min' if low else 'max'}{'_last' if last else ''}"
    return Monoid(name, (dtype, place), (_limit(dtype, not low), far), combine)
