"""Copies what a panel of output positions reads into scratch memory, as rows of k by positions.

Positions run over all spatial axes, so a vector of them may cross ends of rows. One row, or two,
are read by masked vector accesses; narrower maps, and steps of three or more, lane by lane.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from ....codegen.llvm.text import I1, I32, I64, PTR, VOID, Function, Index, Module, Type, Value
from ....records import dataclass, replace
from ..contraction import Extent, Tile
from .spec import Convolution

_UNROLL = 4
Coordinates = list[Value]


def gather_function(module: Module, spec: Convolution, tile: Tile) -> tuple[Function, list[str]]:
    """The function and the words that its calls end with.

    Parameters: x of a batch entry and group, target, first position, range of k, then words.
    Convolutions that read alike share it.
    """
    spec = replace(spec, batch=1, groups=1, filters=1, batch_line=0, packed=True, epilogue=None)
    key = hashlib.blake2b(f"{spec} {tile}".encode(), digest_size=6)
    name, words = f"gather_{key.hexdigest()}", spec.run_time_words()
    if name in module.functions:
        return module.functions[name], words
    f = module.function(name, VOID, [("x", PTR), ("target", PTR), *((n, I64) for n in (
        "position", "low", "high", *words))])
    _Gather(f, spec, tile, dict(zip(words, f.args[5:], strict=True))).run()
    f.give()
    return f, words


@dataclass(frozen=True, slots=True)
class _Segment:
    """Lanes from `first` up to `last` that read one row; lane 0 would read at `coordinates`."""

    coordinates: Coordinates
    first: Index
    last: Index


class _Gather:
    """Writes the function."""

    def __init__(self, f: Function, spec: Convolution, tile: Tile, words: dict[str, Value]) -> None:
        self.f, self.spec, self.tile, self.words = f, spec, tile, words
        self.x, self.target, self.position, self.low, self.high = f.args[:5]
        self.kind: Type = spec.element.vector(tile.lanes)
        self.column = f.constant(I64, 0)

    def size(self, extent: Extent) -> Value:
        """A size as a value."""
        return self.words[extent] if isinstance(extent, str) else self.f.constant(I64, extent)

    def run(self) -> None:
        """Each vector of the panel by the path that its place allows."""
        f, lanes, window = self.f, self.tile.lanes, self.spec.windows[-1]
        with f.loop(0, self.tile.columns, lanes) as at:
            self.column = at.index
            place = self._unravel(self.position + at.index)
            if window.step > 2:
                self._scattered(place)
            elif len(place) == 1 or (isinstance(window.out, int) and window.out % lanes == 0):
                self._rows([_Segment(place, 0, lanes)])
            else:
                self._by_place(place, window.out)

    def _by_place(self, at: Coordinates, width: Extent) -> None:
        """One row, two rows, or more, as the place of the vector wants it."""
        f, lanes = self.f, self.tile.lanes
        row = self.size(width)
        left = row - at[-1]
        narrow = not isinstance(width, int) or width < lanes
        one, more, two, wide, done = (f.label(n) for n in ("one", "more", "two", "wide", "done"))
        f.branch(f.compare("ge", left, lanes), one, more)
        f.start(one)
        self._rows([_Segment(at, 0, lanes)])
        f.jump(done)
        f.start(more)
        if narrow:
            f.branch(f.compare("ge", left + row, lanes), two, wide)
            f.start(two)
        below = [*self._next_row(at[:-1]), -left]
        self._rows([_Segment(at, 0, left), _Segment(below, left, lanes)])
        f.jump(done)
        if narrow:
            f.start(wide)
            self._scattered(at)
            f.jump(done)
        f.start(done)

    # Places

    def _unravel(self, position: Value) -> Coordinates:
        """Output coordinates of a position; the first one is not limited."""
        out: Coordinates = []
        for w in reversed(self.spec.windows[1:]):
            size = self.f.maximum(self.size(w.out), 1)
            out.append(self.f.binary("urem", position, size))
            position = self.f.binary("udiv", position, size)
        return [position, *reversed(out)]

    def _next_row(self, outer: Coordinates) -> Coordinates:
        """One further along the last of these coordinates, with carries."""
        out = list(outer)
        carry = self.f.constant(I64, 1)
        for i in reversed(range(len(out))):
            moved = out[i] + carry
            if i == 0:
                out[i] = moved
                break
            over = self.f.compare("eq", moved, self.size(self.spec.windows[i].out))
            out[i] = self.f.select(over, 0, moved)
            carry = self.f.cast("zext", over, I64)
        return out

    def _input(self, i: int, coordinate: Value, tap: Value) -> Value:
        """The input position along axis `i`."""
        w = self.spec.windows[i]
        return coordinate * w.step + tap * w.gap - self.size(w.before)

    def _taps(self, body: Callable[[Value, list[Value], Value, Value], None]) -> None:
        """`body(first k, tap along each axis, channels from, channels to)` for the range of k."""
        f, channels = self.f, self.spec.channels
        if self.spec.taps == 1:
            zero = f.constant(I64, 0)
            body(zero, [zero] * len(self.spec.windows), self.low, self.high)
            return
        first = f.binary("udiv", self.low, channels)
        with f.loop(first, f.binary("udiv", self.high + (channels - 1), channels)) as tap:
            start = tap.index * channels
            at, rest = list[Value](), tap.index
            for w in reversed(self.spec.windows[1:]):
                at.append(f.binary("urem", rest, w.kernel))
                rest = f.binary("udiv", rest, w.kernel)
            body(start, [rest, *reversed(at)], f.maximum(self.low - start, 0),
                 f.minimum(self.high - start, channels))

    def _channels(self, start: Value, low: Value, high: Value,
                  load: Callable[[Value], Value]) -> None:
        """Store what `load(elements to the channel)` gives for a range of channels."""
        f, line = self.f, self.size(self.spec.channel_line)

        def one(channel: Value) -> None:
            k = start + channel - self.low
            f.store(load(channel * line), self.target, k * self.tile.columns + self.column)

        whole = low
        if self.spec.channels >= _UNROLL:
            whole = low + (high - low & -_UNROLL)
            with f.loop(low, whole, _UNROLL) as at:
                for j in range(_UNROLL):
                    one(at.index + j)
        with f.loop(whole, high) as at:
            one(at.index)

    # Rows

    def _rows(self, segments: Sequence[_Segment]) -> None:
        """Masked vectors from one row or two."""
        def tap(start: Value, taps: list[Value], low: Value, high: Value) -> None:
            found = [self._masked(s, taps) for s in segments]

            def load(offset: Value) -> Value:
                return self._either([self._read(p, masks, offset) for p, masks in found])

            self._channels(start, low, high, load)

        self._taps(tap)

    def _masked(self, s: _Segment, taps: list[Value]) -> tuple[Value, list[Value]]:
        """Where lane 0 reads in channel 0, and the masks of the loads that follow it."""
        f, step = self.f, self.spec.windows[-1].step
        offset, inside = f.constant(I64, 0), f.constant(I1, 1)
        for i, w in enumerate(self.spec.windows[:-1]):
            at = self._input(i, s.coordinates[i], taps[i])
            inside = inside & f.compare("ult", at, self.size(w.size))
            offset = offset + at * self.size(w.line)
        at = self._input(len(taps) - 1, s.coordinates[-1], taps[-1])
        first = self._lane(-at, s.first, s.last)
        last = self._lane(self.size(self.spec.windows[-1].size) - at, s.first, s.last)
        last = f.select(inside, last, 0)
        pointer = f.address(self.x, offset + at, self.spec.element)
        if step == 1:
            return pointer, [self._between(first, last)]
        lanes, last = self.tile.lanes, last * step - (step - 1)
        return pointer, [self._between(first * step - lanes * j, last - lanes * j)
                         for j in range(step)]

    def _lane(self, distance: Value, low: Index, high: Index) -> Value:
        """The first lane at least `distance` elements from lane 0, within limits."""
        lane = distance if self.spec.windows[-1].step == 1 else distance + 1 >> 1
        return self.f.minimum(self.f.maximum(lane, low), high)

    def _between(self, low: Value, high: Value) -> Value:
        f, lanes = self.f, self.tile.lanes
        kind = I32.vector(lanes)
        a, b = (f.splat(f.cast("trunc", v, I32), lanes) for v in (low, high))
        return f.compare("ge", f.iota(kind), a) & f.compare("lt", f.iota(kind), b)

    def _read(self, pointer: Value, masks: list[Value], offset: Value) -> Value:
        f, lanes = self.f, self.tile.lanes
        parts = [f.masked_load(self.kind, f.address(pointer, offset + j * lanes,
                                                    self.spec.element), mask)
                 for j, mask in enumerate(masks)]
        if len(parts) == 1:
            return parts[0]
        return f.shuffle(parts[0], parts[1], range(0, 2 * lanes, 2))

    def _either(self, parts: list[Value]) -> Value:
        """Vectors whose lanes are zero but in one of them."""
        if len(parts) == 1:
            return parts[0]
        whole = self.kind.with_scalar(I32 if self.spec.element.size == 4 else I64)
        a, b = (self.f.bitcast(p, whole) for p in parts)
        return self.f.bitcast(a | b, self.kind)

    # Lane by lane

    def _scattered(self, at: Coordinates) -> None:
        """Each lane has coordinates of its own."""
        f, lanes = self.f, self.tile.lanes
        kind = I64.vector(lanes)
        places = [f.constant(kind, 0) for _ in at]
        zero = f.constant(I64, 0)
        for lane in range(lanes):
            for i, c in enumerate(at):
                places[i] = f.insert(places[i], self._input(i, c, zero), lane)
            at = self._next_row(at)

        def tap(start: Value, taps: list[Value], low: Value, high: Value) -> None:
            offset, inside = f.constant(kind, 0), f.constant(I1.vector(lanes), 1)
            for w, place, t in zip(self.spec.windows, places, taps, strict=True):
                p = place + f.splat(t * w.gap, lanes)
                inside = inside & f.compare("ult", p, f.splat(self.size(w.size), lanes))
                offset = offset + p * f.splat(self.size(w.line), lanes)

            def load(channel: Value) -> Value:
                base = f.address(self.x, channel, self.spec.element)
                return f.gather(self.kind, f.address(base, offset, self.spec.element), inside)

            self._channels(start, low, high, load)

        self._taps(tap)
