"""Arithmetic on sizes that several families of operators share."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import OperatorError
from ..ir.dims import Size, bounds, cdiv, dmax, dmin, symbols
from ..ir.graph import Value
from ..ir.types import Shape, TensorType, axes_of, axis_of, count, shape_text
from .leaves import full

FAR = 2**31 - 1
"""Exporters write bounds at least this large for "to the end" of an axis."""
_TOP = 2**60


def _range(size: Size) -> tuple[float, float]:
    return bounds(size, {s: (1, _TOP) for s in symbols(size)})


def surely_differ(a: Size, b: Size) -> bool:
    """Whether no symbols of at least 1, or of at least 0 beside a size of 0, make both equal."""
    empty = any(isinstance(s, int) and s == 0 for s in (a, b))
    low, high = bounds(a - b) if empty else _range(a - b)
    return low > 0 or high < 0


def surely_exceeds(a: Size, b: Size) -> bool:
    """Whether `a` is more than `b` for all symbols of at least 1."""
    return _range(a - b)[0] > 0


def with_axis(shape: Shape, axis: int, *sizes: Size) -> Shape:
    """`shape` with one axis replaced by any number of others."""
    at = axis_of(axis, len(shape))
    return (*shape[:at], *sizes, *shape[at + 1:])


def total(sizes: Sequence[Size]) -> Size:
    """The sum of sizes."""
    out: Size = 0
    for size in sizes:
        out = out + size
    return out


def zeros(type_: TensorType) -> Value:
    """A tensor of zeros."""
    return full(value=0, shape=type_.shape, dtype=type_.dtype)


def inserted(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Where new axes stand in a result that has `rank` axes besides."""
    return axes_of(axes, rank + len(axes))


def resolve(have: Shape, shape: Shape) -> Shape:
    """`shape` with its -1 replaced, as if equal sizes on both sides cancelled."""
    if -1 not in shape:
        return shape
    if shape.count(-1) > 1:
        raise OperatorError(f"the shape {shape_text(shape)} has more than one -1")
    known = tuple([s for s in shape if s != -1])
    zeros = have.count(0) - known.count(0)
    elements = count(tuple([s for s in have if s != 0]))
    fixed = count(tuple([s for s in known if s != 0]))
    missing = elements // fixed if zeros <= 0 else 0
    return tuple([missing if s == -1 else s for s in shape])


def from_end(at: Size, size: Size) -> Size:
    """`at`, counted from the end when it is negative; an expression when its sign is unknown."""
    if isinstance(at, int) and not isinstance(size, int) and abs(at) >= FAR:
        return size if at > 0 else -1
    return at + size * dmin(dmax(-at, 0), 1)


def first_of(start: Size, size: Size, step: int) -> Size:
    """The first position of a slice, clamped as NumPy does."""
    at = from_end(start, size)
    return dmin(dmax(at, 0), size) if step > 0 else dmin(at, size - 1)


def sliced(size: Size, start: Size, end: Size, step: int) -> Size:
    """How many elements `start:end:step` takes from an axis."""
    start, end = from_end(start, size), from_end(end, size)
    if step > 0:
        return dmax(cdiv(dmin(end, size) - dmax(start, 0), step), 0)
    return dmax(cdiv(dmin(start, size - 1) - dmax(end, -1), -step), 0)
