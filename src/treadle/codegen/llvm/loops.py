"""Prints loop IR as LLVM IR: an item runs on one vector, a chunk is a range of items."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TypeAlias

from ...loops.ir import Axis, Check, Loop, Stmt, Store, roots
from ...loops.ir import Kernel as LoopKernel
from ...loops.schedule import Schedule, is_map, tip
from ...records import dataclass
from .kernel import Kernel
from .loop_values import Index, Line, Parts, Slot, Values
from .text import I64, PTR, Module, Value

State: TypeAlias = "list[list[Parts] | None]"
"""Per accumulator in flight, per reduction, the components; None before the first step."""


def emit_loops(module: Module, kernel: LoopKernel, schedule: Schedule, name: str) -> Kernel:
    """Write a kernel. Its words: the buffers' addresses, then the sizes."""
    words = [*((b.name, PTR) for b in kernel.buffers), *((w, I64) for w in kernel.words)]
    made = Kernel(module, name, words)
    _Walk(kernel, schedule, made).run()
    made.finish()
    return made


class _Walk(Values):
    """Walks a kernel once, statement by statement."""

    def run(self) -> None:
        """Items are the par loops flattened, times blocks of the lanes loop of a map."""
        chain: list[Axis] = []
        body: tuple[Stmt, ...] = self.k.body
        while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "par":
            chain.append(body[0].axis)
            body = body[0].body
        assert body == tip(self.k)
        block = self.s.block if is_map(self.k) else 0
        extents = [self.size(a.extent) for a in chain]
        blocks: Index = 1
        if block:
            assert isinstance(body[0], Loop)
            n = self.size(body[0].axis.extent)
            blocks = self.arith("udiv", self.arith("add", n, block - 1), block)
        total = blocks
        for n in extents:
            total = self.arith("mul", total, n)
        low, high = self.out.share(total)
        items = _Items(chain, extents, blocks, body, block)
        if self.s.rows > 1:
            even = low + (high - low & -self.s.rows)
            self._items(low, even, self.s.rows, items)
            low = even
        self._items(low, high, 1, items)

    def _items(self, low: Value, high: Value, count: int, items: _Items) -> None:
        """The items of a range, `count` side by side."""
        outer = self.lines[0]
        with self.f.loop(low, high, count) as at:
            self.lines = [Line([*outer.scopes, {}]) for _ in range(count)]
            part, *_ = [self._place(self.arith("add", at.index, j), items)
                        for j, _ in enumerate(self.each_line())]
            for s in items.body:
                if isinstance(s, Loop) and s.kind == "lanes":
                    start = self.arith("mul", part, items.block)
                    end = self.size(s.axis.extent)
                    if items.block:
                        end = self.arith("min", end, self.arith("add", start, items.block))
                    self._lanes(s, start, end)
                else:
                    for _ in self.each_line():
                        self._statement(s, [None])
        self.lines = [outer]
        self.turn(outer)

    def _place(self, item: Index, items: _Items) -> Index:
        """Find an item's positions; the result is its block."""
        rest = self.arith("udiv", item, items.blocks)
        for d in reversed(range(len(items.chain))):
            n = items.extents[d]
            self.place[items.chain[d]] = self.arith("urem", rest, n) if d else rest
            rest = self.arith("udiv", rest, n) if d else rest
        return self.arith("urem", item, items.blocks)

    # Statements

    def _statement(self, s: Stmt, slots: Sequence[Slot | None]) -> None:
        if isinstance(s, Loop):
            if s.kind == "lanes":
                self._lanes(s, 0, self.size(s.axis.extent))
            else:
                self._sequence(s, slots)
        elif isinstance(s, Store):
            for slot in slots:
                self.store(s, slot)
        else:
            for slot in slots:
                self._check(s, slot)

    def _body(self, loop: Loop, slots: Sequence[Slot | None]) -> None:
        """A loop's statements. What stores up to an inner loop store is known before the first.

        They may overwrite operands of each other.
        """
        ready = False
        for i, s in enumerate(loop.body):
            if isinstance(s, Store) and not ready:
                ready = True
                for other in takewhile(lambda x: not isinstance(x, Loop), loop.body[i:]):
                    if isinstance(other, Store):
                        for slot in slots:
                            self.value(other.value, slot)
            ready = ready and not isinstance(s, Loop)
            self._statement(s, slots)

    def _check(self, s: Check, slot: Slot | None) -> None:
        """Leave with an error if a lane is bad: the first such lane tells its value."""
        f = self.f
        bad, value = self.value(s.bad, slot), self.value(s.value, slot)
        width = bad.type.lanes
        if slot is not None and slot.mask is not None and width:
            bad = bad & slot.mask
        found, told = bad, value
        if width:
            found = f.reduce(bad, lambda a, b: a | b)
        fail, go = f.label("fail"), f.label("go")
        f.branch(found, fail, go)
        f.start(fail)
        if width:
            told = f.extract(self.widen(value, width), width - 1)
            for lane in reversed(range(width - 1)):
                told = f.select(f.extract(bad, lane),
                                f.extract(self.widen(value, width), lane), told)
        self.out.fail(s.code, told)
        f.start(go)

    def _sequence(self, loop: Loop, slots: Sequence[Slot | None]) -> None:
        """In order; every slot carries its own accumulators."""
        self.hoist(loop, slots)
        if self.varying:
            self.varying.update(loop.accs)
        carry = [v for s in slots for a in loop.accs
                 for v in self.identity(a, s.width if s else 1)]
        with self.f.loop(0, self.size(loop.axis.extent), 1, carry) as at, self.scope():
            self.place[loop.axis] = at.index
            self._publish(loop, at.values, slots)
            self._body(loop, slots)
            at.carry(*self._step(loop, list(at.values), slots))
        del self.place[loop.axis]
        self._publish(loop, at.results, slots)

    def _publish(self, loop: Loop, values: Sequence[Value], slots: Sequence[Slot | None]) -> None:
        """Make the accumulators known: those before a step inside the loop, the last ones after."""
        flow = iter(values)
        for slot in slots:
            for a in loop.accs:
                self.publish(a, tuple([next(flow) for _ in a.values]), slot)

    def _slots(self, loop: Loop, state: list[Value], slots: Sequence[Slot]) -> list[Value]:
        """One turn: slot after slot, so that few values live, unless an inner loop serves all."""
        if any(isinstance(s, Loop) for s in loop.body):
            self._body(loop, slots)
            return self._step(loop, state, slots)
        out, each = [list[Value]() for _ in self.lines], len(state) // len(slots) // len(self.lines)
        for j, slot in enumerate(slots):
            self._abreast(loop, slot)
            for i, _ in enumerate(self.each_line()):
                at = (i * len(slots) + j) * each
                self._body(loop, [slot])
                out[i] += self._step(loop, state[at:at + each], [slot])
        return [v for line in out for v in line]

    def _abreast(self, loop: Loop, slot: Slot) -> None:
        """Compute a step operation by operation, each for all lines."""
        if len(self.lines) > 1:
            for e in self.order(roots(loop)):
                for _ in self.each_line():
                    self.value(e, slot)

    def _step(self, loop: Loop, state: list[Value], slots: Sequence[Slot | None]) -> list[Value]:
        """The accumulators after one more step."""
        flow, out = iter(state), list[Value]()
        for slot in slots:
            for a in loop.accs:
                out += self.accumulate(a, tuple([next(flow) for _ in a.values]), slot)
        return out

    def _lanes(self, loop: Loop, low: Index, high: Index) -> None:
        """Written out in slots, or looped: unrolled, then single vectors, then the rest."""
        self.lane, before = loop.axis, self.varying
        self.varying = {loop.axis}
        lines = self.lines
        for group in [[x] for x in lines] if self.s.in_order(self.k, loop) else [lines]:
            self.lines = group
            for _ in self.each_line():
                self.hoist(loop, [None])
            states = self._written_out(loop, high) if self.s.slots else self._looped(
                loop, low, high)
            for state, _ in zip(states, self.each_line(), strict=True):
                for k, a in enumerate(loop.accs):
                    self.publish(a, self.finish(a, [s[k] for s in state if s is not None]), None)
        self.lines = lines
        self.lane, self.varying = None, before

    def _written_out(self, loop: Loop, high: Index) -> list[State]:
        state: State = [None] * min(self.s.unroll, self.s.slots)
        v = self.s.vector
        for n in range(self.s.slots):
            slot = self.written.get((loop.axis, n))
            if slot is None:
                whole = isinstance(high, int) and (n + 1) * v <= high
                mask = None if whole else self.mask(n * v, high, v)
                slot = self.written[loop.axis, n] = Slot(n * v, v, mask)
            self._body(loop, [slot])
            j = n % len(state)
            old = state[j]
            state[j] = [tuple(self.accumulate(a, old[k] if old else None, slot))
                        for k, a in enumerate(loop.accs)]
        return [state]

    def _looped(self, loop: Loop, low: Index, high: Index) -> list[State]:
        v, u = self.s.vector, self.s.steps(self.k, loop)
        span = self.arith("sub", high, low)
        cuts = [low, *(self.arith("add", low, self.arith("mul", self.arith("udiv", span, k), k))
                       for k in (u * v, v)), high]
        states: list[State] = [[None] * u for _ in self.lines]
        if u > 1:
            states = self._phase(loop, (cuts[0], cuts[1]), u, v, states, high)
        else:
            cuts[1] = cuts[0]
        states = self._phase(loop, (cuts[1], cuts[2]), 1, v, states, high)
        if v == 1:
            return states
        return self._phase(loop, (cuts[2], cuts[3]), 1, v if self.s.masked else 1, states, high,
                           tail=True)

    def _phase(self, loop: Loop, span: tuple[Index, Index], count: int, width: int,
               states: list[State], end: Index, tail: bool = False) -> list[State]:
        """One of the loops of a looped lanes loop; it carries what the others carried."""
        low, high = span
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            return states
        alone = tail and width == 1
        live: list[State] = [[None] if alone else state[:count] for state in states]
        carry = [v for state in live for st in state for k, a in enumerate(loop.accs)
                 for v in (st[k] if st else self.identity(a, width))]
        with self.f.loop(low, high, count * width, carry) as at, self.scope():
            bases = [self.arith("add", at.index, u * width) for u in range(count)]
            masked = tail and width > 1
            slots = [Slot(b, width, self.mask(b, end, width) if masked else None) for b in bases]
            at.carry(*self._slots(loop, list(at.values), slots))
        flow = iter(at.results)
        out = list[State]()
        for old, state in zip(states, live, strict=True):
            new: State = [[tuple([next(flow) for _ in a.values]) for a in loop.accs]
                          for _ in state]
            out.append([*old, *new] if alone else [*new, *old[count:]])
        return out


@dataclass
class _Items:
    """What every item is: par loops, blocks of a map's lanes loop, statements."""

    chain: list[Axis]
    extents: list[Index]
    blocks: Index
    body: Sequence[Stmt]
    block: int
