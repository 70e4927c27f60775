"""Convolution of few filters straight from bands of all channels, without gathering products.

A chunk copies some rows of every channel of a group, margins filled in. Each register tile of
filters by two vectors of a row then reads the bands tap by tap: neighbouring taps share lines that
a gathered panel would hold once for each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from ....codegen.llvm.kernel import Kernel
from ....codegen.llvm.runtime import aligned
from ....codegen.llvm.target import host
from ....codegen.llvm.text import I64, PTR, VOID, Function, Module, Value
from ..contraction import Extent, ExtraOperand
from ..contraction.pack import SLACK
from ..contraction.spec import Place
from .bands import Band, band_function, bands_fit
from .spec import Convolution, Cut, Window, cut

_FILTERS, _TAPS = 64, 25
"""Most filters of a group, beyond which gathering pays, and most taps, which are written out."""
_BYTES = 160 << 10
"""Most scratch memory: a part of a second-level cache."""
_ROWS, _COLUMNS = 8, 32
_CHUNK_WORK, _MOST_CHUNKS = 1 << 20, 128
_AHEAD = 512
_FLAT = Window(1, 1, 0, 1)
"""The axis that a row alone lacks."""


def direct_band(spec: Convolution) -> Band | None:
    """The band of each channel; None where the template does not serve a convolution."""
    lanes = host().lanes(spec.element)
    if spec.filters > _FILTERS or not 1 < spec.taps <= _TAPS or not spec.packed or (
            not bands_fit(spec.windows)):
        return None
    down, along = (_FLAT, *spec.windows)[-2:]
    if isinstance(along.out, int) and along.out <= lanes:
        return None
    rows = _ROWS if not isinstance(down.out, int) else max(1, min(_ROWS, down.out))
    columns = _COLUMNS
    if isinstance(along.out, int):
        blocks = -(-along.out // _COLUMNS)
        columns = -(-along.out // blocks // lanes) * lanes
    made = Band(down, along, rows, columns, lanes, spec.element)
    while made.elements * spec.channels * spec.element.size > _BYTES and made.rows > 1:
        made = replace(made, rows=made.rows // 2)
    return made if made.elements * spec.channels * spec.element.size <= _BYTES else None


def direct_scratch(spec: Convolution, band: Band) -> int:
    """Scratch memory of a lane: a band of every channel."""
    return band.elements * spec.channels * spec.element.size + 256


def direct_chunks(spec: Convolution, band: Band, sizes: Mapping[str, int]) -> int:
    """Chunks for these run-time sizes."""
    batch, height, width = [sizes[n] if isinstance(n, str) else n for n in (
        spec.batch, band.down.out, band.along.out)]
    units = batch * spec.groups * -(-height // band.rows) * -(-width // band.columns)
    work = batch * spec.groups * spec.filters * spec.depth * height * width
    return max(1, min(units, work // _CHUNK_WORK, _MOST_CHUNKS))


def pack_direct(w: NDArray[Any], plan: Cut) -> NDArray[Any]:
    """`w` of shape (groups, filters, channels, taps) as (groups, tiles, channels, taps, rows)."""
    groups, filters, channels, taps = w.shape
    flat = w.reshape(groups, filters, channels * taps)
    size = groups * plan.row_tiles * plan.height * channels * taps
    out = aligned(size * w.itemsize + SLACK).view(w.dtype)[:size]
    view = out.reshape(groups, plan.row_tiles, channels * taps, plan.height)
    for t, rows in enumerate(plan.heights):
        at = plan.row(t)
        view[:, t, :, :rows] = flat[:, at:at + rows].swapaxes(1, 2)
    return out


def emit_direct(module: Module, spec: Convolution, band: Band, name: str) -> Kernel:
    """Write the kernel. Its words are those of `emit_convolution`."""
    extras = spec.epilogue.operands if spec.epilogue else ()
    kernel = Kernel(module, name, [("x", PTR), ("w", PTR), ("y", PTR), *(
        (x.name, PTR) for x in extras), *((n, I64) for n in spec.run_time_words())])
    _Direct(kernel, module, spec, band).run()
    kernel.finish()
    return kernel


class _Direct:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, module: Module, spec: Convolution, band: Band) -> None:
        self.kernel, self.module, self.spec, self.f = kernel, module, spec, kernel.function
        self.band, self.cut = band, cut(spec, module.target)
        self.extras = spec.epilogue.operands if spec.epilogue else ()
        self.height, self.width = self.size(band.down.out), self.size(band.along.out)

    def size(self, extent: Extent) -> Value:
        """A size as a value."""
        return self.kernel[extent] if isinstance(extent, str) else self.f.constant(I64, extent)

    def run(self) -> None:
        """The loop over blocks of rows and columns of every entry and group."""
        f, spec, band = self.f, self.spec, self.band
        blocks = f.binary("udiv", self.width + (band.columns - 1), band.columns)
        bands = f.binary("udiv", self.height + (band.rows - 1), band.rows)
        low, high = self.kernel.share(self.size(spec.batch) * bands * blocks * spec.groups)
        with f.loop(low, high) as item:
            column = f.binary("urem", item.index, blocks) * band.columns
            rest = f.binary("udiv", item.index, blocks)
            row = f.binary("urem", rest, bands) * band.rows
            outer = f.binary("udiv", rest, bands)
            entry, group = (f.binary(op, outer, spec.groups) for op in ("udiv", "urem"))
            rows = f.minimum(self.height - row, band.rows)
            columns = f.minimum(self.width - column, band.columns)
            self._copy(entry, group, row, column, rows)
            most = f.maximum(columns - band.lanes, 0)
            with f.loop(0, rows) as r, f.loop(0, columns, 2 * band.lanes) as c:
                starts = [f.minimum(c.index + v * band.lanes, most) for v in (0, 1)]
                line = outer * spec.filters * self.height + row + r.index
                at = [line * self.width + column + s for s in starts]
                base = f.address(self.kernel.scratch(), r.index * (band.line * band.down.step),
                                 spec.element)
                b = [f.address(base, s, spec.element) for s in starts]
                self._filters(entry, group, b, at, columns)

    def _copy(self, entry: Value, group: Value, row: Value, column: Value, rows: Value) -> None:
        f, spec, down, along = self.f, self.spec, self.band.down, self.band.along
        x = entry * self.size(spec.batch_line) + (
            group * spec.channels * self.size(spec.channel_line))
        source = f.address(self.kernel["x"], x, spec.element)
        lines = (rows - 1) * down.step + ((down.kernel - 1) * down.gap + 1)
        copy = band_function(self.module, self.band, 0)
        with f.loop(0, spec.channels) as c:
            f.invoke(copy, f.address(source, c.index * self.size(spec.channel_line), spec.element),
                     f.address(self.kernel.scratch(), c.index * self.band.elements, spec.element),
                     lines, row * down.step - self.size(down.before),
                     column * along.step - self.size(along.before), self.size(down.size),
                     self.size(along.size), self.size(down.line))

    def _filters(self, entry: Value, group: Value, b: list[Value], at: list[Value],
                 columns: Value) -> None:
        """Every tile of filters: the taller ones, then those a row lower."""
        f, spec, heights = self.f, self.spec, self.cut.heights
        area, depth = self.height * self.width, spec.depth * self.cut.height
        taller = heights.count(heights[0])
        for rows, low, high in ((heights[0], 0, taller), (heights[-1], taller, len(heights))):
            if low == high:
                continue
            function = self._tile(rows)
            with f.loop(low, high) as tile:
                first = (tile.index - low) * rows + low * heights[0]
                w = f.address(self.kernel["w"], (group * self.cut.row_tiles + tile.index) * depth,
                              spec.element)
                filter_ = group * spec.filters + first
                extras = [self._extra(x, entry, filter_) for x in self.extras]
                extras += [self.size(x.line) for x in self.extras if isinstance(x.line, str)]
                places = [a + first * area for a in at]
                f.invoke(function, *b, w, self.kernel["y"], *places, area, columns, filter_,
                         *extras)

    def _extra(self, x: ExtraOperand, entry: Value, row: Value) -> Value:
        """An operand's pointer: at the tile's first filter, or as y's."""
        offset = self.f.constant(I64, 0)
        if x.kind == "row":
            offset = row * self.size(1 if x.line is None else x.line)
        if x.batch is not None:
            offset = offset + entry * self.size(x.batch[0])
        return self.f.address(self.kernel[x.name], offset, x.type)

    def _tile(self, rows: int) -> Function:
        key = f"{self.spec} {self.band} {rows} {self.cut.height}"
        name = f"direct_{hashlib.blake2b(key.encode(), digest_size=6).hexdigest()}"
        if name not in self.module.functions:
            f = self.module.function(name, VOID, [
                *((n, PTR) for n in ("b0", "b1", "w", "y")),
                *((n, I64) for n in ("at0", "at1", "area", "left", "filter")),
                *((f"x{i}", PTR) for i in range(len(self.extras))),
                *((f"l{i}", I64) for i, x in enumerate(self.extras) if isinstance(x.line, str))])
            _Tile(f, self.spec, self.band, rows, self.cut.height).run()
        return self.module.functions[name]


class _Tile:
    """Writes the function of a tile of filters by two vectors."""

    def __init__(self, f: Function, spec: Convolution, band: Band, rows: int, height: int) -> None:
        self.f, self.spec, self.band, self.rows, self.height = f, spec, band, rows, height
        self.arg = {p.name: v for p, v in zip(f.parameters, f.args, strict=True)}
        self.kind = spec.element.vector(band.lanes)

    def run(self) -> None:
        """The loop over channels with all taps written out, then the epilogue."""
        f, spec, band, height = self.f, self.spec, self.band, self.height
        zero = f.constant(self.kind, 0)
        with f.loop(0, spec.channels, 1, [zero] * (self.rows * 2)) as c:
            sums = list(c.values)
            b = [f.address(self.arg[n], c.index * band.elements, spec.element)
                 for n in ("b0", "b1")]
            w = f.address(self.arg["w"], c.index * (spec.taps * height), spec.element)
            for tap in range(spec.taps):
                over, along = divmod(tap, band.along.kernel)
                place = band.place(over * band.down.gap, along)
                items = [f.load(self.kind, p, place) for p in b]
                for r in range(self.rows):
                    a = f.splat(f.load(spec.element, w, tap * height + r), band.lanes)
                    for v, item in enumerate(items):
                        i = r * 2 + v
                        sums[i] = f.fma(a, item, sums[i]) if f.target.has_fma else (
                            a * item + sums[i])
            for at in range(0, spec.taps * height, 64 // spec.element.size):
                f.prefetch(f.address(w, at + _AHEAD // spec.element.size, spec.element))
            c.carry(*sums)
        self._finish(c.results)
        f.give()

    def _finish(self, sums: list[Value]) -> None:
        f, spec, band, epilogue = self.f, self.spec, self.band, self.spec.epilogue
        known = band.along.out
        whole = isinstance(known, int) and known % band.columns in (0, *range(
            band.lanes, band.columns))
        mask = None if whole else f.tail_mask(self.arg["left"], band.lanes)
        stores: list[tuple[Value, Value]] = []
        for r in range(self.rows):
            for v, n in enumerate(("at0", "at1")):
                value, at = sums[r * 2 + v], self.arg[n] + self.arg["area"] * r
                if epilogue is not None:
                    values = [self._operand(j, x, r, at, mask)
                              for j, x in enumerate(epilogue.operands)]
                    value = epilogue.emit(f, value, values, Place(self.arg["filter"] + r, at))
                stores.append((value, f.address(self.arg["y"], at, spec.element)))
        if mask is None:
            for value, to in stores:
                f.store(value, to)
            return
        with f.when(f.compare("ge", self.arg["left"], band.lanes)):
            for value, to in stores:
                f.store(value, to)
        with f.when(f.compare("lt", self.arg["left"], band.lanes)):
            for value, to in stores:
                f.masked_store(value, to, mask)

    def _operand(self, j: int, x: ExtraOperand, r: int, at: Value, mask: Value | None) -> Value:
        f, lanes, element, pointer = self.f, self.band.lanes, self.spec.element, self.arg[f"x{j}"]
        if x.kind == "matrix":
            place, kind = f.address(pointer, at, x.type), x.type.vector(lanes)
            return f.convert(f.load(kind, place) if mask is None else f.masked_load(
                kind, place, mask), element)
        if x.kind == "scalar":
            return f.splat(f.convert(f.load(x.type, pointer), element), lanes)
        line = self.arg[f"l{j}"] if isinstance(x.line, str) else 1 if x.line is None else x.line
        return f.splat(f.convert(f.load(x.type, pointer, line * r), element), lanes)
