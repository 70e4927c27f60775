"""A block of tokens in scratch memory: staged operands, and what a chunk needs of its keys.

With a(j, i] the product of the decays of the tokens j+1 to i, and S the state before the chunk:

    y[i] = a(0, i] q[i]T S + sum over j <= i of a(j, i] q[i]T k[j] w[j]
    w[i] = v[i], or beta[i] (v[i] - a(0, i] k[i]T S - sum over j < i of a(j, i] k[i]T k[j] w[j])
    S'   = a(0, n] S + sum over j of a(j, n] k[j] w[j]T

which is the recurrence with its sums exchanged (the WY form of 2406.06484 and 2412.06464). Decays
only multiply, never divide, so a decay of zero and keys of any length are exact cases.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....codegen.llvm.text import F32, I64, Function, Index, Module, Value
from ..contraction.staging import transpose
from .spec import VECTORS, Cut, Linear
from .tiles import Product, Tiles
from .vectors import broadcast, exp, load, multiply_add, store, total

_UNROLL = 4


class Block:
    """Writes the code that prepares a block of tokens; `at` are its places in scratch memory."""

    def __init__(self, module: Module, f: Function, spec: Linear, cut: Cut,
                 at: Mapping[str, Value]) -> None:
        self.f, self.spec, self.cut, self.at = f, spec, cut, at
        self.lanes, self.depth, self.chunk = cut.lanes, cut.depth, cut.chunk
        self.kind = F32.vector(self.lanes)
        self.tiles = Tiles(module, f, cut.lanes, cut.rows)

    # Staging

    def stage(self, source: Mapping[str, tuple[Value, Value]], n: Value, left: Value) -> None:
        """Operands of `n` tokens; `left` columns of v are there.

        `source` gives the address of each operand's first token and the distance of tokens.
        """
        self._stage(source, n, left, ("k", "q"))
        self._gates(source, n)

    def stage_chunk(self, source: Mapping[str, tuple[Value, Value]], n: Value, left: Value
                    ) -> tuple[Value, Value]:
        """The same for a chunk, zeros after its tokens; gives where its keys lie.

        Keys that are needed by size alone stay in memory.
        """
        f, spec = self.f, self.spec
        stay = (spec.element == F32 and not spec.delta and spec.decay != "key"
                and spec.dk % self.lanes == 0)
        self._stage(source, n, left, ("q",) if stay else ("k", "q"))
        part, line = f.compare("lt", n, self.chunk), f.constant(I64, self.depth)
        with f.when(part):
            if stay:
                self._keys(source, n)
            self._pad(n)
        self._gates(source, n)
        if not stay:
            return self.at["k"], line
        return f.select(part, self.at["k"], source["k"][0]), f.select(part, line, source["k"][1])

    def _keys(self, source: Mapping[str, tuple[Value, Value]], n: Value) -> None:
        pointer, line = source["k"]
        with self.f.loop(0, n) as t:
            self._row(self.f.address(pointer, t.index * line, F32),
                      self.f.address(self.at["k"], t.index * self.depth, F32), 1.0)

    def _stage(self, source: Mapping[str, tuple[Value, Value]], n: Value, left: Value,
               names: tuple[str, ...]) -> None:
        f, spec = self.f, self.spec
        with f.loop(0, n) as t:
            for name in names:
                pointer, line = source[name]
                for g in range(spec.group if name == "q" else 1):
                    row = f.address(pointer, t.index * line + g * spec.dk, spec.element)
                    to = t.index * self.depth + g * self.chunk * self.depth
                    self._row(row, f.address(self.at[name], to, F32),
                              spec.scale if name == "q" else 1.0)
            pointer, line = source["v"]
            row = f.address(pointer, t.index * line, spec.element)
            self._values(row, f.address(self.at["v"], t.index * self.cut.width, F32), left)

    def _pad(self, n: Value) -> None:
        f, spec = self.f, self.spec
        with f.loop(n, self.chunk) as t:
            for name, width, copies in (("k", self.depth, 1), ("q", self.depth, spec.group),
                                        ("v", self.cut.width, 1)):
                for g in range(copies):
                    to = t.index * width + g * self.chunk * width
                    f.fill(f.address(self.at[name], to, F32), 0, 4 * width)

    def _row(self, source: Value, target: Value, scale: float) -> None:
        """A head of a token, padded with zeros to whole vectors."""
        f, lanes, kind = self.f, self.lanes, self.spec.element
        whole = self.spec.dk // lanes * lanes

        def move(d: Index, mask: Value | None) -> None:
            x = load(f, kind, lanes, source, d, mask)
            f.store(x if scale == 1.0 else x * scale, target, d)

        step = lanes * (_UNROLL if whole % (lanes * _UNROLL) == 0 else 1)
        with f.loop(0, whole, step) as d:
            for at in range(0, step, lanes):
                move(d.index + at, None)
        if whole < self.spec.dk:
            move(whole, f.tail_mask(self.spec.dk - whole, lanes))

    def _values(self, source: Value, target: Value, left: Value) -> None:
        f, lanes = self.f, self.lanes
        every = self.cut.covers(self.spec.dv)
        with f.loop(0, self.cut.width, self.cut.columns) as c:
            for at in range(0, self.cut.columns, lanes):
                place = c.index + at
                mask = None if every else f.tail_mask(left - place, lanes)
                f.store(load(f, self.spec.element, lanes, source, place, mask), target, place)

    def _gates(self, source: Mapping[str, tuple[Value, Value]], n: Value) -> None:
        f, spec = self.f, self.spec
        for name, here, used in (("g", "decay", spec.decay == "head"), ("b", "beta", spec.delta)):
            if not used:
                continue
            pointer, line = source[name]
            with f.loop(0, n) as t:
                item = load(f, spec.element, 1, pointer, t.index * line)
                f.store(item, self.at[here], t.index)
            with f.loop(n, self.chunk) as t:
                f.store(f.constant(F32, 0), self.at[here], t.index)
        if spec.decay == "head":
            for j in range(0, self.chunk, self.lanes):
                f.store(exp(f, f.load(self.kind, self.at["decay"], j)), self.at["decay"], j)
        if spec.decay == "key":
            self._key_decays(source["g"], n)

    def _key_decays(self, source: tuple[Value, Value], n: Value) -> None:
        """Rows of decays; 1 for tokens that are not there."""
        f, (pointer, line) = self.f, source
        with f.loop(0, n) as t:
            row = f.address(self.at["decay"], t.index * self.depth, F32)
            self._row(f.address(pointer, t.index * line, self.spec.element), row, 1.0)
        with f.loop(n, self.chunk) as t:
            f.fill(f.address(self.at["decay"], t.index * self.depth, F32), 0, 4 * self.depth)
        with f.loop(0, self.chunk * self.depth, self.lanes) as d:
            f.store(exp(f, f.load(self.kind, self.at["decay"], d.index)), self.at["decay"],
                    d.index)

    # Chunks

    def relate(self, keys: tuple[Value, Value]) -> None:
        """Products of keys with keys and queries, and all rows under their decays.

        Those of keys with keys are taken times -beta of the later token. `keys` is an address and
        the distance of tokens.
        """
        if self.spec.decay == "key":
            self._relate_by_key()
        else:
            self._relate(keys)
        if self.spec.delta:
            self._rate()

    def _rate(self) -> None:
        f = self.f
        with f.loop(0, self.chunk) as i:
            by = -broadcast(f, self.at["beta"], i.index, self.lanes)
            for j in range(0, self.chunk, self.lanes):
                at = i.index * self.chunk + j
                f.store(f.load(self.kind, self.at["overlap"], at) * by, self.at["overlap"], at)

    def _relate(self, keys: tuple[Value, Value]) -> None:
        self._turn(*keys)
        chunk, depth, at = self.chunk, self.depth, self.at
        p = Product(self.spec.dk, depth, chunk, chunk)
        self.tiles.product(p, chunk * self.spec.group, at["q"], at["turned"], at["scores"])
        if self.spec.delta:
            self.tiles.product(p, chunk, at["k"], at["turned"], at["overlap"])
        if self.spec.decay == "head":
            self._decay_rows(self._decay_pairs())

    def _turn(self, keys: Value, line: Value) -> None:
        """Keys by size, then token, from squares that are transposed in registers."""
        f, lanes, depth = self.f, self.lanes, self.depth
        step = lanes * (2 if depth % (2 * lanes) == 0 else 1)
        with f.loop(0, self.chunk, lanes) as t, f.loop(0, depth, step) as d:
            for at in range(0, step, lanes):
                first = f.address(keys, t.index * line + d.index + at, F32)
                rows = [f.load(self.kind, f.address(first, line * j, F32)) for j in range(lanes)]
                to = f.address(self.at["turned"], (d.index + at) * self.chunk + t.index, F32)
                for j, row in enumerate(transpose(f, rows)):
                    f.store(row, to, j * self.chunk)

    def _decay_pairs(self) -> list[Value]:
        """Pairs (i, j) times a(j, i]; gives a(j, n]. `line` gets a(0, i], `kept` the last one.

        Pairs with j > i are never read.
        """
        f, chunk, lanes, spec = self.f, self.chunk, self.lanes, self.spec
        order = f.iota(I64.vector(lanes))
        start = [*[f.constant(self.kind, 0)] * VECTORS, f.constant(F32, 1)]
        with f.loop(0, chunk, 1, start) as i:
            *pairs, since = i.values
            a = f.load(F32, self.at["decay"], i.index)
            since = since * a
            f.store(since, self.at["line"], i.index)
            own = [f.compare("eq", order, f.splat(i.index - j * lanes, lanes))
                   for j in range(VECTORS)]
            pairs = [f.select(o, 1.0, p * f.splat(a, lanes))
                     for o, p in zip(own, pairs, strict=True)]
            rows = [("scores", g * chunk) for g in range(spec.group)]
            for name, first in [*rows, *[("overlap", 0)] * spec.delta]:
                row = f.address(self.at[name], (i.index + first) * chunk, F32)
                for j, by in enumerate(pairs):
                    f.store(f.load(self.kind, row, j * lanes) * by, row, j * lanes)
            i.carry(*pairs, since)
        *ends, since = i.results
        f.store(since, self.at["kept"], 0)
        return ends

    def _decay_rows(self, last: list[Value]) -> None:
        """Queries and keys by a(0, i], turned keys by a(j, n]."""
        f, lanes, chunk = self.f, self.lanes, self.chunk
        rows = [("q", g * chunk) for g in range(self.spec.group)]
        with f.loop(0, chunk) as i:
            by = broadcast(f, self.at["line"], i.index, lanes)
            for name, first in [*rows, *[("k", 0)] * self.spec.delta]:
                row = f.address(self.at[name], (i.index + first) * self.depth, F32)
                step = lanes * (_UNROLL if self.depth % (lanes * _UNROLL) == 0 else 1)
                with f.loop(0, self.depth, step) as d:
                    for at in range(0, step, lanes):
                        x = f.load(self.kind, row, d.index + at)
                        f.store(x * by, row, d.index + at)
        with f.loop(0, self.spec.dk) as d:
            row = f.address(self.at["turned"], d.index * chunk, F32)
            for j, by in enumerate(last):
                f.store(f.load(self.kind, row, j * lanes) * by, row, j * lanes)

    # Decays by key

    def _relate_by_key(self) -> None:
        """Pairs one by one: the key of j is carried forward under the decays of later tokens."""
        f, at, chunk, depth = self.f, self.at, self.chunk, self.depth
        with f.loop(0, chunk) as j:
            carried = f.address(at["turned"], j.index * depth, F32)
            f.copy(carried, f.address(at["k"], j.index * depth, F32), 4 * depth)
            self._pair(j.index, j.index, carried, first=True)
            with f.loop(j.index + 1, chunk) as i:
                self._pair(i.index, j.index, carried, first=False)
        with f.loop(0, depth, self.lanes) as d:
            with f.loop(0, chunk, 1, [f.constant(self.kind, 1)]) as i:
                place = i.index * depth + d.index
                by = i.values[0] * f.load(self.kind, at["decay"], place)
                rows = [("q", g * chunk * depth) for g in range(self.spec.group)]
                for name, first in [*rows, *[("k", 0)] * self.spec.delta]:
                    f.store(f.load(self.kind, at[name], place + first) * by, at[name],
                            place + first)
                i.carry(by)
            f.store(i.results[0], at["kept"], d.index)

    def _pair(self, i: Value, j: Value, carried: Value, *, first: bool) -> None:
        """The products of token i with the key of j, which takes the decay of i before."""
        f, at, depth, lanes = self.f, self.at, self.depth, self.lanes
        others = [("q", g * self.chunk) for g in range(self.spec.group)]
        if self.spec.delta and not first:
            others.append(("k", 0))
        start = [f.constant(self.kind, 0)] * len(others)
        with f.loop(0, depth, lanes, start) as d:
            x = f.load(self.kind, carried, d.index)
            if not first:
                x = x * f.load(self.kind, at["decay"], i * depth + d.index)
                f.store(x, carried, d.index)
            d.carry(*[multiply_add(f, x, f.load(
                self.kind, at[name], (i + row) * depth + d.index), s)
                for (name, row), s in zip(others, d.values, strict=True)])
        for (name, row), s in zip(others, d.results, strict=True):
            target = "overlap" if name == "k" else "scores"
            f.store(total(f, s), at[target], (i + row) * self.chunk + j)

    # Single tokens

    def alone(self, n: Value) -> None:
        """Keys under their own token's decay, for tokens that are taken one by one."""
        f = self.f
        if self.spec.decay == "none" or not self.spec.delta:
            return
        with f.loop(0, n) as t:
            by = None if self.spec.decay == "key" else broadcast(
                f, self.at["decay"], t.index, self.lanes)
            with f.loop(0, self.depth, self.lanes) as d:
                place = t.index * self.depth + d.index
                a = by if by is not None else f.load(self.kind, self.at["decay"], place)
                f.store(f.load(self.kind, self.at["k"], place) * a, self.at["turned"], place)

    # Results

    def results(self, target: Value, line: Index, n: Value, left: Value) -> None:
        """The rows of y of `n` tokens to memory."""
        f, spec, lanes = self.f, self.spec, self.lanes
        every = self.cut.covers(spec.dv)
        with f.loop(0, n) as t:
            for g in range(spec.group):
                source = f.address(self.at["y"], (t.index + g * self.chunk) * self.cut.width, F32)
                to = f.address(target, t.index * line + g * spec.dv, spec.element)
                with f.loop(0, self.cut.width, self.cut.columns) as c:
                    for at in range(0, self.cut.columns, lanes):
                        place = c.index + at
                        mask = None if every else f.tail_mask(left - place, lanes)
                        store(f, f.load(self.kind, source, place), spec.element, to, place, mask)
