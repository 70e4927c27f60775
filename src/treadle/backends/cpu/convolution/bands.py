"""Bands: some rows and columns of a plane, copied to scratch memory with their margins.

A band has every element that a block of outputs reads, elements outside the plane filled in, so
that kernels over it know no edges. Where windows step by 2, even and odd columns lie apart: every
tap then reads neighbours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ....codegen.llvm.text import I1, I32, I64, PTR, VOID, Function, Module, Type, Value
from ....records import dataclass
from .spec import Window

_COLUMNS, _OPEN_COLUMNS = 128, 64
"""Most output columns of a block, where their number is known and where it is not."""
_REACH = 1024
"""Farthest that a window reaches beyond its first element."""
_ROWS = 16
"""About as many output rows of a band."""


@dataclass(frozen=True, slots=True)
class Band:
    """Input for `rows` by `columns` outputs of the windows `down` and `along` a row."""

    down: Window
    along: Window
    rows: int
    columns: int
    lanes: int
    element: Type

    @property
    def lines(self) -> int:
        """Input rows."""
        return self.lines_for(self.rows)

    def lines_for(self, rows: int) -> int:
        """Input rows that so many output rows read."""
        return (rows - 1) * self.down.step + (self.down.kernel - 1) * self.down.gap + 1

    @property
    def part(self) -> int:
        """Elements of a line's columns of one phase."""
        reach = (self.along.kernel - 1) * self.along.gap // self.along.step
        return -(-(self.columns + reach) // self.lanes) * self.lanes

    @property
    def line(self) -> int:
        """Distance of lines."""
        return self.part * self.along.step

    @property
    def elements(self) -> int:
        """Elements of a band, with room for a vector that begins at its last column."""
        return self.lines * self.line + self.lanes

    def place(self, line: int, tap: int) -> int:
        """Where column 0 of the output reads a line at a tap along the row."""
        at = tap * self.along.gap
        return line * self.line + at % self.along.step * self.part + at // self.along.step


def band(down: Window, along: Window, group: int, lanes: int, element: Type) -> Band:
    """The band of windows whose output rows are computed `group` at a time."""
    height, width = down.out, along.out
    rows = max(1, _ROWS // group) * group
    if isinstance(height, int):
        count = max(1, -(-height // rows))
        rows = -(-max(1, -(-height // count)) // group) * group
    columns = _OPEN_COLUMNS
    if isinstance(width, int):
        blocks = max(1, -(-width // _COLUMNS))
        columns = -(-max(1, -(-width // blocks)) // lanes) * lanes
    return Band(down, along, rows, columns, lanes, element)


def bands_fit(windows: Sequence[Window]) -> bool:
    """Whether bands serve these windows, whose margins they write out vector by vector."""
    return (len(windows) <= 2 and windows[-1].step <= 2 and windows[0].step <= 4
            and all((w.kernel - 1) * w.gap <= _REACH for w in windows))


def band_function(module: Module, band: Band, fill: float) -> Function:
    """Copies one plane's part.

    Parameters: plane, target, number of lines, first row and column (outside the plane if below
    0), then the plane's rows, columns and distance of rows.
    """
    edges = _known_edges(band)
    key = f"{band.part} {band.along.step} {band.lanes} {band.element} {fill} {edges}"
    name = f"band_{hashlib.blake2b(key.encode(), digest_size=6).hexdigest()}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, VOID, [("x", PTR), ("target", PTR), *((n, I64) for n in (
        "lines", "row", "column", "height", "width", "step"))])
    _Copy(f, band, fill, edges).run()
    f.give()
    return f


def _known_edges(band: Band) -> tuple[int, int] | None:
    """The first column and the width where one block has all columns of a known plane."""
    w = band.along
    if isinstance(w.out, int) and isinstance(w.before, int) and isinstance(w.size, int) and (
            w.out <= band.columns):
        return -w.before, w.size
    return None


class _Copy:
    """Writes the function."""

    def __init__(self, f: Function, band: Band, fill: float, edges: tuple[int, int] | None
                 ) -> None:
        self.f, self.band, self.fill, self.edges = f, band, fill, edges
        self.phases, self.lanes, self.element = band.along.step, band.lanes, band.element
        self.kind = band.element.vector(band.lanes)
        self.span, self.count = self.lanes * self.phases, band.part // self.lanes

    def run(self) -> None:
        """Lines above the plane, of it, below it."""
        f = self.f
        x, _, lines, row, column, height, width, step = f.args
        top = f.minimum(f.maximum(-row, 0), lines)
        end = f.maximum(f.minimum(height - row, lines), top)
        self._outside(f.constant(I64, 0), top)
        with f.loop(top, end) as at:
            source = f.address(x, (row + at.index) * step + column, self.element)
            if self.edges is None:
                self._line(source, self._target(at.index), column, width)
            else:
                self._known_line(source, self._target(at.index), *self.edges)
        self._outside(end, lines)

    def _target(self, line: Value) -> Value:
        return self.f.address(self.f.args[1], line * self.band.line, self.element)

    def _outside(self, low: Value, high: Value) -> None:
        f, fill = self.f, self.f.constant(self.kind, self.fill)
        with f.loop(low, high) as at:
            to = self._target(at.index)
            for j in range(self.count * self.phases):
                f.store(fill, to, j * self.lanes)

    def _known_line(self, source: Value, to: Value, column: int, width: int) -> None:
        """Every vector by the lanes of it that lie inside."""
        for j in range(self.count):
            parts: list[Value] = []
            for p in range(self.phases):
                at = j * self.span + p * self.lanes
                inside = [0 <= column + at + i < width for i in range(self.lanes)]
                pointer = self.f.address(source, at, self.element)
                if all(inside):
                    parts.append(self.f.load(self.kind, pointer))
                elif any(inside):
                    parts.append(self.f.masked_load(self.kind, pointer, self._constant(inside),
                                                    self.fill))
                else:
                    parts.append(self.f.constant(self.kind, self.fill))
            self._put(parts, to, self.f.constant(I64, j * self.lanes))

    def _constant(self, lanes: list[bool]) -> Value:
        text = ", ".join(f"i1 {int(b)}" for b in lanes)
        return Value(self.f, f"<{text}>", I1.vector(self.lanes))

    def _line(self, source: Value, to: Value, column: Value, width: Value) -> None:
        """Vectors at the edges under masks, those inside without."""
        f, span, count = self.f, self.span, self.count
        first = f.minimum(f.binary("udiv", f.maximum(-column, 0) + (span - 1), span), count)
        last = f.minimum(f.maximum(f.binary("udiv", f.maximum(width - column, 0), span), first),
                         count)
        zero, end = f.constant(I64, 0), f.constant(I64, count)
        for low, high, masked in ((zero, first, True), (first, last, False), (last, end, True)):
            with f.loop(low, high) as j:
                at = f.address(source, j.index * span, self.element)
                parts = [self._part(at, p * self.lanes, column + j.index * span, width, masked)
                         for p in range(self.phases)]
                self._put(parts, to, j.index * self.lanes)

    def _part(self, pointer: Value, at: int, column: Value, width: Value, masked: bool) -> Value:
        f = self.f
        if not masked:
            return f.load(self.kind, pointer, at)
        kind, place = I32.vector(self.lanes), column + at
        low, high = (f.splat(f.cast("trunc", v, I32), self.lanes)
                     for v in (-place, width - place))
        inside = f.compare("ge", f.iota(kind), low) & f.compare("lt", f.iota(kind), high)
        return f.masked_load(self.kind, f.address(pointer, at, self.element), inside, self.fill)

    def _put(self, parts: list[Value], to: Value, at: Value) -> None:
        f = self.f
        for p in range(self.phases):
            value = parts[0] if self.phases == 1 else f.shuffle(
                parts[0], parts[1], range(p, 2 * self.lanes, 2))
            f.store(value, to, at + p * self.band.part)
