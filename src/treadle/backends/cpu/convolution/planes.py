"""Windows that slide over planes: depthwise filters, sums and extremes.

A chunk is a range of output rows. Vectors run along a row: those whose taps all lie inside the
input go several at a time, those at the edges one by one under masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import Literal, TypeAlias

from ....codegen.llvm.kernel import Kernel
from ....codegen.llvm.text import F32, I1, I32, I64, PTR, Function, Module, Type, Value
from ....records import dataclass
from ..contraction import Epilogue, Extent, ExtraOperand
from ..contraction.spec import Place
from .spec import Window

Fold: TypeAlias = Literal["weighted", "sum", "max", "min"]
NEUTRAL: dict[Fold, float] = {"weighted": 0, "sum": 0, "max": -inf, "min": inf}
_ABREAST = 4
"""Vectors of a row that are in flight together."""
_WRITTEN_OUT = 9
"""Taps along a row up to which they are written out."""
_CHUNK_WORK, _MOST_CHUNKS = 1 << 17, 64


@dataclass(frozen=True, slots=True)
class Planes:
    """y[n, c, o] = the fold of x[n, c / multiplier, o * step + t * gap - before] over taps t.

    `weighted` is the sum of products with w[c, t]. `batch`, then `channels` of y, which lies row by
    row; x has its own strides, of which the last axis has 1. Outside x nothing is folded.
    """

    fold: Fold
    batch: Extent
    channels: Extent
    multiplier: int
    windows: tuple[Window, ...]
    batch_line: Extent
    channel_line: Extent
    element: Type = F32
    epilogue: Epilogue | None = None

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return prod([w.kernel for w in self.windows])

    def run_time_words(self) -> list[str]:
        """Names of sizes and strides that each run supplies, in order of first use."""
        sizes = [self.batch, self.channels, self.batch_line, self.channel_line]
        for w in self.windows:
            sizes += w.sizes()
        for operand in self.epilogue.operands if self.epilogue else ():
            sizes += operand.extents()
        return list(dict.fromkeys(s for s in sizes if isinstance(s, str)))


def combine(f: Function, fold: Fold, total: Value, value: Value, weight: Value | None) -> Value:
    """A fold with one more element. NaN stays in extremes."""
    if weight is not None:
        return f.fma(value, weight, total) if f.target.has_fma else value * weight + total
    if fold == "sum":
        return total + value
    better = (f.maximum if fold == "max" else f.minimum)(total, value)
    return f.select(f.compare("uno", total, total), total, better)


def plane_chunks(spec: Planes, sizes: Mapping[str, int]) -> int:
    """Chunks for these run-time sizes."""
    batch, channels, *outs = [sizes[n] if isinstance(n, str) else n for n in (
        spec.batch, spec.channels, *(w.out for w in spec.windows))]
    rows = batch * channels * prod(outs[:-1])
    return max(1, min(rows, rows * outs[-1] * spec.taps // _CHUNK_WORK, _MOST_CHUNKS))


def emit_planes(module: Module, spec: Planes, name: str) -> Kernel:
    """Write the kernel. Its words: x, y, w if weighted, the epilogue's operands, sizes."""
    extras = spec.epilogue.operands if spec.epilogue else ()
    weights = [("w", PTR)] if spec.fold == "weighted" else []
    kernel = Kernel(module, name, [("x", PTR), ("y", PTR), *weights, *(
        (x.name, PTR) for x in extras), *((n, I64) for n in spec.run_time_words())])
    _Rows(kernel, spec).run()
    kernel.finish()
    return kernel


@dataclass(frozen=True, slots=True)
class _Row:
    """An output row: its number, entry and channel, where it lies, its plane, outer taps."""

    number: Value
    entry: Value
    channel: Value
    y: Value
    x: Value
    origins: tuple[Value, ...]
    ranges: tuple[tuple[Value, Value], ...]


class _Rows:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, spec: Planes) -> None:
        self.kernel, self.spec, self.f = kernel, spec, kernel.function
        self.lanes = self.f.target.lanes(spec.element)
        self.kind = spec.element.vector(self.lanes)
        self.last = spec.windows[-1]
        self.width, self.before = self.size(self.last.out), self.size(self.last.before)

    def size(self, extent: Extent) -> Value:
        """A size as a value."""
        return self.kernel[extent] if isinstance(extent, str) else self.f.constant(I64, extent)

    def run(self) -> None:
        """The loop over rows."""
        f, spec = self.f, self.spec
        rows = self.size(spec.batch) * self.size(spec.channels)
        for w in spec.windows[:-1]:
            rows = rows * self.size(w.out)
        low, high = self.kernel.share(rows)
        edges = self._zones()
        with f.loop(low, high) as at:
            row = self._row(at.index)
            for low, high, count in edges:
                with f.loop(low, high, self.lanes * max(count, 1)) as vector:
                    self._vectors(row, vector.index, count)

    def _row(self, index: Value) -> _Row:
        f, spec = self.f, self.spec
        rest, origins = index, list[Value]()
        ranges: list[tuple[Value, Value]] = []
        for w in reversed(spec.windows[:-1]):
            out = self.size(w.out)
            origin = f.binary("urem", rest, out) * w.step - self.size(w.before)
            rest = f.binary("udiv", rest, out)
            origins.insert(0, origin)
            first = self._ceil(f.maximum(-origin, 0), w.gap)
            past = self._ceil(f.maximum(self.size(w.size) - origin, 0), w.gap)
            ranges.insert(0, (first, f.minimum(past, w.kernel)))
        channels = self.size(spec.channels)
        channel, entry = f.binary("urem", rest, channels), f.binary("udiv", rest, channels)
        plane = f.binary("udiv", channel, spec.multiplier)
        x = entry * self.size(spec.batch_line) + plane * self.size(spec.channel_line)
        y = f.address(self.kernel["y"], index * self.width, spec.element)
        return _Row(index, entry, channel, y, f.address(self.kernel["x"], x, spec.element),
                    tuple(origins), tuple(ranges))

    def _ceil(self, a: Value, b: int) -> Value:
        return a if b == 1 else self.f.binary("udiv", a + (b - 1), b)

    def _zones(self) -> list[tuple[Value, Value, int]]:
        """Ranges of a row's positions and the vectors abreast; none means under masks."""
        f, w, lanes = self.f, self.last, self.lanes
        inside = f.maximum(self._ceil(f.maximum(self.before, 0), w.step), 0)
        start = f.minimum(self._ceil(inside, lanes) * lanes, self.width)
        room = self.size(w.size) + self.before - ((w.kernel - 1) * w.gap + w.step - 1)
        end = f.minimum(f.binary("udiv", f.maximum(room, 0) + (w.step - 1), w.step), self.width)
        whole = f.maximum(end - start, 0)
        many = start + f.binary("udiv", whole, lanes * _ABREAST) * (lanes * _ABREAST)
        single = start + f.binary("udiv", whole, lanes) * lanes
        zero = f.constant(I64, 0)
        return [(zero, start, 0), (start, many, _ABREAST), (many, single, 1),
                (single, self.width, 0)]

    # One group of vectors

    def _vectors(self, row: _Row, start: Value, count: int) -> None:
        """Fold the windows of `count` vectors, or of one under masks, and store them."""
        f, spec = self.f, self.spec
        neutral = f.constant(self.kind, NEUTRAL[spec.fold])
        written = self.last.kernel <= _WRITTEN_OUT
        masks = [] if count or not written else [
            self._masks(self._place(start, f.constant(I64, t))) for t in range(self.last.kernel)]

        def line(offset: Value, tap: Value, sums: list[Value]) -> list[Value]:
            def one(t: Value, mask: list[Value] | None, sums: list[Value]) -> list[Value]:
                return self._tap(row, offset, self._place(start, t), tap + t, mask, sums)

            if written:
                for t in range(self.last.kernel):
                    sums = one(f.constant(I64, t), masks[t] if masks else None, sums)
                return sums
            with f.loop(0, self.last.kernel, 1, sums) as loop:
                mask = None if count else self._masks(self._place(start, loop.index))
                loop.carry(*one(loop.index, mask, list(loop.values)))
            return loop.results

        zero = f.constant(I64, 0)
        sums = self._outer(row, 0, zero, zero, [neutral] * max(count, 1), line)
        for u, value in enumerate(sums):
            self._store(row, start + u * self.lanes, value, masked=not count)

    def _outer(self, row: _Row, axis: int, offset: Value, tap: Value, sums: list[Value],
               line: Callable[[Value, Value, list[Value]], list[Value]]) -> list[Value]:
        """Loops over the taps of the axes before the last one; `tap` counts them all."""
        if axis == len(row.ranges):
            return line(offset, tap * self.last.kernel, sums)
        f, w = self.f, self.spec.windows[axis]
        with f.loop(*row.ranges[axis], 1, sums) as loop:
            at = row.origins[axis] + loop.index * w.gap
            deeper = self._outer(row, axis + 1, offset + at * self.size(w.line),
                                 tap * w.kernel + loop.index, list(loop.values), line)
            loop.carry(*deeper)
        return loop.results

    def _place(self, start: Value, tap: Value) -> Value:
        """The input position along the row that lane 0 of a vector reads."""
        return start * self.last.step + tap * self.last.gap - self.before

    def _tap(self, row: _Row, offset: Value, place: Value, tap: Value,
             mask: list[Value] | None, sums: Sequence[Value]) -> list[Value]:
        f, element = self.f, self.spec.element
        weight = None
        if self.spec.fold == "weighted":
            at = row.channel * self.spec.taps + tap
            weight = f.splat(f.load(element, self.kernel["w"], at), self.lanes)
        pointer = f.address(row.x, offset + place, element)
        return [combine(f, self.spec.fold, total, self._load(f.address(
            pointer, u * self.lanes * self.last.step, element), mask), weight)
            for u, total in enumerate(sums)]

    # Memory

    def _masks(self, place: Value) -> list[Value]:
        """Masks of the loads that give a vector whose lane 0 reads at `place`."""
        f, step, lanes = self.f, self.last.step, self.lanes
        low = f.minimum(f.maximum(f.binary("ashr", -place + (step - 1), 1) if step == 2
                                  else -place, 0), lanes * step)
        high = f.maximum(self.size(self.last.size) - place, 0)
        if step == 2:
            low = low * 2
        limit = f.minimum(high, lanes * step)
        if step > 2:
            kind = I64.vector(lanes)
            at = f.iota(kind) * step
            return [f.compare("ge", at, f.splat(low, lanes))
                    & f.compare("lt", at, f.splat(limit, lanes))]
        return [self._between(low - j * lanes, limit - j * lanes) for j in range(step)]

    def _between(self, low: Value, high: Value) -> Value:
        f, lanes = self.f, self.lanes
        kind = I32.vector(lanes)
        a, b = (f.splat(f.cast("trunc", v, I32), lanes) for v in (low, high))
        return f.compare("ge", f.iota(kind), a) & f.compare("lt", f.iota(kind), b)

    def _load(self, pointer: Value, mask: list[Value] | None) -> Value:
        """A vector of elements `step` apart."""
        f, step, lanes, element = self.f, self.last.step, self.lanes, self.spec.element
        fill = NEUTRAL[self.spec.fold]
        if step > 2:
            at = f.address(pointer, f.iota(I64.vector(lanes)) * step, element)
            every = f.constant(I1.vector(lanes), 1)
            return f.gather(self.kind, at, mask[0] if mask else every, fill)
        parts = [f.masked_load(self.kind, f.address(pointer, j * lanes, element), mask[j], fill)
                 if mask else f.load(self.kind, pointer, j * lanes) for j in range(step)]
        return parts[0] if step == 1 else f.shuffle(parts[0], parts[1], range(0, 2 * lanes, 2))

    def _store(self, row: _Row, at: Value, value: Value, *, masked: bool) -> None:
        f, epilogue = self.f, self.spec.epilogue
        if epilogue is not None:
            values = [self._operand(x, row, at, masked=masked) for x in epilogue.operands]
            value = epilogue.emit(f, value, values, Place(row.channel, at))
        if masked:
            mask = f.tail_mask(self.width - at, self.lanes)
            f.masked_store(value, f.address(row.y, at, self.spec.element), mask)
        else:
            f.store(value, row.y, at)

    def _operand(self, x: ExtraOperand, row: _Row, at: Value, *, masked: bool) -> Value:
        """An operand at a vector of y: of the channel, or lying as y does."""
        f, element = self.f, self.spec.element
        if x.kind == "matrix":
            pointer = f.address(self.kernel[x.name], row.number * self.width + at, x.type)
            kind = x.type.vector(self.lanes)
            found = f.load(kind, pointer) if not masked else f.masked_load(
                kind, pointer, f.tail_mask(self.width - at, self.lanes))
            return f.convert(found, element)
        place = row.channel * self.size(1 if x.line is None else x.line) if x.kind == "row" else (
            f.constant(I64, 0))
        if x.batch is not None:
            place = place + row.entry * self.size(x.batch[0])
        item = f.load(x.type, self.kernel[x.name], place)
        return f.splat(f.convert(item, element), self.lanes)
