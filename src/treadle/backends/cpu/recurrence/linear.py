"""The kernel of linear attention: blocks of tokens outside, slabs of the state's columns inside.

Long runs go chunk by chunk as products (see `block`); a few tokens, and those whose states a window
keeps, go one by one. The state of a unit stays in scratch memory as f32 and is rounded when the
last block is done. A call takes a span of the tokens; a later one goes on from the state that it
wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....codegen.llvm.kernel import Kernel
from ....codegen.llvm.text import F32, I8, I64, PTR, Function, Module, Value
from . import step
from .ahead import Row, Rows, turns
from .block import Block
from .spec import Cut, Linear
from .tiles import Answer, Beside, Product, Update
from .vectors import load, store


def words(spec: Linear) -> list[str]:
    """The kernel's words: addresses, N, T, the call's span, and strides by operand.

    A span goes from the token `low` to the one before `high`. The strides are those of batch and
    token.
    """
    return [*spec.operands, *["past"] * spec.past, "y", "state", "n", "t", "low", "high",
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
        f, length = self.f, self.spec.length
        if length == "several" or not step.fits(self.spec, self.cut):
            self._run()
            return
        if length == "one":
            self._step()
            return
        single = f.compare("eq", self.tokens, 1)
        with f.when(single):
            self._step()
        with f.when(~single):
            self._run()

    def _step(self) -> None:
        """One token, on the state where it lies."""
        f, spec, at = self.f, self.spec, self.at
        first = f.constant(I64, 0)
        self.block.stage(self._sources(first), f.constant(I64, 1), self.left)
        self.block.alone(f.constant(I64, 1))
        call = step.step_function(self.module, spec, self.cut)
        keys = at["k" if spec.decay == "none" else "turned"]
        past, state = self._state("past", 0), self._state("state", 0)
        with f.loop(0, self.cut.width, step.columns(self.cut)) as c:
            f.invoke(call, f.address(past, c.index, spec.state),
                     f.address(state, c.index, spec.state), at["k"], keys, at["q"], at["decay"],
                     at["beta"], *(f.address(at[name], c.index, F32) for name in ("v", "y")))
        self._results(first, f.constant(I64, 1))

    def _run(self) -> None:
        f, chunk = self.f, self.cut.chunk
        low, high = self.kernel["low"], self.kernel["high"]
        long = f.maximum(high - low - self.spec.window, 0)
        rest = f.binary("urem", long, chunk)
        long = low + f.select(f.compare("gt", rest, chunk // 4), long, long - rest)
        self._clear_window()
        self._read()
        with f.loop(low, long, chunk) as first:
            self._chunk(first.index, f.minimum(long - first.index, chunk))
        with f.loop(long, high, chunk) as first:
            self._singles(first.index, f.minimum(high - first.index, chunk))
        self._write(max(self.spec.window, 1) - 1)

    # Operands and states in memory

    def _sources(self, first: Value) -> dict[str, tuple[Value, Value]]:
        """Where each operand's row of the token `first` lies, and the distance of tokens."""
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
            offset = (self.batch * self.kernel[f"{name}_batch"] + first * line
                      + heads[name] * widths[name])
            offset = offset + self.column if name == "v" else offset
            source[name] = f.address(self.kernel[name], offset, spec.element), line
        return source

    def _shared(self, heads: int) -> Value:
        """The one of `heads` that this state reads."""
        return self.f.binary("udiv", self.head, self.spec.heads // heads)

    def _target(self, first: Value) -> tuple[Value, int]:
        """Where the result of the token `first` lies, and the distance of tokens."""
        spec = self.spec
        line = spec.out_heads * spec.dv
        at = ((self.batch * self.tokens + first) * line
              + self.head * (spec.group * spec.dv) + self.column)
        return self.f.address(self.kernel["y"], at, spec.element), line

    def _results(self, first: Value, n: Value) -> None:
        self.block.results(*self._target(first), n, self.left)

    def _ahead(self, source: Mapping[str, tuple[Value, Value]], first: Value) -> list[Rows]:
        """The operands of the next chunk, or of the next unit's first, and this chunk's results."""
        f, spec, cut, size = self.f, self.spec, self.cut, self.spec.element.size
        shared = cut.blocks > 1
        widths = {"q": (spec.dk * spec.group, shared or spec.q_heads < spec.heads),
                  "k": (spec.dk, shared or spec.k_heads < spec.heads), "v": (cut.width, False)}
        last = f.compare("ge", first + cut.chunk, self.kernel["high"])
        rows = list[Rows]()
        for name, (width, same) in widths.items():
            pointer, line = source[name]
            unit = (self.kernel["low"] - first) * line + (0 if same else width)
            later = f.address(pointer, f.select(last, unit, line * cut.chunk), spec.element)
            rows.append(Rows(later, line * size, Row(width * size)))
        y, line = self._target(first)
        return [*rows, Rows(y, f.constant(I64, line * size), Row(cut.width * size, written=True))]

    def _state(self, name: str, slot: Value | int) -> Value:
        """The first of this unit's elements in a state tensor."""
        f, spec = self.f, self.spec
        lead = f.constant(I64, slot) * self.kernel["n"] + self.batch
        at = (lead * spec.heads + self.head) * (spec.dk * spec.dv) + self.column
        return f.address(self.kernel[name], at, spec.state)

    def _vectors(self, pointer: Value, body: Callable[[Value, Value, Value | None], None]
                 ) -> None:
        """`body(place in scratch, place in memory, mask)` for every vector, row by row."""
        f, spec, cut = self.f, self.spec, self.cut
        every = cut.covers(spec.dv)
        with f.loop(0, spec.dk) as d:
            line = f.address(self.at["state"], d.index * cut.columns, F32)
            row = f.address(pointer, d.index * spec.dv, spec.state)
            for column in range(0, cut.width, cut.lanes):
                slab, at = divmod(column, cut.columns)
                mask = None if every else f.tail_mask(self.left - column, cut.lanes)
                body(f.address(line, slab * cut.slab + at, F32),
                     f.address(row, column, spec.state), mask)

    def _read(self) -> None:
        """The state so far, or zeros, into scratch memory."""
        f, spec, cut = self.f, self.spec, self.cut

        def move(place: Value, source: Value, mask: Value | None) -> None:
            f.store(load(f, spec.state, cut.lanes, source, 0, mask), place)

        if spec.past:
            self._vectors(self._state("past", max(spec.window, 1) - 1), move)
            return
        begins = f.compare("eq", self.kernel["low"], 0)
        with f.when(begins):
            f.fill(self.at["state"], 0, 4 * cut.slabs * cut.slab)
        with f.when(~begins):
            self._vectors(self._state("state", 0), move)

    def _write(self, slot: int) -> None:
        f, spec, kind = self.f, self.spec, F32.vector(self.cut.lanes)

        def move(place: Value, target: Value, mask: Value | None) -> None:
            store(f, f.load(kind, place), spec.state, target, 0, mask)

        self._vectors(self._state("state", slot), move)

    def _keep(self, slot: Value, slab: Value) -> None:
        """A slab after a token whose state the window holds."""
        f, spec, cut = self.f, self.spec, self.cut
        column = slab * cut.columns
        every = cut.covers(spec.dv)
        place = f.address(self.at["state"], slab * cut.slab, F32)
        target = f.address(self._state("state", slot), column, spec.state)
        with f.loop(0, spec.dk) as d:
            for at in range(0, cut.columns, cut.lanes):
                mask = None if every else f.tail_mask(self.left - column - at, cut.lanes)
                x = f.load(F32.vector(cut.lanes), place, d.index * cut.columns + at)
                store(f, x, spec.state, target, d.index * spec.dv + at, mask)

    def _clear_window(self) -> None:
        """Zeros in the slots of tokens that are not there; the last slot is always written."""
        f, spec = self.f, self.spec
        if spec.window < 2:
            return
        zero = f.constant(F32.vector(self.cut.lanes), 0)
        absent = f.minimum(f.maximum(spec.window - self.tokens, 0), spec.window - 1)
        with f.loop(0, absent) as slot:
            self._vectors(self._state("state", slot.index), lambda _, target, mask: store(
                f, zero, spec.state, target, 0, mask))

    # Blocks

    def _slab(self, index: Value) -> tuple[Value, Value, Value]:
        """The places of a slab's state, values and results."""
        f, cut = self.f, self.cut
        state = f.address(self.at["state"], index * cut.slab, F32)
        v, y = (f.address(self.at[name], index * cut.columns, F32) for name in ("v", "y"))
        return state, v, y

    def _chunk(self, first: Value, n: Value) -> None:
        f, spec, cut, at, tiles = self.f, self.spec, self.cut, self.at, self.block.tiles
        source = self._sources(first)
        self.block.relate(self.block.stage_chunk(source, n, self.left))
        ahead = self._ahead(source, first)
        answer = Answer(cut.chunk, spec.dk, cut.depth, cut.width)
        with f.loop(0, cut.slabs) as s:
            state, v, y = self._slab(s.index)
            if spec.delta:
                tiles.product(Product(spec.dk, cut.depth, cut.columns, cut.columns), cut.chunk,
                              at["k"], state, at["found"])
                tiles.solve(cut.chunk, cut.width, at["overlap"], at["found"], at["beta"], v)
            for g in range(spec.group):
                tiles.answer(answer, min(cut.rows, cut.chunk // 2), [
                    f.address(at["q"], g * cut.chunk * cut.depth, F32), state,
                    f.address(at["scores"], g * cut.chunk * cut.chunk, F32), v,
                    f.address(y, g * cut.chunk * cut.width, F32)])
            by_key = spec.decay == "key"
            update = Update(cut.chunk, *((1, cut.depth) if by_key else (cut.chunk, 1)), cut.width,
                            spec.decay)
            tiles.update(update, spec.dk, state, at["turned"], v, at["kept"],
                         self._beside(ahead, s.index, tiles.parts(update, spec.dk)))
        self._results(first, n)

    def _beside(self, ahead: list[Rows], slab: Value, parts: int) -> Beside | None:
        """Rows asked for beside the tiles of a slab's update: each slab asks for some tokens."""
        f, cut = self.f, self.cut
        tokens = -(-cut.chunk // cut.slabs)

        def starts(token: Value) -> list[Value]:
            at = f.minimum(slab * tokens + token, cut.chunk - 1)
            return [f.address(r.first, at * r.line, I8) for r in ahead]

        each = turns(ahead, tokens, parts)
        return Beside(tokens, each, tuple([r.row for r in ahead]), starts) if each else None

    def _singles(self, first: Value, n: Value) -> None:
        f, spec = self.f, self.spec
        self.block.stage(self._sources(first), n, self.left)
        self.block.alone(n)
        with f.loop(0, self.cut.slabs) as s:
            state, v, y = self._slab(s.index)
            with f.loop(0, n) as t:
                self._single(t.index, state, v, y)
                if spec.window > 1:
                    slot = first + t.index - self.tokens + spec.window
                    inside = f.compare("ge", slot, 0) & f.compare("lt", slot, spec.window - 1)
                    with f.when(inside):
                        self._keep(slot, s.index)
        self._results(first, n)

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
