"""The register tile: one function per tile height, called by the macro kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ....codegen.llvm.text import F32, I64, PTR, VOID, Function, Index, Loop, Module, Type, Value
from ....codegen.llvm.text import Parameter as Argument
from ....records import dataclass
from .integer import IntegerPlan, accumulate, load_columns, load_group
from .operands import Operands, operand_arguments
from .spec import Epilogue, Place
from .tiles import Tile

_FIXED = [
    Argument("a", PTR, "noalias readonly"), Argument("b", PTR, "noalias readonly"),
    Argument("c", PTR), Argument("next", PTR), Argument("sums", PTR),
    *(Argument(name, I64) for name in ("k", "lda", "ldb", "ldc", "left", "row", "column"))]


@dataclass(frozen=True, slots=True)
class Micro:
    """A `rows` x `vectors` tile: `C (+)= A B` over `k`, with known strides where not None.

    Element (r, k) of A lies at `r * a_row + k * a_step`, (k, j) of B at `k * b_step + j`.
    `first` forgets what C holds, otherwise adds to it; `last` applies the epilogue and converts.
    `tail` is `k % unroll` if k is known. `masked` keeps columns from `left` on. `ahead` bytes of B
    are prefetched, or `spread` lines of `next` per unrolled step, and `a_ahead` bytes of A.
    `streams` parts of k are read side by side. With an `integer` plan one step of k is a group.
    """

    tile: Tile
    unroll: int
    rows: int
    vectors: int
    accumulator: Type
    a: Type
    a_row: int | None
    a_step: int | None
    b: Type
    b_step: int | None
    c: Type
    ldc: int | None
    first: bool
    last: bool
    tail: int | None
    masked: bool
    ahead: int
    spread: int
    streams: int
    epilogue: Epilogue | None
    integer: IntegerPlan | None = None
    a_ahead: int = 0

    @property
    def name(self) -> str:
        """A name that equal tiles share."""
        fields = [str(getattr(self, f)) for f in self.__slots__ if f != "epilogue"]
        fields.append(str(self.epilogue) if self.last else str(operand_arguments(self.epilogue)))
        digest = hashlib.blake2b("|".join(fields).encode(), digest_size=6).hexdigest()
        return f"tile_{self.rows}x{self.vectors * self.tile.lanes}_{digest}"


def arguments(epilogue: Epilogue | None) -> list[Argument]:
    """The parameters of every tile: fixed ones, then the epilogue's operands."""
    return _FIXED + operand_arguments(epilogue)


def emit_micro(module: Module, micro: Micro) -> Function:
    """The function of a tile, made once per module."""
    if micro.name in module.functions:
        return module.functions[micro.name]
    function = module.function(micro.name, VOID, arguments(micro.epilogue))
    _Emitter(function, micro).run()
    return function


class _Emitter:
    """Writes one tile."""

    def __init__(self, function: Function, micro: Micro) -> None:
        self.f, self.m = function, micro
        self.vector = micro.accumulator.vector(micro.tile.lanes)
        self.arg = {p.name: v for p, v in zip(function.parameters, function.args, strict=True)}
        # With addresses and masks to compute too, LLVM has no registers for more sums.
        apart = micro.masked and None in (micro.a_row, micro.a_step)
        self.sets = 1 if apart else micro.tile.splits(micro.rows, micro.vectors)
        self.rows = self._row_pointers()

    def run(self) -> None:
        """The whole body."""
        count = self.m.rows * self.m.vectors
        total = self._along_k([self.f.constant(self.vector, 0)] * (count * self.sets))
        while len(total) > count:
            half = len(total) // 2
            total = [a + b for a, b in zip(total[:half], total[half:], strict=True)]
        if not self.m.first:  # a sum of sums of blocks rounds less than one long sum
            total = [a + b for a, b in zip(total, self._stored(), strict=True)]
        self._finish(total)
        self.f.give()

    def _row_pointers(self) -> list[tuple[Value, int]]:
        """Per row of A a base and a known offset."""
        a, step = self.arg["a"], self.m.a_row
        if step is not None:
            return [(a, r * step) for r in range(self.m.rows)]
        return [(self.f.address(a, self.arg["lda"] * r, self.m.a), 0)
                for r in range(self.m.rows)]

    def _along_k(self, start: list[Value]) -> list[Value]:
        """The loop over k, unrolled, and what remains.

        Several streams read equal parts of k side by side.
        """
        f, m, k, tail = self.f, self.m, self.arg["k"], self.m.tail
        whole = k & -m.unroll if tail is None else k - tail
        part = f.binary("udiv", whole, m.streams)
        with f.loop(0, part, m.unroll // m.streams, start) as loop:
            sums = list(loop.values)
            places = [loop.index + part * s if s else loop.index for s in range(m.streams)]
            bases = [self._step_bases(place) for place in places]
            for u in range(m.unroll):
                stream, ahead = u % m.streams, u // m.streams
                self._multiply(sums, u % self.sets, places[stream], ahead, bases[stream])
                self._prefetch(bases[stream][0], ahead)
            self._prefetch_next(loop)
            self._prefetch_a(bases[0])
            loop.carry(*sums)
        sums = loop.results
        if tail is None:
            with f.loop(whole, k, 1, sums) as rest:
                sums = list(rest.values)
                self._multiply(sums, 0, rest.index, 0, self._step_bases(rest.index))
                rest.carry(*sums)
            return rest.results
        last = self._step_bases(whole) if tail else []
        for u in range(tail):
            self._multiply(sums, u % self.sets, whole, u, last)
        return sums

    def _step_bases(self, index: Value) -> list[Value]:
        """Pointers to B and to each distinct base of A at step `index`, where strides are known."""
        f, m = self.f, self.m
        b = f.address(self.arg["b"], index * (m.b_step or 0), m.b)
        distinct = dict.fromkeys(base for base, _ in self.rows)
        return [b, *(f.address(base, index * (m.a_step or 0), m.a) for base in distinct)]

    def _multiply(self, sums: list[Value], chosen: int, index: Value, u: int,
                  bases: Sequence[Value]) -> None:
        """Step `index + u` of k into the chosen set of sums; the bases belong to `index`."""
        f, m = self.f, self.m
        row = self._b_row(index, u, bases[0])
        at = chosen * m.rows * m.vectors
        distinct = list(dict.fromkeys(base for base, _ in self.rows))
        for r, (base, offset) in enumerate(self.rows):
            if m.a_step is None:
                item = f.address(base, (index + u) * self.arg["lda"] + offset, m.a)
            else:
                item = f.address(bases[1 + distinct.index(base)], offset + u * m.a_step, m.a)
            a = self._a_lanes(item)
            for j in range(m.vectors):
                place = at + r * m.vectors + j
                sums[place] = self._accumulate(a, row[j], sums[place])

    def _a_lanes(self, pointer: Value) -> Value:
        """An item of A in every lane."""
        if self.m.integer is not None:
            return load_group(self.f, pointer, self.m.integer, self.m.tile.lanes)
        return self.f.splat(self._widen(self.f.load(self.m.a, pointer)), self.m.tile.lanes)

    def _b_row(self, index: Value, u: int, base: Value) -> list[Value]:
        """The vectors of B at one step."""
        f, m, kind = self.f, self.m, self.m.b.vector(self.m.tile.lanes)
        if m.b_step is None:
            base, offset = f.address(self.arg["b"], (index + u) * self.arg["ldb"], m.b), 0
        else:
            offset = u * m.b_step
        if m.integer is not None:
            group, lanes = m.integer.group, m.tile.lanes
            return [load_columns(f, base, offset + j * lanes * group, m.integer, lanes)
                    for j in range(m.vectors)]
        return [self._widen(f.load(kind, base, offset + j * m.tile.lanes))
                for j in range(m.vectors)]

    def _accumulate(self, a: Value, b: Value, total: Value) -> Value:
        if self.m.integer is not None:
            return accumulate(self.f, a, b, total)
        return self.f.fma(a, b, total) if self.f.target.has_fma else a * b + total

    def _widen(self, value: Value) -> Value:
        """A value in the accumulator's type; beside integer sums, floats become f32."""
        real = value.type.is_float and not self.m.accumulator.is_float
        return self.f.convert(value, F32 if real else self.m.accumulator)

    def _prefetch(self, base: Value, u: int) -> None:
        """Ask for what lies `ahead` of step `u` of a stream of B."""
        f, m, line = self.f, self.m, 64 // self.m.b.size
        if m.ahead and m.b_step is not None:
            for at in range(-(-u * m.b_step // line), -(-(u + 1) * m.b_step // line)):
                f.prefetch(f.address(base, at * line + m.ahead // m.b.size, m.b))

    def _prefetch_next(self, loop: Loop) -> None:
        """Ask for this tile's share of the next panel."""
        f, m, line = self.f, self.m, 64 // self.m.b.size
        for j in range(m.spread):
            f.prefetch(f.address(self.arg["next"],
                                 loop.index * (m.spread * line // m.unroll) + j * line, m.b))

    def _prefetch_a(self, bases: Sequence[Value]) -> None:
        """Ask for what lies ahead in an A whose steps follow each other."""
        f, m = self.f, self.m
        if m.a_ahead and m.a_step is not None:
            items = 64 // m.a.size
            for at in range(0, m.unroll * m.a_step, items):
                f.prefetch(f.address(bases[1], at + m.a_ahead // m.a.size, m.a))

    def _stored(self) -> list[Value]:
        """The sums that an earlier block of k left in C."""
        return [self._load(self.arg["c"], self.vector, self._in_c(r, j), j)
                for r in range(self.m.rows) for j in range(self.m.vectors)]

    def _in_c(self, row: int, j: int) -> Index:
        ldc = self.m.ldc
        base: Index = row * ldc if ldc is not None else self.arg["ldc"] * row
        return base + j * self.m.tile.lanes

    def _mask(self, j: int) -> Value | None:
        if not self.m.masked:
            return None
        lanes = self.m.tile.lanes
        return self.f.tail_mask(self.arg["left"] - j * lanes, lanes)

    def _load(self, pointer: Value, kind: Type, offset: Index, j: int) -> Value:
        mask = self._mask(j)
        if mask is None:
            return self.f.load(kind, pointer, offset)
        return self.f.masked_load(kind, self.f.address(pointer, offset, kind.scalar), mask)

    def _finish(self, sums: list[Value]) -> None:
        """Epilogue, conversion and store; sums between blocks are stored as they are."""
        f, m = self.f, self.m
        epilogue = m.epilogue if m.last else None
        operands = Operands(f, epilogue, self.arg, self.arg["ldc"] if m.ldc is None else m.ldc,
                            m.tile.lanes, m.accumulator, self._mask)
        operands.share(m.vectors)
        corrections = self._corrections()
        for r in range(m.rows):
            for j in range(m.vectors):
                value = sums[r * m.vectors + j]
                if m.integer is not None and m.integer.offset:
                    value = value + corrections[j]
                if epilogue is not None:
                    place = Place(self.arg["row"] + r, self.arg["column"] + j * m.tile.lanes)
                    value = epilogue.emit(f, value, operands.at(r, j), place)
                if m.last:
                    value = f.convert(value, m.c)
                self._store(value, r, j)

    def _corrections(self) -> list[Value]:
        """What the column sums of B add, per vector, where A's sign bit was inverted."""
        if self.m.integer is None or not self.m.integer.offset:
            return []
        return [self.f.load(self.vector, self.arg["sums"], j * self.m.tile.lanes)
                * self.m.integer.offset for j in range(self.m.vectors)]

    def _store(self, value: Value, r: int, j: int) -> None:
        mask, at = self._mask(j), self._in_c(r, j)
        if mask is None:
            self.f.store(value, self.arg["c"], at)
        else:
            self.f.masked_store(value, self.f.address(self.arg["c"], at, value.type.scalar), mask)
