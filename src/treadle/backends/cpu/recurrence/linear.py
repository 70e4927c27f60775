"""The kernel of linear attention: blocks of tokens outside, slabs of the state's columns inside.

Long runs go chunk by chunk as products (see `block`); a few tokens, and those whose states a window
keeps, go one by one. The state of a unit stays in scratch memory as f32 and is rounded when the
last block is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....codegen.llvm.kernel import Kernel
from ....codegen.llvm.text import F32, I64, PTR, Function, Module, Value
from .block import Block
from .spec import VECTORS, Cut, Linear
from .tiles import Product, Update
from .vectors import load, store


@dataclass(frozen=True, slots=True)
class _Span:
    """Tokens `first` to `first + n`; whether the state is read before and written after."""

    first: Value
    n: Value
    reads: Value
    writes: Value


def words(spec: Linear) -> list[str]:
    """The kernel's words: addresses, then N, T, and strides of batch and token by operand."""
    return [*spec.operands, *["past"] * spec.past, "y", "state", "n", "t",
            *(f"{name}_{axis}" for name in spec.operands for axis in ("batch", "token"))]


def emit_linear(module: Module, spec: Linear, name: str) -> Kernel:
    """Write the kernel."""
    addresses = {*spec.operands, "past", "y", "state"}
    kernel = Kernel(module, name, [(w, PTR if w in addresses else I64) for w in words(spec)])
    _Emitter(kernel, module, spec).run()
    kernel.finish()
    return kernel


class _Emitter:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, module: Module, spec: Linear) -> None:
        self.kernel, self.spec, self.module = kernel, spec, module
        self.f: Function = kernel.function
        self.cut = Cut(spec, module.target)
        scratch = kernel.scratch()
        self.at = {name: self.f.address(scratch, place, F32)
                   for name, place in self.cut.places.items()}
        self.block = Block(module, self.f, spec, self.cut, self.at)
        self.tokens = kernel["t"]

    def run(self) -> None:
        """All units of the chunk."""
        f, spec, cut = self.f, self.spec, self.cut
        low, high = self.kernel.share(self.kernel["n"] * (spec.heads * cut.blocks))
        with f.loop(low, high) as unit:
            rest = f.binary("udiv", unit.index, cut.blocks)
            self.column = f.binary("urem", unit.index, cut.blocks) * cut.width
            self.batch = f.binary("udiv", rest, spec.heads)
            self.head = f.binary("urem", rest, spec.heads)
            self.left = f.constant(I64, spec.dv) - self.column
            self._unit()

    def _unit(self) -> None:
        """One state's columns over all tokens."""
        f, chunk = self.f, self.cut.chunk
        long = f.maximum(self.tokens - self.spec.window, 0)
        long = f.select(f.compare("gt", long, chunk // 4), long, 0)
        chunks = f.binary("udiv", long + (chunk - 1), chunk)
        single = f.binary("udiv", self.tokens - long + (chunk - 1), chunk)
        none = f.compare("eq", chunks + single, 0)
        single = f.select(none, 1, single)  # a run of no tokens still hands its state on
        self._clear_window()
        with f.loop(0, chunks) as c:
            first = c.index * chunk
            last = f.compare("eq", c.index + 1, chunks + single)
            self._chunk(_Span(first, f.minimum(long - first, chunk),
                              f.compare("eq", c.index, 0), last))
        with f.loop(0, single) as c:
            first = long + c.index * chunk
            self._singles(_Span(first, f.minimum(self.tokens - first, chunk),
                                f.compare("eq", c.index + chunks, 0),
                                f.compare("eq", c.index + 1, single)))

    # Operands and states in memory

    def _stage(self, span: _Span) -> None:
        f, spec = self.f, self.spec
        heads = {"k": self._shared(spec.k_heads), "v": self.head, "g": self.head,
                 "q": (self.head * spec.group if spec.q_heads >= spec.heads
                       else self._shared(spec.q_heads)),
                 "b": self.head if spec.beta == "head" else f.constant(I64, 0)}
        widths = {"k": spec.dk, "q": spec.dk, "v": spec.dv, "b": 1,
                  "g": spec.dk if spec.decay == "key" else 1}
        source = dict[str, tuple[Value, Value]]()
        for name in spec.operands:
            line = self.kernel[f"{name}_token"]
            offset = (self.batch * self.kernel[f"{name}_batch"] + span.first * line
                      + heads[name] * widths[name])
            offset = offset + self.column if name == "v" else offset
            source[name] = f.address(self.kernel[name], offset, spec.element), line
        self.block.stage(source, span.n, self.left)

    def _shared(self, heads: int) -> Value:
        """The one of `heads` that this state reads."""
        return self.f.binary("udiv", self.head, self.spec.heads // heads)

    def _results(self, span: _Span) -> None:
        spec = self.spec
        line = spec.out_heads * spec.dv
        at = ((self.batch * self.tokens + span.first) * line
              + self.head * (spec.group * spec.dv) + self.column)
        self.block.results(self.f.address(self.kernel["y"], at, spec.element), line, span.n,
                           self.left)

    def _state(self, name: str, slot: Value | int, slab: Value) -> Value:
        """A slab's first row in a state tensor."""
        f, spec = self.f, self.spec
        lead = f.constant(I64, slot) * self.kernel["n"] + self.batch
        at = (lead * spec.heads + self.head) * (spec.dk * spec.dv) + self.column + (
            slab * self.cut.columns)
        return f.address(self.kernel[name], at, spec.state)

    def _masks(self, slab: Value) -> list[Value | None]:
        if self.cut.covers(self.spec.dv):
            return [None] * VECTORS
        left, lanes = self.left - slab * self.cut.columns, self.cut.lanes
        return [self.f.tail_mask(left - j * lanes, lanes) for j in range(VECTORS)]

    def _read(self, slab: Value, place: Value) -> None:
        """A slab of the past, or zeros, into scratch memory."""
        f, spec, cut = self.f, self.spec, self.cut
        if not spec.past:
            f.fill(place, 0, 4 * cut.depth * cut.columns)
            return
        source, masks = self._state("past", max(spec.window, 1) - 1, slab), self._masks(slab)
        with f.loop(0, spec.dk) as d:
            for j, mask in enumerate(masks):
                x = load(f, spec.state, cut.lanes, source, d.index * spec.dv + j * cut.lanes, mask)
                f.store(x, place, d.index * cut.columns + j * cut.lanes)

    def _write(self, slab: Value, place: Value, slot: Value | int) -> None:
        f, spec, cut = self.f, self.spec, self.cut
        target, masks = self._state("state", slot, slab), self._masks(slab)
        with f.loop(0, spec.dk) as d:
            for j, mask in enumerate(masks):
                x = f.load(F32.vector(cut.lanes), place, d.index * cut.columns + j * cut.lanes)
                store(f, x, spec.state, target, d.index * spec.dv + j * cut.lanes, mask)

    def _clear_window(self) -> None:
        """Zeros in the slots of tokens that are not there; the last slot is always written."""
        f, spec, cut = self.f, self.spec, self.cut
        if spec.window < 2:
            return
        absent = f.minimum(f.maximum(spec.window - self.tokens, 0), spec.window - 1)
        zero = f.constant(F32.vector(cut.lanes), 0)
        with f.loop(0, absent) as slot, f.loop(0, cut.slabs) as slab:
            target, masks = self._state("state", slot.index, slab.index), self._masks(slab.index)
            with f.loop(0, spec.dk) as d:
                for j, mask in enumerate(masks):
                    store(f, zero, spec.state, target, d.index * spec.dv + j * cut.lanes, mask)

    # Blocks

    def _slab(self, index: Value) -> tuple[Value, Value, Value]:
        """The places of a slab's state, values and results."""
        f, cut = self.f, self.cut
        state = f.address(self.at["state"], index * (cut.depth * cut.columns), F32)
        v, y = (f.address(self.at[name], index * cut.columns, F32) for name in ("v", "y"))
        return state, v, y

    def _chunk(self, span: _Span) -> None:
        f, spec, cut, at, tiles = self.f, self.spec, self.cut, self.at, self.block.tiles
        self._stage(span)
        self.block.relate()
        rows = cut.chunk * spec.group
        with f.loop(0, cut.slabs) as s:
            state, v, y = self._slab(s.index)
            with f.when(span.reads):
                self._read(s.index, state)
            if spec.delta:
                tiles.product(Product(spec.dk, cut.depth, cut.columns, cut.columns), cut.chunk,
                              at["k"], state, at["found"])
                tiles.solve(cut.chunk, cut.width, at["overlap"], at["found"], at["beta"], v)
            tiles.product(Product(spec.dk, cut.depth, cut.columns, cut.width), rows, at["q"],
                          state, y)
            tiles.product(Product(cut.chunk, cut.chunk, cut.width, cut.width, adds=True), rows,
                          at["scores"], v, y)
            by_key = spec.decay == "key"
            step, line = (1, cut.depth) if by_key else (cut.chunk, 1)
            tiles.update(Update(cut.chunk, step, line, cut.width, spec.decay), spec.dk, state,
                         at["turned"], v, at["kept"])
            with f.when(span.writes):
                self._write(s.index, state, max(spec.window, 1) - 1)
        self._results(span)

    def _singles(self, span: _Span) -> None:
        f, spec, cut = self.f, self.spec, self.cut
        self._stage(span)
        self.block.alone()
        with f.loop(0, cut.slabs) as s:
            state, v, y = self._slab(s.index)
            with f.when(span.reads):
                self._read(s.index, state)
            with f.loop(0, span.n) as t:
                self._single(t.index, state, v, y)
                if spec.window > 1:
                    slot = span.first + t.index - self.tokens + spec.window
                    inside = f.compare("ge", slot, 0) & f.compare("lt", slot, spec.window - 1)
                    with f.when(inside):
                        self._write(s.index, state, slot)
            with f.when(span.writes):
                self._write(s.index, state, max(spec.window, 1) - 1)
        self._results(span)

    def _single(self, t: Value, state: Value, v: Value, y: Value) -> None:
        """One token of one slab."""
        f, spec, cut, at, tiles = self.f, self.spec, self.cut, self.at, self.block.tiles
        row = t * cut.depth
        v, y = (f.address(p, t * cut.width, F32) for p in (v, y))
        if spec.delta:
            source = "k" if spec.decay == "none" else "turned"
            tiles.product(Product(spec.dk, cut.depth, cut.columns, cut.columns), 1,
                          f.address(at[source], row, F32), state, at["found"])
            tiles.solve(1, cut.width, at["overlap"], at["found"], f.address(at["beta"], t, F32),
                        v)
        kept = f.address(at["decay"], t if spec.decay == "head" else row, F32)
        tiles.update(Update(1, 1, 1, cut.width, spec.decay), spec.dk, state,
                     f.address(at["k"], row, F32), v, kept)
        tiles.product(Product(spec.dk, cut.chunk * cut.depth, cut.columns,
                              cut.chunk * cut.width), spec.group, f.address(at["q"], row, F32),
                      state, y)
