"""The kernels of causal depthwise convolution, one for each layout.

Channels first, a unit is one channel: history and input lie side by side in scratch memory as f32,
and windows run along time. Channels last, a unit is a segment of tokens over neighbouring channels,
and each token reads the tokens that its taps see. History in front of the first token is the past
or zeros. Only the first segment reads the past, and it writes the state, which may lie there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ....codegen.llvm.kernel import Kernel
from ....codegen.llvm.target import Target
from ....codegen.llvm.text import F32, I64, PTR, Function, Index, Module, Type, Value
from ....records import dataclass
from ..contraction.staging import vector_loop
from .vectors import load, multiply_add, silu, store

_SEGMENT = 1024
"""Tokens of a channel that scratch memory holds beside its history."""
_ABREAST, _BLOCKS = 4, 16
"""Vectors of channels that are computed together, and how many times so many a unit has."""
_ROWS = 64
"""Channels of a single token that are activated together."""
_TOKENS = 128
"""Tokens of a unit, at least; also as many as the history."""
_WRITTEN_OUT = 16
"""Taps up to which each has code of its own."""
_CHUNK_WORK, _MOST_CHUNKS = 1 << 15, 256


@dataclass(frozen=True, slots=True)
class Causal:
    """A convolution of `channels` with `taps` of each, `gap` apart."""

    channels: int
    taps: int
    gap: int
    last: bool
    bias: bool
    past: bool
    activation: Literal["none", "silu"]
    window: int
    element: Type

    @property
    def reach(self) -> int:
        """Positions before the current one that are read."""
        return (self.taps - 1) * self.gap

    @property
    def history(self) -> int:
        """Positions that are kept: those of all states of a window."""
        return self.reach + max(self.window - 1, 0)

    @property
    def words(self) -> list[str]:
        """Addresses, then N, L, and the distances of batch entries and lines of x."""
        return ["x", "w", *["bias"] * self.bias, *["past"] * self.past, "y", "state", "n", "t",
                "batch", "line"]


def scratch_bytes(spec: Causal, target: Target) -> int:
    """Scratch memory of a lane."""
    if spec.last:
        return 4 * spec.taps * _wide(target) + 64
    return 4 * (spec.history + _SEGMENT) + 64


def _wide(target: Target) -> int:
    """Channels of a unit, where they come last."""
    return _ABREAST * _BLOCKS * target.lanes(F32)


def chunks_for(spec: Causal, target: Target, n: int, tokens: int) -> int:
    """How many chunks a plan cuts the kernel into."""
    segments = -(-tokens // max(_TOKENS, spec.reach)) if spec.last else 1
    units = n * max(segments, 1) * -(-spec.channels // (_wide(target) if spec.last else 1))
    work = n * spec.channels * (tokens + spec.reach) * spec.taps
    return max(1, min(units, work // _CHUNK_WORK, _MOST_CHUNKS))


def emit_causal(module: Module, spec: Causal, name: str) -> Kernel:
    """Write the kernel."""
    sizes = ("n", "t", "batch", "line")
    kernel = Kernel(module, name, [(w, I64 if w in sizes else PTR) for w in spec.words])
    (_Last if spec.last else _First)(kernel, module, spec).run()
    kernel.finish()
    return kernel


class _Emitter:
    """What both layouts share."""

    def __init__(self, kernel: Kernel, module: Module, spec: Causal) -> None:
        self.kernel, self.spec = kernel, spec
        self.f: Function = kernel.function
        self.lanes = module.target.lanes(F32)
        self.tokens = kernel["t"]

    def activated(self, value: Value) -> Value:
        """The value under the activation."""
        return silu(self.f, value) if self.spec.activation == "silu" else value

    def slots(self, body: Callable[[Value, Value], None]) -> None:
        """`body(slot, token)` for every state in order: what stands before `token`, or -1: zeros.

        The last slot is written last: it may lie where the past was read.
        """
        f, count = self.f, max(self.spec.window, 1)
        with f.loop(0, count) as slot:
            token = self.tokens - (count - 1) + slot.index
            empty = f.compare("lt", token, 1) & f.compare("lt", slot.index, count - 1)
            body(slot.index, f.select(empty, f.constant(I64, -1), token))


class _First(_Emitter):
    """[N,C,L]."""

    def run(self) -> None:
        """Channel by channel, or for a single token all channels side by side."""
        f, spec = self.f, self.spec
        self.row = self.kernel.scratch()
        low, high = self.kernel.share(self.kernel["n"] * spec.channels)
        if spec.window > 1 or spec.taps > _WRITTEN_OUT:
            self._channels(low, high)
            return
        single = f.compare("eq", self.tokens, 1)
        with f.when(single), f.loop(low, high, _ROWS) as at:
            self._single(at.index, f.minimum(high - at.index, _ROWS))
        with f.when(~single):
            self._channels(low, high)

    def _channels(self, low: Value, high: Value) -> None:
        f = self.f
        with f.loop(low, high) as unit:
            self._stand(unit.index)
            self._begin()
            weights, bias = self._weights()
            with f.loop(0, self.tokens, _SEGMENT) as at:
                self._segment(at.index, f.minimum(self.tokens - at.index, _SEGMENT), weights, bias)
            self.slots(self._state)

    def _stand(self, unit: Value) -> None:
        """Stand at a channel of a sequence."""
        f, spec = self.f, self.spec
        self.unit, self.channel = unit, f.binary("urem", unit, spec.channels)
        batch = f.binary("udiv", unit, spec.channels)
        self.x = f.address(self.kernel["x"], batch * self.kernel["batch"]
                           + self.channel * self.kernel["line"], spec.element)

    def _single(self, first: Value, n: Value) -> None:
        """One token: sums one by one, activations by the vector."""
        f, spec = self.f, self.spec
        with f.loop(0, n) as row:
            self._stand(first + row.index)
            weights, total = self._weights()
            x = load(f, spec.element, 1, self.x, 0)
            state = self.unit * spec.reach
            for j, w in enumerate(weights[:-1] if spec.past else []):
                held = load(f, spec.element, 1, self.kernel["past"], state + j * spec.gap)
                total = multiply_add(f, w, held, total)
            f.store(multiply_add(f, weights[-1], x, total), self.row, row.index)
            self._shift(state, x)
        target = f.address(self.kernel["y"], first, spec.element)
        vector_loop(f, n, self.lanes, lambda at, width: store(
            f, self.activated(f.load(F32.vector(width), self.row, at)), spec.element, target, at))

    def _shift(self, state: Value, x: Value) -> None:
        """The history without its oldest position, then `x`; it may lie where the past does."""
        f, spec = self.f, self.spec
        if not spec.reach:
            return
        with f.loop(0, spec.reach - 1) as s:
            old = load(f, spec.element, 1, self.kernel["past"], state + s.index + 1) if (
                spec.past) else f.constant(F32, 0)
            store(f, old, spec.element, self.kernel["state"], state + s.index)
        store(f, x, spec.element, self.kernel["state"], state + (spec.reach - 1))

    def _begin(self) -> None:
        """The history before the first token."""
        f, spec = self.f, self.spec
        if not spec.past or spec.history > spec.reach:
            f.fill(self.row, 0, 4 * spec.history)
        if spec.past and spec.reach:
            slot = (max(spec.window, 1) - 1) * self.kernel["n"] * spec.channels + self.unit
            source = f.address(self.kernel["past"], slot * spec.reach, spec.element)
            target = f.address(self.row, spec.history - spec.reach, F32)
            vector_loop(f, spec.reach, self.lanes, lambda at, width: f.store(
                load(f, spec.element, width, source, at), target, at))

    def _weights(self) -> tuple[list[Value], Value]:
        f, spec = self.f, self.spec
        bias = load(f, spec.element, 1, self.kernel["bias"], self.channel) if spec.bias else (
            f.constant(F32, 0))
        if spec.taps > _WRITTEN_OUT:
            return [], bias
        return [load(f, spec.element, 1, self.kernel["w"], self.channel * spec.taps + j)
                for j in range(spec.taps)], bias

    def _segment(self, first: Value, n: Value, weights: list[Value], bias: Value) -> None:
        f, spec = self.f, self.spec
        source = f.address(self.x, first, spec.element)
        fresh = f.address(self.row, spec.history, F32)
        vector_loop(f, n, self.lanes, lambda at, width: f.store(
            load(f, spec.element, width, source, at), fresh, at))
        seen = f.address(self.row, spec.history - spec.reach, F32)
        target = f.address(self.kernel["y"], self.unit * self.tokens + first, spec.element)

        def body(at: Value, width: int) -> None:
            total = self._taps(f.address(seen, at, F32), width, weights, f.splat(bias, width))
            store(f, self.activated(total), spec.element, target, at)

        vector_loop(f, n, self.lanes, body)
        if spec.history:
            later = f.address(self.row, n, F32)
            vector_loop(f, spec.history, self.lanes, lambda at, width: f.store(
                f.load(F32.vector(width), later, at), self.row, at))

    def _taps(self, seen: Value, width: int, weights: list[Value], total: Value) -> Value:
        f, spec, kind = self.f, self.spec, F32.vector(width)
        for j, w in enumerate(weights):
            total = multiply_add(f, f.splat(w, width), f.load(kind, seen, j * spec.gap), total)
        if weights:
            return total
        with f.loop(0, spec.taps, 1, [total]) as j:
            w = load(f, spec.element, 1, self.kernel["w"], self.channel * spec.taps + j.index)
            j.carry(multiply_add(f, f.splat(w, width), f.load(kind, seen, j.index * spec.gap),
                                 j.values[0]))
        return j.results[0]

    def _state(self, slot: Value, token: Value) -> None:
        f, spec = self.f, self.spec
        if not spec.reach:
            return
        at = (slot * self.kernel["n"] * spec.channels + self.unit) * spec.reach
        target = f.address(self.kernel["state"], at, spec.element)
        source = f.address(self.row, slot, F32)
        none = f.compare("lt", token, 0)

        def body(at: Value, width: int) -> None:
            x = f.load(F32.vector(width), source, at)
            zero = f.constant(x.type, 0)
            store(f, f.select(none, zero, x), spec.element, target, at)

        vector_loop(f, spec.reach, self.lanes, body)


class _Last(_Emitter):
    """[N,L,C]."""

    def run(self) -> None:
        """Unit by unit."""
        f, spec = self.f, self.spec
        self.block = _ABREAST * self.lanes
        self.wide = self.block * _BLOCKS
        groups, length = -(-spec.channels // self.wide), max(_TOKENS, spec.reach)
        self.weights = self.kernel.scratch()
        segments = f.maximum(f.binary("udiv", self.tokens + (length - 1), length), 1)
        low, high = self.kernel.share(self.kernel["n"] * segments * groups)
        with f.loop(low, high) as unit:
            rest = f.binary("udiv", unit.index, groups)
            first = f.binary("urem", rest, segments) * length
            self.batch = f.binary("udiv", rest, segments)
            self.start = f.binary("urem", unit.index, groups) * self.wide
            self.count = f.minimum(f.constant(I64, spec.channels) - self.start, self.wide)
            self._turn_weights()
            last = f.minimum(first + length, self.tokens)
            early = f.maximum(f.minimum(last, spec.reach), first)
            for bounds, seen in (((first, early), self._seen), ((early, last), self._inside)):
                with f.loop(*bounds) as t, f.loop(0, self.count, self.block) as c:
                    self._at(c.index)
                    self._token(t.index, c.index, seen)
            with f.when(f.compare("eq", first, 0)):
                self.slots(self._state)

    def _at(self, offset: Value) -> None:
        """Stand at a block of channels."""
        f, spec = self.f, self.spec
        self.column = self.start + offset
        self.masks = [None if spec.channels % self.block == 0 else f.tail_mask(
            f.constant(I64, spec.channels) - self.column - v * self.lanes, self.lanes)
            for v in range(_ABREAST)]
        self.x = f.address(self.kernel["x"], self.batch * self.kernel["batch"] + self.column,
                           spec.element)

    def _load(self, pointer: Value, at: Index, v: int) -> Value:
        f = self.f
        return load(f, self.spec.element, self.lanes, f.address(
            pointer, at, self.spec.element), v * self.lanes, self.masks[v])

    def _turn_weights(self) -> None:
        """Weights by tap, then channel."""
        f, spec = self.f, self.spec
        with f.loop(0, self.count) as c, f.loop(0, spec.taps) as j:
            at = (self.start + c.index) * spec.taps + j.index
            f.store(load(f, spec.element, 1, self.kernel["w"], at), self.weights,
                    j.index * self.wide + c.index)

    def _inside(self, position: Value, v: int) -> Value:
        """A position of the input."""
        return self._load(self.x, position * self.kernel["line"], v)

    def _seen(self, position: Value, v: int) -> Value:
        """A position of the input, or before it of the past."""
        f, spec = self.f, self.spec
        there = f.compare("ge", position, 0)
        safe = f.maximum(position, 0) * self.kernel["line"]
        own = f.address(self.x, safe, spec.element)
        if not spec.past:
            value = self._load(own, 0, v)
            return f.select(there, value, f.constant(value.type, 0))
        past = f.address(self.kernel["past"], self._place(
            f.constant(I64, max(spec.window, 1) - 1), f.minimum(position + spec.reach,
                                                                 spec.reach - 1)), spec.element)
        return self._load(f.select(there, own, past), 0, v)

    def _place(self, slot: Value, position: Value) -> Value:
        """Where a position of a state lies, in elements."""
        row = (slot * self.kernel["n"] + self.batch) * self.spec.reach + position
        return row * self.spec.channels + self.column

    def _token(self, t: Value, offset: Value, seen: Callable[[Value, int], Value]) -> None:
        f, spec = self.f, self.spec
        row = (self.batch * self.tokens + t) * spec.channels + self.column
        target, kind = f.address(self.kernel["y"], row, spec.element), F32.vector(self.lanes)
        sums = [self._load(self.kernel["bias"], self.column, v) if spec.bias else
                f.constant(kind, 0) for v in range(_ABREAST)]

        def tap(j: Value, sums: list[Value]) -> list[Value]:
            w = f.address(self.weights, j * self.wide + offset, F32)
            position = t + j * spec.gap - spec.reach
            return [multiply_add(f, f.load(kind, w, v * self.lanes), seen(position, v), s)
                    for v, s in enumerate(sums)]

        if spec.taps <= _WRITTEN_OUT:
            for j in range(spec.taps):
                sums = tap(f.constant(I64, j), sums)
        else:
            with f.loop(0, spec.taps, 1, sums) as loop:
                loop.carry(*tap(loop.index, list(loop.values)))
            sums = loop.results
        for v, value in enumerate(sums):
            store(f, self.activated(value), spec.element, target, v * self.lanes, self.masks[v])

    def _state(self, slot: Value, token: Value) -> None:
        f, spec = self.f, self.spec
        none = f.compare("lt", token, 0)
        with f.loop(0, spec.reach) as s, f.loop(0, self.count, self.block) as c:
            self._at(c.index)
            target = f.address(self.kernel["state"], self._place(slot, s.index), spec.element)
            position = f.maximum(token, 0) + s.index - spec.reach
            for v in range(_ABREAST):
                x = self._seen(position, v)
                store(f, f.select(none, f.constant(x.type, 0), x), spec.element, target,
                      v * self.lanes, self.masks[v])
