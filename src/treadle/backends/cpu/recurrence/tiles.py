"""Register tiles of a slab: products with it, its update, and the triangular solve of a chunk.

Every function is made once per module. Matrices are f32 in scratch memory, with known distances of
their lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....codegen.llvm.text import F32, PTR, VOID, Function, Index, Module, Type, Value
from ....records import dataclass
from .spec import VECTORS
from .vectors import broadcast, multiply_add

_UNROLL, _FEW_ROWS, _TRIANGLE_ROWS, _SOLVED_ROWS = 4, 6, 4, 4
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
        """How often an update of `depth` rows calls `beside`."""
        return depth // self._update_rows(u)

    def update(self, u: Update, depth: int, state: Value, k: Value, w: Value, kept: Value,
               beside: Callable[[Value], None] | None = None) -> None:
        """All rows of a slab of the state; `beside(index)` comes before each whole tile."""
        rows = self._update_rows(u)
        f, whole = self.f, depth // rows

        def part(height: int, first: Index) -> None:
            tile = _update(self.module, u, height, self.lanes)
            f.invoke(tile, f.address(state, first * self.columns, F32),
                     f.address(k, first * u.step, F32), w,
                     f.address(kept, first, F32) if u.kept == "key" else kept)

        if whole:
            with f.loop(0, whole) as at:
                if beside is not None:
                    beside(at.index)
                part(rows, at.index * rows)
        if rest := depth % rows:
            part(rest, whole * rows)

    def triangle(self, chunk: int, group: int, line: int, a: Value, b: Value, c: Value) -> None:
        """C += A B for the lower triangles of `group` matrices [chunk, chunk]; no other is read."""
        height = _TRIANGLE_ROWS
        for g in range(group):
            for low in range(0, chunk, height):
                tile = _triangle(self.module, chunk, low, height, line, self.lanes)
                first = g * chunk + low
                self.f.invoke(tile, self.f.address(a, first * chunk, F32), b,
                              self.f.address(c, first * line, F32))

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
    kind, count = F32.vector(lanes), rows * VECTORS
    unroll = min(_UNROLL, p.depth)
    sets = 1
    while sets * 2 * count <= _SUMS and sets * 2 <= unroll:
        sets *= 2
    sums = [f.constant(kind, 0)] * (count * sets)
    whole = p.depth // unroll * unroll
    with f.loop(0, whole, unroll, sums) as loop:
        sums = list(loop.values)
        near, row = f.address(a, loop.index, F32), f.address(b, loop.index * p.b_line, F32)
        for u in range(unroll):
            _step(f, p, (near, row, u), lanes, sums, u % sets * count, range(rows))
        loop.carry(*sums)
    sums = list(loop.results)
    near, row = f.address(a, whole, F32), f.address(b, whole * p.b_line, F32)
    for u in range(p.depth - whole):
        _step(f, p, (near, row, u), lanes, sums, u % sets * count, range(rows))
    while len(sums) > count:
        half = len(sums) // 2
        sums = [x + y for x, y in zip(sums[:half], sums[half:], strict=True)]
    for i, value in enumerate(sums):
        f.store(value, c, i // VECTORS * p.c_line + i % VECTORS * lanes)
    f.give()
    return f


def _triangle(module: Module, chunk: int, low: int, rows: int, line: int, lanes: int
              ) -> Function:
    """Rows `low` to `low + rows` of a lower triangle: row i reads B up to its own row."""
    name = f"slab_triangle_{chunk}_{low}_{rows}x{lanes}_{line}"
    if (f := _begin(module, name, 3)) is None:
        return module.functions[name]
    a, b, c = f.args
    p, kind = Product(low, chunk, line, line), F32.vector(lanes)
    places = [i // VECTORS * line + i % VECTORS * lanes for i in range(rows * VECTORS)]
    sums = [f.load(kind, c, at) for at in places]
    if low:
        with f.loop(0, low, 1, sums) as loop:
            sums = list(loop.values)
            place = (f.address(a, loop.index, F32), f.address(b, loop.index * line, F32), 0)
            _step(f, p, place, lanes, sums, 0, range(rows))
            loop.carry(*sums)
        sums = list(loop.results)
    near, row = f.address(a, low, F32), f.address(b, low * line, F32)
    for u in range(rows):
        _step(f, p, (near, row, u), lanes, sums, 0, range(u, rows))
    for at, value in zip(places, sums, strict=True):
        f.store(value, c, at)
    f.give()
    return f


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


def _update(module: Module, u: Update, rows: int, lanes: int) -> Function:
    name = f"slab_update_{rows}x{lanes}_{u.tokens}_{u.step}_{u.line}_{u.w_line}_{u.kept}"
    if (f := _begin(module, name, 4)) is None:
        return module.functions[name]
    state, k, w, kept = f.args
    kind = F32.vector(lanes)
    sums = [f.load(kind, state, i * lanes) for i in range(rows * VECTORS)]
    if u.kept != "none":
        every = [broadcast(f, kept, r if u.kept == "key" else 0, lanes)
                 for r in range(rows if u.kept == "key" else 1)]
        sums = [s * every[i // VECTORS if u.kept == "key" else 0] for i, s in enumerate(sums)]
    with f.loop(0, u.tokens, 1, sums) as loop:
        near = f.address(k, loop.index * u.line, F32)
        row = f.address(w, loop.index * u.w_line, F32)
        loop.carry(*_add(f, kind, (near, row), u.step, loop.values))
    for i, value in enumerate(loop.results):
        f.store(value, state, i * lanes)
    f.give()
    return f


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
