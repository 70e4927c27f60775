"""Register tiles of a slab: products with it, its update, and the triangular solve of a chunk.

Every function is made once per module. Matrices are f32 in scratch memory, with known distances of
their lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....codegen.llvm.text import F32, I64, PTR, VOID, Function, Index, Module, Type, Value
from ....records import dataclass
from .ahead import Row, ask
from .spec import VECTORS
from .vectors import broadcast, multiply_add

_UNROLL, _FEW_ROWS, _SOLVED_ROWS = 4, 6, 4
_ADDED = 16
"""Tokens whose part of an update is written out: a loop of few turns stalls where it ends.

Eight of them, for NEON, would not stay in registers.
"""
_SUMS = 8
"""Sums that are built side by side, so that none waits for the one before."""


@dataclass(frozen=True, slots=True)
class Product:
    """C[rows, slab] = A[rows, depth] B[depth, slab], by the distances of lines."""

    depth: int
    a_line: int
    b_line: int
    c_line: int


@dataclass(frozen=True, slots=True)
class Update:
    """S[d, slab] = kept S + sum over t of K[d, t] W[t, slab]; K lies at d * step + t * line."""

    tokens: int
    step: int
    line: int
    w_line: int
    kept: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Y = Q S + the lower triangle of scores times W; no other score is read.

    Q[chunk, keys] has lines of `depth`, the scores those of the chunk, W and Y those of `line`.
    """

    chunk: int
    keys: int
    depth: int
    line: int


@dataclass(frozen=True, slots=True)
class Beside:
    """Rows asked for beside the tiles of an update: those of some tokens, each in some turns."""

    tokens: int
    turns: int
    rows: tuple[Row, ...]
    starts: Callable[[Value], list[Value]]


class Tiles:
    """Calls of tiles in a function being written."""

    def __init__(self, module: Module, f: Function, lanes: int, rows: int) -> None:
        self.module, self.f, self.lanes, self.rows = module, f, lanes, rows
        self.columns = lanes * VECTORS

    def product(self, p: Product, rows: int, a: Value, b: Value, c: Value) -> None:
        """All rows in tiles of the greatest height, then what is left."""
        f, whole = self.f, rows // self.rows
        if whole:
            tile = _product(self.module, p, self.rows, self.lanes)
            with f.loop(0, whole) as at:
                f.invoke(tile, f.address(a, at.index * (self.rows * p.a_line), F32), b,
                         f.address(c, at.index * (self.rows * p.c_line), F32))
        if rest := rows % self.rows:
            tile = _product(self.module, p, rest, self.lanes)
            first = whole * self.rows
            f.invoke(tile, f.address(a, first * p.a_line, F32), b,
                     f.address(c, first * p.c_line, F32))

    def _update_rows(self, u: Update) -> int:
        """Those of a single token are bound by memory."""
        return self.rows if u.tokens > 1 else min(self.rows, _FEW_ROWS)

    def parts(self, u: Update, depth: int) -> int:
        """How many whole tiles an update of `depth` rows has."""
        return depth // self._update_rows(u)

    def update(self, u: Update, depth: int, state: Value, k: Value, w: Value, kept: Value,
               beside: Beside | None = None) -> None:
        """All rows of a slab of the state; the first tiles ask for what is `beside`."""
        rows = self._update_rows(u)
        f, whole = self.f, depth // rows

        def part(height: int, first: Index, count: Index, asked: Beside | None,
                 starts: Sequence[Value] = ()) -> None:
            tile = _update(self.module, u, height, self.lanes, asked)
            f.invoke(tile, f.address(state, first * self.columns, F32),
                     f.address(k, first * u.step, F32), w,
                     f.address(kept, first, F32) if u.kept == "key" else kept,
                     f.constant(I64, count), *starts)

        done = 0
        if beside is not None:
            done = beside.tokens * beside.turns
            with f.loop(0, beside.tokens) as t:
                part(rows, t.index * (beside.turns * rows), beside.turns, beside,
                     beside.starts(t.index))
        if whole > done:
            part(rows, done * rows, whole - done, None)
        if rest := depth % rows:
            part(rest, whole * rows, 1, None)

    def answer(self, x: Answer, rows: int, where: Sequence[Value]) -> None:
        """Results of the chunk's tokens in tiles of at most `rows`, for one query head.

        `where` are the places of queries, state, scores, what tokens add, and results.
        """
        q, state, scores, w, y = where
        f = self.f
        for low in range(0, x.chunk, rows):
            tile = _answer(self.module, x, low, min(rows, x.chunk - low), self.lanes)
            f.invoke(tile, f.address(q, low * x.depth, F32), state,
                     f.address(scores, low * x.chunk, F32), w, f.address(y, low * x.line, F32))

    def solve(self, chunk: int, v_line: int, overlap: Value, found: Value, beta: Value, v: Value
              ) -> None:
        """What each token adds, in place of its value; `overlap` is that of `Block.relate`."""
        tile = _solve(self.module, chunk, v_line, self.lanes)
        self.f.invoke(tile, overlap, found, beta, v)


def _begin(module: Module, name: str, count: int) -> Function | None:
    """A function of so many pointers, unless it exists."""
    if name in module.functions:
        return None
    return module.function(name, VOID, [(f"p{i}", PTR) for i in range(count)])


def _product(module: Module, p: Product, rows: int, lanes: int) -> Function:
    name = f"slab_product_{rows}x{lanes}_{p.depth}_{p.a_line}_{p.b_line}_{p.c_line}"
    if (f := _begin(module, name, 3)) is None:
        return module.functions[name]
    a, b, c = f.args
    kind, count, sets = F32.vector(lanes), rows * VECTORS, 1
    while sets * 2 * count <= _SUMS and sets * 2 <= min(_UNROLL, p.depth):
        sets *= 2
    sums = _deep(f, p, (a, b), lanes, [f.constant(kind, 0)] * (count * sets), sets)
    while len(sums) > count:
        half = len(sums) // 2
        sums = [x + y for x, y in zip(sums[:half], sums[half:], strict=True)]
    for i, value in enumerate(sums):
        f.store(value, c, i // VECTORS * p.c_line + i % VECTORS * lanes)
    f.give()
    return f


def _answer(module: Module, x: Answer, low: int, rows: int, lanes: int) -> Function:
    """Tokens `low` to `low + rows`: each reads the state, then tokens up to itself."""
    name = f"slab_answer_{x.chunk}_{low}_{rows}x{lanes}_{x.keys}_{x.depth}_{x.line}"
    if (f := _begin(module, name, 5)) is None:
        return module.functions[name]
    q, state, scores, w, y = f.args
    sums = [f.constant(F32.vector(lanes), 0)] * (rows * VECTORS)
    sums = _deep(f, Product(x.keys, x.depth, lanes * VECTORS, 0), (q, state), lanes, sums)
    p = Product(low, x.chunk, x.line, 0)
    if low:
        sums = _deep(f, p, (scores, w), lanes, sums)
    near, row = f.address(scores, low, F32), f.address(w, low * x.line, F32)
    for u in range(rows):
        _step(f, p, (near, row, u), lanes, sums, 0, range(u, rows))
    for i, value in enumerate(sums):
        f.store(value, y, i // VECTORS * x.line + i % VECTORS * lanes)
    f.give()
    return f


def _deep(f: Function, p: Product, place: tuple[Value, Value], lanes: int, sums: list[Value],
          sets: int = 1) -> list[Value]:
    """Sums of all rows over the depth; steps take turns at the `sets` of sums."""
    a, b = place
    count, unroll = len(sums) // sets, min(_UNROLL, p.depth)
    rows = range(count // VECTORS)
    whole = p.depth // unroll * unroll
    with f.loop(0, whole, unroll, sums) as loop:
        sums = list(loop.values)
        near, row = f.address(a, loop.index, F32), f.address(b, loop.index * p.b_line, F32)
        for u in range(unroll):
            _step(f, p, (near, row, u), lanes, sums, u % sets * count, rows)
        loop.carry(*sums)
    sums = list(loop.results)
    near, row = f.address(a, whole, F32), f.address(b, whole * p.b_line, F32)
    for u in range(p.depth - whole):
        _step(f, p, (near, row, u), lanes, sums, u % sets * count, rows)
    return sums


def _step(f: Function, p: Product, place: tuple[Value, Value, int], lanes: int,
          sums: list[Value], first: int, rows: range) -> None:
    """One step of the depth into the sums from `first` on, for some rows."""
    a, b, u = place
    row = [f.load(F32.vector(lanes), b, u * p.b_line + j * lanes) for j in range(VECTORS)]
    for r in rows:
        item = broadcast(f, a, r * p.a_line + u, lanes)
        for j in range(VECTORS):
            at = first + r * VECTORS + j
            sums[at] = multiply_add(f, item, row[j], sums[at])


def _update(module: Module, u: Update, rows: int, lanes: int, beside: Beside | None) -> Function:
    """Tiles one after another, so that a tile begins while the one before ends."""
    name = f"slab_update_{rows}x{lanes}_{u.tokens}_{u.step}_{u.line}_{u.w_line}_{u.kept}"
    asked = beside.rows if beside else ()
    name += "".join(f"_{r.size}{'w' * r.written}" for r in asked)
    name += f"_{beside.turns}" if beside else ""
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, VOID, [
        *[(p, PTR) for p in ("state", "k", "w", "kept")], ("count", I64),
        *[(f"ahead{i}", PTR) for i in range(len(asked))]])
    with f.loop(0, f.args[4]) as at:
        if beside is not None:
            ask(f, list(zip(asked, f.args[5:], strict=True)), at.index, beside.turns)
        first = at.index * rows
        state, k = f.address(f.args[0], first * (lanes * VECTORS), F32), f.address(
            f.args[1], first * u.step, F32)
        kept = f.address(f.args[3], first, F32) if u.kept == "key" else f.args[3]
        _update_tile(f, u, (state, k, f.args[2], kept), F32.vector(lanes), rows)
    f.give()
    return f


def _update_tile(f: Function, u: Update, places: tuple[Value, Value, Value, Value], kind: Type,
                 rows: int) -> None:
    state, k, w, kept = places
    sums = [f.load(kind, state, i * kind.lanes) for i in range(rows * VECTORS)]
    if u.kept != "none":
        every = [broadcast(f, kept, r if u.kept == "key" else 0, kind.lanes)
                 for r in range(rows if u.kept == "key" else 1)]
        sums = [s * every[i // VECTORS if u.kept == "key" else 0] for i, s in enumerate(sums)]
    unroll = _ADDED if u.tokens >= _ADDED else 1
    with f.loop(0, u.tokens, unroll, sums) as loop:
        sums = list(loop.values)
        for t in range(unroll):
            at = loop.index + t
            near, row = f.address(k, at * u.line, F32), f.address(w, at * u.w_line, F32)
            sums = _add(f, kind, (near, row), u.step, sums)
        loop.carry(*sums)
    for i, value in enumerate(loop.results):
        f.store(value, state, i * kind.lanes)


def _add(f: Function, kind: Type, place: tuple[Value, Value], step: int, sums: Sequence[Value]
         ) -> list[Value]:
    """One token's part of the sums."""
    k, w = place
    row = [f.load(kind, w, j * kind.lanes) for j in range(VECTORS)]
    out = list[Value]()
    for r in range(len(sums) // VECTORS):
        item = broadcast(f, k, r * step, kind.lanes)
        out += [multiply_add(f, item, row[j], sums[r * VECTORS + j]) for j in range(VECTORS)]
    return out


def _solve(module: Module, chunk: int, v_line: int, lanes: int) -> Function:
    """w[i] = beta[i] (v[i] - found[i]) + sum over j < i of overlap[i, j] w[j], in place of v.

    Blocks of rows first take what is solved, then each other.
    """
    name = f"slab_solve_{chunk}x{lanes}_{v_line}"
    if (f := _begin(module, name, 4)) is None:
        return module.functions[name]
    overlap, found, beta, v = f.args
    p, kind = Product(chunk, chunk, v_line, v_line), F32.vector(lanes)
    for low in range(0, chunk, _SOLVED_ROWS):
        rows = range(min(_SOLVED_ROWS, chunk - low))
        places = [((low + r) * v_line + j * lanes, ((low + r) * VECTORS + j) * lanes)
                  for r in rows for j in range(VECTORS)]
        rates = [broadcast(f, beta, low + r, lanes) for r in rows for _ in range(VECTORS)]
        sums = [rate * (f.load(kind, v, at) - f.load(kind, found, there))
                for rate, (at, there) in zip(rates, places, strict=True)]
        near = f.address(overlap, low * chunk, F32)
        if low:
            with f.loop(0, low, 1, sums) as loop:
                sums = list(loop.values)
                place = f.address(near, loop.index, F32), f.address(v, loop.index * v_line, F32), 0
                _step(f, p, place, lanes, sums, 0, rows)
                loop.carry(*sums)
            sums = list(loop.results)
        for r in rows:
            for t in range(r):
                item = broadcast(f, near, r * chunk + low + t, lanes)
                for j in range(VECTORS):
                    at = r * VECTORS + j
                    sums[at] = multiply_add(f, item, sums[t * VECTORS + j], sums[at])
        for value, (at, _) in zip(sums, places, strict=True):
            f.store(value, v, at)
    f.give()
    return f
