"""Describing a kernel: operands over an iteration space, and what becomes of them in the loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..declare import m
from ..declare.scalar import Scalar, cast_to, const, var
from ..ir.dims import Size
from ..ir.types import BOOL, I64, DType
from ..records import dataclass, field, replace
from .ir import Acc, Access, Axis, Buffer, Check, Extent, Kernel, Leaf, Loop, Result, Stmt, Store

INDEX_RANGE = 1
"""The code of a `Check` that an index lies inside its axis."""


@dataclass(frozen=True)
class Gathered:
    """A term of an address: the value of operand `index` times `stride`, checked against `size`."""

    index: int
    stride: Size
    size: Size


@dataclass(frozen=True)
class Window:
    """Positions `low <= i < high` of an axis where an operand has elements."""

    axis: int
    low: Size
    high: Size


@dataclass(frozen=True)
class Remapped:
    """A term of an address: `place(draft, position)` on an axis, times `stride`."""

    axis: int
    stride: Size
    place: Callable[[Draft, Scalar], Scalar]


@dataclass(frozen=True)
class Condition:
    """Where an operand has elements: `holds(draft, positions on the axes)`."""

    axes: tuple[int, ...]
    holds: Callable[[Draft, Sequence[Scalar]], Scalar]


@dataclass(frozen=True)
class Operand:
    """A strided operand: one stride for each axis of the iteration space, 0 where it broadcasts.

    Outside its windows and conditions it reads as `fill`. `offset` is added to the address.
    """

    buffer: Buffer
    strides: tuple[Size, ...]
    offset: Size = 0
    gathers: tuple[Gathered, ...] = ()
    windows: tuple[Window, ...] = ()
    fill: Scalar | None = None
    remapped: tuple[Remapped, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def special(self) -> set[int]:
        """Axes whose position matters by itself."""
        return {*(w.axis for w in (*self.windows, *self.remapped)),
                *(a for c in self.conditions for a in c.axes)}

    def moved(self, strides: Sequence[Size], place: Mapping[int, int]) -> Operand:
        """The operand over other axes; `place` maps old special ones to new."""
        return replace(
            self, strides=tuple(strides),
            windows=tuple([replace(w, axis=place[w.axis]) for w in self.windows]),
            remapped=tuple([replace(r, axis=place[r.axis]) for r in self.remapped]),
            conditions=tuple([replace(c, axes=tuple([place[a] for a in c.axes]))
                              for c in self.conditions]))


def density(stride: Size, axis: int) -> tuple[int, int]:
    """The order in which axes are considered for the lanes: the shortest known step first."""
    return (abs(stride) if isinstance(stride, int) and stride else 1 << 62, -axis)


def collapse(shape: Sequence[Size], operands: Sequence[Operand], fixed: Sequence[int] = (),
             over: Sequence[int] = ()) -> tuple[list[Size], list[Operand], list[list[int]]]:
    """Drop axes of size 1 and merge neighbours that every operand steps through as one.

    Axes in `fixed` do not merge, those in `over` only with each other. The last result lists the
    old axes behind each new one.
    """
    strides = [list(o.strides) for o in operands]
    stay = {*fixed, *(a for o in operands for a in o.special())}
    keep = [i for i, n in enumerate(shape) if n != 1 or i in stay]
    sizes, groups = [shape[i] for i in keep], [[i] for i in keep]
    strides = [[s[i] for i in keep] for s in strides]
    for i in reversed(range(len(sizes) - 1)):
        alike = (groups[i][0] in over) == (groups[i + 1][0] in over)
        if alike and stay.isdisjoint((*groups[i], *groups[i + 1])) and all(
                s[i] == s[i + 1] * sizes[i + 1] for s in strides):
            sizes[i:i + 2] = [sizes[i] * sizes[i + 1]]
            groups[i:i + 2] = [groups[i] + groups[i + 1]]
            for s in strides:
                del s[i]
    place = {old: new for new, group in enumerate(groups) for old in group}
    merged = [o.moved(s, place) for o, s in zip(operands, strides, strict=True)]
    return sizes, merged, groups


@dataclass
class Draft:
    """A kernel being described. `sizes` are what each run supplies, by the word's name."""

    sizes: dict[Size, str] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    known: dict[object, Scalar] = field(default_factory=dict)

    def buffer(self, dtype: DType, output: bool = False) -> Buffer:
        """Another pointer that the kernel is given."""
        made = Buffer(f"{'y' if output else 'x'}{len(self.buffers)}", dtype, output)
        self.buffers.append(made)
        return made

    def extent(self, size: Size) -> Extent:
        """A size as the kernel sees it."""
        if isinstance(size, int):
            return size
        return self.sizes.setdefault(size, f"n{len(self.sizes)}")

    def axis(self, name: str, size: Size) -> Axis:
        """An iteration variable of this extent."""
        return Axis(name, self.extent(size))

    def leaf(self, leaf: Leaf, dtype: DType, key: object = None) -> Scalar:
        """A variable; one with a known key is the same variable."""
        key = leaf if key is None else key
        if (found := self.known.get(key)) is None:
            found = self.known[key] = var(len(self.leaves), dtype)
            self.leaves.append(leaf)
        return found

    def at(self, axis: Axis) -> Scalar:
        """The position on an axis."""
        return self.leaf(axis, I64)

    def number(self, size: Size) -> Scalar:
        """A size as an i64 value."""
        extent = self.extent(size)
        return const(extent, I64) if isinstance(extent, int) else self.leaf(extent, I64)

    def result(self, acc: Acc, component: int = 0) -> Scalar:
        """A finished reduction's value."""
        return self.leaf(Result(acc, component), acc.monoid.dtypes[component], (acc, component))

    def load(self, access: Access) -> Scalar:
        """The element at an access."""
        key = ("load", access.buffer, access.terms, access.offset, access.guard, access.fill)
        return self.leaf(access, access.buffer.dtype, key)

    def kernel(self, *body: Stmt) -> Kernel:
        """The finished kernel."""
        return Kernel(tuple(self.buffers), tuple(self.sizes.values()), body, tuple(self.leaves))


class Space:
    """Operands at the axes of an iteration space. Checks of gathered indices collect on the way."""

    def __init__(self, draft: Draft, axes: Sequence[Axis | None], operands: Sequence[Operand]
                 ) -> None:
        self.draft, self.axes, self.operands = draft, axes, operands
        self.checks: dict[Scalar, Check] = {}

    def access(self, o: Operand) -> Access:
        """The access of an operand at the current position."""
        d = self.draft
        terms: list[tuple[Axis | Scalar, Extent]] = [
            (axis, d.extent(s)) for axis, s in zip(self.axes, o.strides, strict=True)
            if axis is not None and s != 0]
        terms += [(self._position(g), d.extent(g.stride)) for g in o.gathers if g.stride != 0]
        terms += [(r.place(d, self.position(r.axis)), d.extent(r.stride)) for r in o.remapped
                  if r.stride != 0]
        guard: Scalar | None = None
        for inside in (*map(self._inside, o.windows), *map(self._holds, o.conditions)):
            guard = inside if guard is None else m.and_(guard, inside)
        return Access(o.buffer, tuple(terms), d.extent(o.offset), guard, o.fill)

    def position(self, axis: int) -> Scalar:
        """The current position on an axis."""
        found = self.axes[axis]
        assert found is not None
        return self.draft.at(found)

    def _inside(self, w: Window) -> Scalar:
        at, d = self.position(w.axis), self.draft
        return m.and_(at >= d.number(w.low), at < d.number(w.high))

    def _holds(self, c: Condition) -> Scalar:
        return c.holds(self.draft, [self.position(a) for a in c.axes])

    def _position(self, g: Gathered) -> Scalar:
        """A checked index; negative ones count from the end."""
        raw = self.load(g.index)
        size = self.draft.number(g.size)
        at = cast_to(raw, I64)
        if raw.dtype.sort == "uint":
            bad = at >= size
        else:
            bad = m.or_(at >= size, at < 0 - size)
            at = m.where(at < 0, at + size, at)
        self.checks.setdefault(bad, Check(bad, INDEX_RANGE, cast_to(raw, I64)))
        return at

    def load(self, i: int) -> Scalar:
        """The element of operand `i` at the current position."""
        return self.draft.load(self.access(self.operands[i]))

    def store(self, i: int, value: Scalar) -> Store:
        """Write the element of operand `i` at the current position."""
        return Store(self.access(self.operands[i]), value)


def nest(kind_axes: Sequence[tuple[str, Axis]], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Loops around a body, the first axis outermost."""
    for kind, axis in reversed(kind_axes):
        body = (Loop(kind, axis, body),)  # type: ignore[arg-type]
    return body


TRUE = const(True, BOOL)
