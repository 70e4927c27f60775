"""Windows that slide over bands: depthwise filters, sums and extremes, several rows at a time.

A tile of output rows by vectors shares every input vector that it loads among the rows whose
windows contain it. Vectors at the end of a row overlap those before, so whole vectors are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ....codegen.llvm.kernel import Kernel
from ....codegen.llvm.target import Target, host
from ....codegen.llvm.text import I64, PTR, Module, Value
from ..contraction import Extent, ExtraOperand
from ..contraction.spec import Place
from .bands import Band, band, band_function, bands_fit
from .planes import NEUTRAL, Planes, combine
from .spec import Window

_TAPS = 64
"""Most taps of a window that is written out."""
_CHUNK_WORK, _MOST_CHUNKS = 1 << 17, 64
_FLAT = Window(1, 1, 0, 1)
"""The axis that a row alone lacks."""


def slides(spec: Planes) -> bool:
    """Whether this template serves the windows."""
    return bands_fit(spec.windows) and spec.taps <= _TAPS


def _windows(spec: Planes) -> tuple[Window, Window]:
    return (_FLAT, *spec.windows)[-2:]  # type: ignore[return-value]


def _shape(spec: Planes, target: Target) -> tuple[int, int]:
    """Rows and vectors of a tile: half of the registers hold results."""
    down, along = _windows(spec)
    most = target.vector_registers // 2
    lanes = target.lanes(spec.element)
    vectors = 2 if not isinstance(along.out, int) else max(1, -(-along.out // lanes))
    if down.out == 1:
        return 1, min(vectors, 4)
    vectors = vectors if vectors <= 3 else 2
    rows = max(1, min(most // vectors, 6))
    if isinstance(down.out, int):
        rows = -(-max(1, down.out) // -(-max(1, down.out) // rows))
    return rows, vectors


def _band(spec: Planes, target: Target) -> Band:
    down, along = _windows(spec)
    return band(down, along, _shape(spec, target)[0], target.lanes(spec.element), spec.element)


def slide_scratch(spec: Planes) -> int:
    """Scratch memory of a lane: a band."""
    return _band(spec, host()).elements * spec.element.size + 256


def slide_chunks(spec: Planes, sizes: Mapping[str, int]) -> int:
    """Chunks for these run-time sizes."""
    batch, channels, *outs = [sizes[n] if isinstance(n, str) else n for n in (
        spec.batch, spec.channels, *(w.out for w in _windows(spec)))]
    items = batch * channels * -(-outs[0] // _band(spec, host()).rows)
    work = batch * channels * prod(outs) * spec.taps
    return max(1, min(items, work // _CHUNK_WORK, _MOST_CHUNKS))


def emit_slide(module: Module, spec: Planes, name: str) -> Kernel:
    """Write the kernel. Its words are those of `emit_planes`."""
    extras = spec.epilogue.operands if spec.epilogue else ()
    weights = [("w", PTR)] if spec.fold == "weighted" else []
    kernel = Kernel(module, name, [("x", PTR), ("y", PTR), *weights, *(
        (x.name, PTR) for x in extras), *((n, I64) for n in spec.run_time_words())])
    _Slide(kernel, module, spec).run()
    kernel.finish()
    return kernel


class _Slide:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, module: Module, spec: Planes) -> None:
        self.kernel, self.spec, self.f = kernel, spec, kernel.function
        self.down, self.along = _windows(spec)
        self.rows, self.vectors = _shape(spec, module.target)
        self.band = _band(spec, module.target)
        self.lanes = self.band.lanes
        self.kind = spec.element.vector(self.lanes)
        self.copy = band_function(module, self.band, NEUTRAL[spec.fold])
        self.height, self.width = self.size(self.down.out), self.size(self.along.out)

    def size(self, extent: Extent) -> Value:
        """A size as a value."""
        return self.kernel[extent] if isinstance(extent, str) else self.f.constant(I64, extent)

    def run(self) -> None:
        """The loop over bands of planes, and blocks of columns in each."""
        f, spec, band = self.f, self.spec, self.band
        bands = f.binary("udiv", self.height + (band.rows - 1), band.rows)
        blocks = f.binary("udiv", self.width + (band.columns - 1), band.columns)
        channels = self.size(spec.channels)
        low, high = self.kernel.share(self.size(spec.batch) * channels * bands)
        with f.loop(low, high) as item, f.loop(0, blocks) as block:
            plane = f.binary("udiv", item.index, bands)
            channel = f.binary("urem", plane, channels)
            entry = f.binary("udiv", plane, channels)
            row = f.binary("urem", item.index, bands) * band.rows
            column = block.index * band.columns
            rows = f.minimum(self.height - row, band.rows)
            self._copy(entry, channel, row, column, rows)
            columns = f.minimum(self.width - column, band.columns)
            self._tiles(_Block(self, plane, entry, channel, row, column), rows, columns)

    def _copy(self, entry: Value, channel: Value, row: Value, column: Value, rows: Value) -> None:
        f, spec, down, along = self.f, self.spec, self.down, self.along
        source = f.binary("udiv", channel, spec.multiplier)
        x = entry * self.size(spec.batch_line) + source * self.size(spec.channel_line)
        lines = (rows - 1) * down.step + ((down.kernel - 1) * down.gap + 1)
        f.invoke(self.copy, f.address(self.kernel["x"], x, spec.element), self.kernel.scratch(),
                 lines, row * down.step - self.size(down.before),
                 column * along.step - self.size(along.before), self.size(down.size),
                 self.size(along.size), self.size(down.line))

    def _tiles(self, block: _Block, rows: Value, columns: Value) -> None:
        f, span = self.f, self.vectors * self.lanes
        with f.loop(0, rows, self.rows) as r, f.loop(0, columns, span) as c:
            most = f.maximum(columns - self.lanes, 0)
            starts = [f.minimum(c.index + v * self.lanes, most) for v in range(self.vectors)]
            sums = self._sums(block, r.index, starts)
            # Rows beyond the last write over it before it is written itself: a branch would make
            # LLVM move their sums behind it, and spill what they share.
            for k in reversed(range(self.rows)):
                row = f.minimum(r.index + k, rows - 1)
                for v, start in enumerate(starts):
                    self._store(block, row, start, columns, sums[k * self.vectors + v])

    def _sums(self, block: _Block, row: Value, starts: Sequence[Value]) -> list[Value]:
        """The folds of a tile: rows, then vectors."""
        f, spec, band, down = self.f, self.spec, self.band, self.down
        base = row * (band.line * down.step)
        at = [f.address(self.kernel.scratch(), base + s, spec.element) for s in starts]
        sums = [f.constant(self.kind, NEUTRAL[spec.fold])] * (self.rows * self.vectors)
        for line in range(band.lines_for(self.rows)):
            users = [(k, (line - k * down.step) // down.gap) for k in range(self.rows)
                     if 0 <= line - k * down.step <= (down.kernel - 1) * down.gap
                     and (line - k * down.step) % down.gap == 0]
            for tap in range(self.along.kernel if users else 0):
                items = [f.load(self.kind, p, band.place(line, tap)) for p in at]
                for k, over in users:
                    weight = self._weight(block, over * self.along.kernel + tap)
                    for v, item in enumerate(items):
                        i = k * self.vectors + v
                        sums[i] = combine(f, spec.fold, sums[i], item, weight)
        return sums

    def _weight(self, block: _Block, tap: int) -> Value | None:
        if self.spec.fold != "weighted":
            return None
        f = self.f
        return f.splat(f.load(self.spec.element, block.weights, tap), self.lanes)

    def _store(self, block: _Block, row: Value, start: Value, columns: Value, value: Value
               ) -> None:
        f, element, epilogue = self.f, self.spec.element, self.spec.epilogue
        known = self.along.out
        narrow = None if isinstance(known, int) and known >= self.lanes else (
            f.tail_mask(columns - start, self.lanes))
        at = block.start(row, start)
        if epilogue is not None:
            values = [self._operand(x, block, at, narrow) for x in epilogue.operands]
            value = epilogue.emit(f, value, values, Place(block.channel, at))
        to = f.address(self.kernel["y"], at, element)
        if narrow is None:
            f.store(value, to)
            return
        whole = f.compare("ge", columns - start, self.lanes)
        with f.when(whole):
            f.store(value, to)
        with f.when(f.compare("lt", columns - start, self.lanes)):
            f.masked_store(value, to, narrow)

    def _operand(self, x: ExtraOperand, block: _Block, at: Value, mask: Value | None) -> Value:
        """An operand at a vector of y: of the channel, or lying as y does."""
        f, element = self.f, self.spec.element
        if x.kind == "matrix":
            pointer, kind = f.address(self.kernel[x.name], at, x.type), x.type.vector(self.lanes)
            found = f.load(kind, pointer) if mask is None else f.masked_load(kind, pointer, mask)
            return f.convert(found, element)
        place = f.constant(I64, 0)
        if x.kind == "row":
            place = block.channel * self.size(1 if x.line is None else x.line)
        if x.batch is not None:
            place = place + block.entry * self.size(x.batch[0])
        item = f.load(x.type, self.kernel[x.name], place)
        return f.splat(f.convert(item, element), self.lanes)


class _Block:
    """A block of outputs: its plane, entry and channel, first row and column."""

    def __init__(self, work: _Slide, plane: Value, entry: Value, channel: Value, row: Value,
                 column: Value) -> None:
        self.work, self.plane, self.entry, self.channel = work, plane, entry, channel
        self.row, self.column = row, column
        f = work.f
        self.weights = f.address(
            work.kernel["w"], channel * work.spec.taps, work.spec.element) if (
                work.spec.fold == "weighted") else work.kernel["x"]

    def start(self, row: Value, column: Value) -> Value:
        """The place in y of a row and column of the block."""
        line = self.plane * self.work.height + self.row + row
        return line * self.work.width + self.column + column
