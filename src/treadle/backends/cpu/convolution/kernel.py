"""Convolution as a matrix product whose right side is gathered panel by panel.

C[filter, position] = W[filter, k] B[k, position]; rows of C are channels of y. A unit of work is
(batch entry, group, block of positions, tile of filters), a chunk a range of units: the block's
panels are gathered once for its tiles. How an element is summed follows from the sizes alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ....codegen.llvm.kernel import Kernel
from ....codegen.llvm.text import I64, PTR, Function, Index, Module, Value
from ..contraction import Extent, ExtraOperand
from ..contraction.micro import Micro, emit_micro
from ..contraction.operands import Finish, emit_finish, finish_arguments
from ..contraction.tiles import UNROLL
from .gather import gather_function
from .spec import Convolution, cut

_AHEAD = 512
"""Bytes of prefetch within packed weights, whose tiles follow each other."""


class _Block(NamedTuple):
    """Panels of one batch entry and group, and the tiles of filters to compute for them."""

    x: Value
    w: Value
    y: Value
    entry: Value
    filter: Value
    low: Value
    high: Value
    first: Value
    last: Value


class _Depth(NamedTuple):
    """A block of k, and whether it starts and ends the sum."""

    start: int
    size: int
    first: bool
    last: bool


def emit_convolution(module: Module, spec: Convolution, name: str) -> Kernel:
    """Write the kernel. Its words: x, w, y, the epilogue's operands, run-time sizes."""
    extras = spec.epilogue.operands if spec.epilogue else ()
    kernel = Kernel(module, name, [("x", PTR), ("w", PTR), ("y", PTR), *(
        (x.name, PTR) for x in extras), *((n, I64) for n in spec.run_time_words())])
    _Macro(kernel, module, spec).run()
    kernel.finish()
    return kernel


class _Macro:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, module: Module, spec: Convolution) -> None:
        self.kernel, self.module, self.spec, self.f = kernel, module, spec, kernel.function
        self.cut = cut(spec, module.target)
        self.tile = self.cut.tile
        self.extras = spec.epilogue.operands if spec.epilogue else ()
        self.late = spec.epilogue is not None and spec.epilogue.late
        self.area = self._area()

    def size(self, extent: Extent) -> Value:
        """A size as a value."""
        return self.kernel[extent] if isinstance(extent, str) else self.f.constant(I64, extent)

    def _area(self) -> Value:
        if (known := self.spec.area()) is not None:
            return self.f.constant(I64, known)
        area = self.f.constant(I64, 1)
        for w in self.spec.windows:
            area = area * self.size(w.out)
        return area

    def _ceil(self, a: Value, b: int) -> Value:
        return self.f.binary("udiv", a + (b - 1), b)

    def run(self) -> None:
        """The loop over blocks of positions."""
        f, spec, tiles = self.f, self.spec, self.cut.row_tiles
        panels = self._ceil(self.area, self.tile.columns)
        blocks = self._ceil(panels, self.cut.panels)
        low, high = self.kernel.share(
            self.size(spec.batch) * blocks * (spec.groups * tiles))
        with f.loop(f.binary("udiv", low, tiles), self._ceil(high, tiles)) as at:
            block = self._block(at.index, blocks, panels, low, high)
            depths = self.cut.depths
            for start, size in depths:
                self._depth(block, _Depth(start, size, start == 0, start == depths[-1][0]))

    def _block(self, index: Value, blocks: Value, panels: Value, low: Value, high: Value
               ) -> _Block:
        f, spec, tiles = self.f, self.spec, self.cut.row_tiles
        within = f.binary("urem", index, blocks)
        outer = f.binary("udiv", index, blocks)
        entry, group = (f.binary(op, outer, spec.groups) for op in ("udiv", "urem"))
        x = (entry * self.size(spec.batch_line)
             + group * spec.channels * self.size(spec.channel_line))
        rows = self.cut.height * tiles if spec.packed else spec.filters
        first = within * self.cut.panels
        return _Block(
            f.address(self.kernel["x"], x, spec.element),
            f.address(self.kernel["w"], group * (rows * spec.depth), spec.element),
            f.address(self.kernel["y"], outer * spec.filters * self.area, spec.element),
            entry, group * spec.filters, first, f.minimum(first + self.cut.panels, panels),
            f.maximum(low - index * tiles, 0), f.minimum(high - index * tiles, tiles))

    def _depth(self, block: _Block, depth: _Depth) -> None:
        """The panels' sums over one block of k: full panels, then a partial one."""
        f, columns = self.f, self.tile.columns
        full = f.binary("udiv", self.area, columns)
        area = self.spec.area()
        if area is None or area >= columns:
            self._panels(block, depth, block.low, f.minimum(block.high, full), masked=False)
        if area is None or area % columns:
            self._panels(block, depth, f.maximum(block.low, full), block.high, masked=True)

    def _panels(self, block: _Block, depth: _Depth, low: Value, high: Value, *, masked: bool
                ) -> None:
        """Gather each panel, then multiply it by every tile of filters."""
        f, spec = self.f, self.spec
        direct = spec.direct and not masked
        micro = self._micro(depth, masked=masked, direct=direct)
        with f.loop(low, high) as panel:
            position = panel.index * self.tile.columns
            if direct:
                b = f.address(block.x, position + self.size(spec.channel_line) * depth.start,
                              spec.element)
            else:
                b = self._gathered(block, depth, position)
            self._tiles(block, depth, micro, position, b)

    def _gathered(self, block: _Block, depth: _Depth, position: Value) -> Value:
        f, target = self.f, self.kernel.scratch()
        gather, words = gather_function(self.module, self.spec, self.tile)
        f.invoke(gather, block.x, target, position, f.constant(I64, depth.start),
                 f.constant(I64, depth.start + depth.size),
                 *[self.kernel[n] for n in words])
        return target

    def _tiles(self, block: _Block, depth: _Depth, micro: Micro, position: Value, b: Value
               ) -> None:
        """Tiles of filters: the taller ones, then those a row lower."""
        heights = self.cut.heights
        taller = heights.count(heights[0])
        for rows, low, high in ((heights[0], 0, taller), (heights[-1], taller, len(heights))):
            if low == high:
                continue
            function = emit_micro(self.module, replace(micro, rows=rows))
            with self.f.loop(self.f.maximum(block.first, low),
                             self.f.minimum(block.last, high)) as tile:
                row = (tile.index - low) * rows + low * heights[0]
                args = self._arguments(block, depth, tile.index, row, position, b)
                extras = self._extras(block, row, position)
                self.f.invoke(function, *args, *([] if self.late else extras))
                if self.late and depth.last:
                    self.f.invoke(self._finish(micro), *finish_arguments(
                        [*args, *extras], self.f.constant(I64, rows)))

    def _arguments(self, block: _Block, depth: _Depth, tile: Value, row: Value, position: Value,
                   b: Value) -> list[Value]:
        f, spec, height = self.f, self.spec, self.cut.height
        if spec.packed:
            at = tile * (height * depth.size) + depth.start * height * self.cut.row_tiles
        else:
            at = row * spec.depth + depth.start
        in_y = row * self.area + position
        line = self.size(spec.channel_line)
        return [f.address(block.w, at, spec.element), b,
                f.address(block.y, in_y, spec.element), b, b, f.constant(I64, depth.size),
                f.constant(I64, spec.depth), line, self.area, self.area - position,
                block.filter + row, position]

    def _extras(self, block: _Block, row: Value, position: Value) -> list[Value]:
        """The epilogue's operands at a tile: pointers, then lines that each run supplies."""
        return [*(self._extra(x, block, block.filter + row, position) for x in self.extras),
                *(self.size(x.line) for x in self.extras if isinstance(x.line, str))]

    def _extra(self, operand: ExtraOperand, block: _Block, row: Value, position: Value) -> Value:
        offset: Index = position if operand.kind in ("column", "matrix") else 0
        line: Index = self.area if operand.line is None else self.size(operand.line)
        if operand.kind == "row" and operand.line is None:
            line = 1
        if operand.kind in ("row", "matrix"):
            offset = row * line + offset
        if operand.batch is not None:
            offset = block.entry * self.size(operand.batch[0]) + offset
        elif operand.kind == "matrix":
            offset = block.entry * self.area * (self.spec.filters * self.spec.groups) + offset
        return self.f.address(self.kernel[operand.name], offset, operand.type)

    def _finish(self, micro: Micro) -> Function:
        assert self.spec.epilogue is not None
        return emit_finish(self.module, Finish(
            self.spec.epilogue, self.tile.lanes, micro.vectors, self.spec.element,
            self.spec.element, micro.ldc, micro.masked))

    def _micro(self, depth: _Depth, *, masked: bool, direct: bool) -> Micro:
        spec, tile, area = self.spec, self.tile, self.spec.area()
        vectors = tile.vectors
        if masked and area is not None:
            vectors = -(-(area % tile.columns) // tile.lanes)
        line = spec.channel_line if isinstance(spec.channel_line, int) else None
        return Micro(
            tile=tile, unroll=UNROLL, rows=0, vectors=vectors, accumulator=spec.element,
            a=spec.element, a_row=1 if spec.packed else spec.depth,
            a_step=self.cut.height if spec.packed else 1,
            b=spec.element, b_step=line if direct else tile.columns, c=spec.element, ldc=area,
            first=depth.first, last=depth.last, tail=depth.size % UNROLL, masked=masked,
            ahead=0, spread=0, streams=1, epilogue=None if self.late else spec.epilogue,
            a_ahead=_AHEAD if spec.packed else 0)
