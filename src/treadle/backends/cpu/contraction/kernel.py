"""The kernel around the tiles: batches, blocks of rows, panels of columns, blocks of k.

Its units of work are (batch, block of rows, panel); a chunk is a range of them. Row tiles and
blocks follow from the sizes alone, so every element is summed in the same order however many
chunks there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ....codegen.llvm.kernel import Kernel
from ....codegen.llvm.text import I8, I32, I64, PTR, Function, Index, Module, Type, Value
from ....errors import Declined
from .integer import HEADER, chosen_late
from .micro import Micro, emit_micro
from .operands import Finish, emit_finish, finish_arguments
from .shape import Depth, Shape
from .spec import Epilogue, Extent, ExtraOperand, Matmul
from .staging import pack_function, stage_function
from .tiles import UNROLL

_AHEAD = 2048
"""Bytes of prefetch within a panel."""
_LOW = 2
"""Rows whose unrolled sums of integers stay in registers."""


class Panels(NamedTuple):
    """A range of panels that share a tile: full ones, or the last, partial one."""

    low: Value
    high: Value
    masked: bool


class Slab(NamedTuple):
    """One batch entry's block of rows: offsets of each operand in elements, range of tiles.

    `extras` are those of the epilogue's operands.
    """

    a: Index
    b: Index
    c: Index
    extras: list[Value]
    low: Value
    high: Value


def emit_matmul(module: Module, spec: Matmul, name: str) -> Kernel:
    """Write the kernel. Its words: a, b, c, the extra operands, the run-time sizes and strides."""
    if spec.integer and (spec.b_layout != "packed" or spec.prologue or spec.a_transposed):
        raise Declined("an 8-bit product needs packed B, and A as it lies, row by row",
                       hint="pack B with pack_integer, or multiply in f32")
    words = [("a", PTR), ("b", PTR), ("c", PTR), *((x.name, PTR) for x in spec.extras),
             *((size, I64) for size in spec.run_time_words())]
    kernel = Kernel(module, name, words)
    if spec.integer and chosen_late(module.target, spec):
        _either(kernel, module, spec)
    else:
        _Macro(kernel, module, spec).run()
    kernel.finish()
    return kernel


def _either(kernel: Kernel, module: Module, spec: Matmul) -> None:
    """Both ways to multiply; the header of B says which."""
    f = kernel.function
    form = f.load(I32, kernel["b"])
    small, wide, done = f.label("small"), f.label("wide"), f.label("done")
    f.branch(f.compare("ne", form, 0), small, wide)
    for label in (small, wide):
        f.start(label)
        macro = _Macro(kernel, module, replace(spec, small=label == small))
        macro.begin = macro.after_order()
        if label == small:
            macro.order = [f.select(f.compare("eq", form, 2), f.address(kernel["b"], HEADER, I8),
                                   f.constant(PTR, 0))]
        macro.run()
        f.jump(done)
    f.start(done)


class _Macro(Shape):
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, module: Module, spec: Matmul) -> None:
        super().__init__(module, spec)
        self.kernel, self.spec, self.module = kernel, spec, module
        self.begin, self.order = kernel["b"], list[Value]()
        self.extras = spec.epilogue.operands if spec.epilogue else ()
        self.f: Function = kernel.function
        m = self._size(spec.m)
        self.tiles = self._ceil(m, self.tile.rows)
        self.low_rows = self._udiv(m, self.f.maximum(self.tiles, 1))
        self.extra = m - self.low_rows * self.tiles

    def _size(self, size: Extent) -> Value:
        return self.kernel[size] if isinstance(size, str) else self.f.constant(I64, size)

    def _udiv(self, a: Index, b: Index) -> Value:
        return self.f.binary("udiv", self.f.constant(I64, a), b)

    def _steps(self, k: Extent) -> Value:
        """Steps of k: groups where one instruction multiplies several."""
        return self._ceil(self._size(k), self.group)

    def _ceil(self, a: Index, b: Index) -> Value:
        b = self.f.constant(I64, b)
        return self._udiv(self.f.constant(I64, a) + b - 1, b)

    def after_order(self) -> Value:
        """Where panels begin behind a header and the order of k."""
        items = self._ceil(self._size(self.spec.k), 4) * 16
        return self.f.address(self.kernel["b"], (items + 63 & -64) + HEADER, I8)

    def run(self) -> None:
        """The loop over slabs, and over blocks of k and panels in each."""
        f = self.f
        blocks = self._ceil(self.tiles, self.block_tiles)
        panels = self._ceil(self._size(self.spec.n), self.tile.columns)
        batches = f.constant(I64, 1)
        for axis in self.spec.batch:
            batches = batches * self._size(axis.extent)
        low, high = self.kernel.share(batches * blocks * panels)
        panels = f.maximum(panels, 1)
        with f.loop(self._udiv(low, panels), self._ceil(high, panels)) as at:
            base = at.index * panels
            first, last = f.maximum(low - base, 0), f.minimum(high - base, panels)
            slab = self._slab(at.index, f.maximum(blocks, 1))
            for depth in self.depths:
                a, row_a = self._a(slab, depth)
                for part in self._parts(first, last):
                    self._panel_loop(slab, depth, part, a, row_a)

    def _slab(self, index: Value, blocks: Value) -> Slab:
        f = self.f
        block = f.binary("urem", index, blocks)
        batch = self._udiv(index, blocks)
        offsets = [f.constant(I64, 0)] * (3 + len(self.extras))
        for at, axis in reversed(list(enumerate(self.spec.batch))):
            place = f.binary("urem", batch, self._size(axis.extent)) if at else batch
            batch = self._udiv(batch, self._size(axis.extent)) if at else batch
            lines = (axis.a, axis.b, axis.c, *(self._batch_line(x, at) for x in self.extras))
            offsets = [o + place * self._size(stride) for o, stride in zip(
                offsets, lines, strict=True)]
        low = block * self.block_tiles
        a, b, c, *extras = offsets
        return Slab(a, b, c, extras, low, f.minimum(low + self.block_tiles, self.tiles))

    def _batch_line(self, operand: ExtraOperand, axis: int) -> Extent:
        """The stride of an epilogue's operand along a batch axis."""
        if operand.batch is not None:
            return operand.batch[axis]
        return self.spec.batch[axis].c if operand.kind == "matrix" else 0

    def _row(self, tile: Value) -> Value:
        """The first row of a tile: heights differ by at most one, the taller come first."""
        return tile * self.low_rows + self.f.minimum(tile, self.extra)

    # A

    def _a(self, slab: Slab, depth: Depth) -> tuple[Value, Extent]:
        """Where this block of A begins, and the distance of its lines; staged if need be."""
        spec, f, line = self.spec, self.f, self._size(self.spec.row_a)
        row = self._row(slab.low)
        offset = depth.start * line + row if spec.a_transposed else row * line + depth.start
        source = f.address(self.kernel["a"], slab.a + offset, spec.a)
        if not self.stages:
            return source, spec.row_a
        rows = self._row(slab.high) - row
        outer, inner = (self._size(depth.size), rows) if spec.a_transposed else (
            rows, self._size(depth.size))
        stride = self._stage_line(depth)
        start = f.constant(I64, depth.start)
        extras = [self._extra(x, row, start) for x in (
            spec.prologue.operands if spec.prologue else ())]
        target = self.kernel.scratch()
        stage = stage_function(self.module, spec, self.tile, self.integer)
        f.invoke(stage, source, target, outer, inner, line, self._line_value(stride), row,
                 start, *extras, *self.order)
        return target, stride

    def _stage_line(self, depth: Depth) -> Extent:
        """The distance of staged lines: known if k is, and never a large power of two."""
        if self.spec.a_transposed:
            return -(-self.tile.rows * self.block_tiles // 16) * 16 + 16
        if isinstance(depth.size, int):
            return -(-depth.size // 16) * 16 + 16
        return "stage"

    def _line_value(self, line: Extent) -> Value:
        if line == "stage":
            return (self._size(self.spec.k) + 15 & -16) + 16
        return self._size(line)

    def _extra(self, operand: ExtraOperand, row: Value, column: Value) -> Value:
        """An operand's pointer for a block that begins at (row, column)."""
        offset: Index = column if operand.kind in ("column", "matrix") else 0
        if operand.kind in ("row", "matrix"):
            line = operand.line if operand.line is not None else (
                1 if operand.kind == "row" else self.spec.row_c)
            offset = row * self._size(line) + offset
        return self.f.address(self.kernel[operand.name], offset, operand.type)

    # B

    def _parts(self, first: Value, last: Value) -> list[Panels]:
        """The chunk's panels: those of full width, then the partial one if there can be one."""
        n, columns = self.spec.n, self.tile.columns
        if isinstance(n, int) and n % columns == 0:
            return [Panels(first, last, False)]
        full = self._udiv(self._size(n), columns)
        return [Panels(first, self.f.minimum(last, full), False),
                Panels(self.f.maximum(first, full), last, True)]

    def _b(self, slab: Slab, depth: Depth, panel: Value, masked: bool
           ) -> tuple[Value, Extent, Value]:
        """A panel's address, the distance of its steps of k, the same place in the next panel."""
        spec, f, columns = self.spec, self.f, self.tile.columns
        if spec.b_layout == "packed":
            size = self._steps(spec.k) * (columns * self.group)
            offset = slab.b + panel * size + depth.start * columns
            return (f.address(self.begin, offset, spec.b), columns * self.group,
                    f.address(self.begin, offset + size, spec.b))
        line, by_columns = self._size(spec.row_b), spec.b_layout == "columns"
        offset = (panel * columns * line + depth.start if by_columns
                  else depth.start * line + panel * columns)
        source = f.address(self.begin, slab.b + offset, spec.b)
        if not self.copies_b and not masked:
            return source, spec.row_b, f.address(source, columns, spec.b)
        target = f.address(self.kernel.scratch(), self._staged_elements(depth), spec.accumulator)
        pack = pack_function(self.module, spec.b, spec.accumulator, self.tile, by_columns)
        f.invoke(pack, source, target, self._size(depth.size), line,
                 self._size(spec.n) - panel * columns)
        return target, columns, target

    def _staged_elements(self, depth: Depth) -> Index:
        """Scratch elements that staged A takes before packed B begins."""
        if not self.stages:
            return 0
        lines = (self._size(depth.size) if self.spec.a_transposed
                 else self.tile.rows * self.block_tiles)
        return self._line_value(self._stage_line(depth)) * lines

    # Tiles

    def _panel_loop(self, slab: Slab, depth: Depth, part: Panels, a: Value, row_a: Extent) -> None:
        f, columns = self.f, self.tile.columns
        with f.loop(part.low, part.high) as panel:
            b, row_b, after = self._b(slab, depth, panel.index, part.masked)
            micro = self._micro(depth, part.masked, row_a, row_b)
            left = self._size(self.spec.n) - panel.index * columns
            start = self._row(slab.low)
            with f.loop(slab.low, slab.high) as at:
                row, column = self._row(at.index), panel.index * columns
                in_c = slab.c + row * self._size(self.spec.row_c) + column
                extras = [f.address(self._extra(x, row, column), slab.extras[i], x.type)
                          for i, x in enumerate(self.extras)]
                extras += [self._size(x.line) for x in self.extras if isinstance(x.line, str)]
                share = self._next_share(at.index - slab.low, depth, micro)
                args = [f.address(a, self._a_offset(row - start, row_a), self._a_type()), b,
                        f.address(self.kernel["c"], in_c, self.spec.c),
                        f.address(after, share, self.spec.b),
                        self._sums(slab, panel.index), self._steps(depth.size),
                        self._line_value(row_a), self._size(row_b), self._size(self.spec.row_c),
                        left, row, column]
                self._tile(at.index, micro, args, extras)

    def _tile(self, tile: Value, micro: Micro, args: list[Value], extras: list[Value]) -> None:
        """A tile, and its late epilogue when it is complete."""
        late = self.spec.epilogue if self.spec.epilogue and self.spec.epilogue.late else None
        self._dispatch(tile, lambda rows: emit_micro(self.module, self._of_height(micro, rows)),
                       [*args, *([] if late else extras)])
        if late is not None and micro.last:
            self._finish(late, micro, self._height(tile), [*args, *extras])

    def _finish(self, epilogue: Epilogue, micro: Micro, rows: Value, args: list[Value]) -> None:
        finish = emit_finish(self.module, Finish(
            epilogue, self.tile.lanes, micro.vectors, micro.accumulator, self.spec.c, micro.ldc,
            micro.masked))
        self.f.invoke(finish, *finish_arguments(args, rows))

    def _height(self, tile: Value) -> Value:
        return self.low_rows + self.f.cast("zext", self.f.compare("lt", tile, self.extra), I64)

    def _sums(self, slab: Slab, panel: Value) -> Value:
        """The column sums of a panel of 8-bit B; they follow the matrix's last panel."""
        if self.integer is None or not self.integer.sums:
            return self.begin
        columns = self.tile.columns
        panels = self._ceil(self._size(self.spec.n), columns)
        size = self._steps(self.spec.k) * (columns * self.group)
        return self.f.address(self.begin, slab.b + panels * size + panel * (columns * 4), I8)

    def _a_type(self) -> Type:
        if self.integer is not None:
            return self.integer.staged
        return self.spec.accumulator if self.stages else self.spec.a

    def _a_offset(self, row: Value, line: Extent) -> Index:
        return row if self.spec.a_transposed else row * self._line_value(line)

    def _next_share(self, tile: Value, depth: Depth, micro: Micro) -> Index:
        """Where in the next panel a tile begins to prefetch, in elements."""
        if not micro.spread:
            return 0
        line = 64 // micro.b.size
        parts = -(-self.unroll * self.tile.columns * self.group // line // micro.spread)
        # Tiles beyond the last part ask for it again, which costs next to nothing.
        part = self.f.minimum(tile, parts - 1)
        return part * (self._steps(depth.size) * (micro.spread * line) // self.unroll)

    def _micro(self, depth: Depth, masked: bool, row_a: Extent, row_b: Extent) -> Micro:
        """The tile for a block of k, for any height."""
        spec, tile = self.spec, self.tile
        line = row_a if isinstance(row_a, int) else None
        size = depth.size
        tail = -(-size // self.group) % self.unroll if isinstance(size, int) else None
        in_scratch = self.copies_b or (spec.b_layout == "rows" and masked)
        ahead, spread = self._prefetch() if spec.b_layout == "packed" and spec.cold else (0, 0)
        late = spec.epilogue is not None and spec.epilogue.late
        return Micro(
            tile=tile, unroll=self.unroll, rows=0, vectors=self._vectors(masked),
            accumulator=spec.accumulator,
            a=self._a_type(), a_row=1 if spec.a_transposed else line,
            a_step=line if spec.a_transposed else self.group,
            b=spec.accumulator if in_scratch else spec.b,
            b_step=row_b if isinstance(row_b, int) else None,
            c=spec.accumulator if late else spec.c,
            ldc=spec.row_c if isinstance(spec.row_c, int) else None,
            first=depth.first, last=depth.last, tail=tail, masked=masked,
            ahead=ahead, spread=spread, streams=1, epilogue=None if late else spec.epilogue,
            integer=self.integer)

    def _of_height(self, micro: Micro, rows: int) -> Micro:
        """The tile of a height. Low ones wait for memory, which serves several streams faster."""
        if self.unroll == 1 and not micro.spread and rows <= _LOW:
            steps = -(-self.spec.k // self.group) if isinstance(self.spec.k, int) else None
            micro = replace(micro, unroll=UNROLL, tail=None if steps is None else steps % UNROLL)
        streams = self.tile.streams(rows, micro.vectors) if self.spec.cold else 1
        if micro.spread or micro.unroll % streams or self.spec.b_layout != "packed":
            streams = 1
        return replace(micro, rows=rows, streams=streams, ahead=0 if streams == 4 else micro.ahead)

    def _vectors(self, masked: bool) -> int:
        """Vectors across a panel; a partial panel of known width needs fewer."""
        if masked and isinstance(self.spec.n, int):
            return -(-(self.spec.n % self.tile.columns) // self.tile.lanes)
        return self.tile.vectors

    def _prefetch(self) -> tuple[int, int]:
        """Bytes ahead in the panel, or lines of the next panel per unrolled step."""
        m = self.spec.m
        if not isinstance(m, int) or m <= self.tile.rows:
            return _AHEAD, 0
        tiles = min(-(-m // self.tile.rows), self.block_tiles)
        lines = self.unroll * self.tile.columns * self.group * self.spec.b.size // 64
        return 0, -(-lines // tiles)

    def _dispatch(self, tile: Value, function: Callable[[int], Function],
                  args: list[Value]) -> None:
        """Call the tile of the right height."""
        f, heights = self.f, self._heights()
        if len(heights) == 1:
            f.invoke(function(heights[0]), *args)
            return
        done, labels = f.label("done"), {rows: f.label("rows") for rows in heights}
        f.switch(self._height(tile), labels, done)
        for rows, label in labels.items():
            f.start(label)
            f.invoke(function(rows), *args)
            f.jump(done)
        f.start(done)

    def _heights(self) -> list[int]:
        """The tile heights that can occur."""
        m = self.spec.m
        if not isinstance(m, int):
            return list(range(1, self.tile.rows + 1))
        tiles = max(1, -(-m // self.tile.rows))
        low = max(1, m // tiles)
        return [low + 1, low] if m % tiles else [low]
