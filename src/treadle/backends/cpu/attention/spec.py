"""What an attention kernel is asked to compute, and how it is cut."""

from __future__ import annotations

from collections.abc import Mapping

from ....codegen.llvm.text import Type
from ....records import dataclass
from ..contraction.spec import Extent
from ..contraction.tiles import Tile

_ROWS, _KEYS = 128, 128
"""Queries and keys of a block: a block of keys is copied once for all queries of its block."""
_DEEP = 128
"""Head sizes from which blocks are halved."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor: its name among the words, its element, its strides in elements."""

    name: str
    element: Type
    strides: tuple[Extent, ...]
    signed: bool = True


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax(cap(scale q kT) + bias, over visible keys) v, as `ops.attention` says.

    `q`, `v` and `y` lie row by row; `k` does, or column by column if `k_columns`. `group` query
    heads read each of the `heads` of the keys. `more` are mask, bias, offset, valid_length and sink
    where present.
    """

    q: Operand
    k: Operand
    v: Operand
    y: Operand
    more: tuple[Operand, ...]
    accumulator: Type
    batch: Extent
    heads: Extent
    group: int
    rows: Extent
    keys: Extent
    depth: int
    width: int
    k_columns: bool
    scale: float
    softcap: float | None
    start: Extent
    left: int | None
    right: int | None

    def operand(self, name: str) -> Operand | None:
        """An optional operand."""
        return next((x for x in self.more if x.name == name), None)

    def operands(self) -> tuple[Operand, ...]:
        """All, in the order of the kernel's words."""
        return (self.q, self.k, self.v, *self.more, self.y)

    def run_time_words(self) -> list[str]:
        """Names of sizes and strides that each run supplies."""
        sizes = [self.batch, self.heads, self.rows, self.keys, self.start]
        for x in self.operands():
            sizes += x.strides
        return list(dict.fromkeys(s for s in sizes if isinstance(s, str)))


@dataclass(frozen=True, slots=True)
class Blocks:
    """Sizes of a block, and where its parts lie in scratch, in accumulators."""

    rows: int
    keys: int
    q_line: int
    s_line: int
    o_line: int
    places: Mapping[str, int]
    total: int


def blocks(spec: Attention, tile: Tile) -> Blocks:
    """The blocks of a kernel. Lines are padded, so that rows do not fall on the same cache sets."""
    part = 1 if max(spec.depth, spec.width) * spec.accumulator.size < 4 * _DEEP else 2
    rows = -(-_ROWS // part // tile.rows) * tile.rows
    if isinstance(spec.rows, int):
        rows = min(rows, max(-(-spec.rows * spec.group // tile.rows), 1) * tile.rows)
    keys = _KEYS // part
    q_line, s_line = -(-spec.depth // 16) * 16 + 16, keys + 16
    o_line = max(-(-spec.width // tile.columns), 1) * tile.columns
    sizes = {"q": rows * q_line, "k": max(spec.depth, 1) * keys, "s": rows * s_line,
             "v": keys * o_line, "o": rows * o_line, "top": rows, "sum": rows, "seen": rows}
    places, at = dict[str, int](), 0
    for name, size in sizes.items():
        places[name] = at
        at += -(-size // 16) * 16
    return Blocks(rows, keys, q_line, s_line, o_line, places, at)


def chunks_for(spec: Attention, tile: Tile, sizes: Mapping[str, int]) -> int:
    """Chunks for these run-time sizes: blocks of queries, a few for each chunk if they are many."""
    n, h, s = (sizes[x] if isinstance(x, str) else x for x in (spec.batch, spec.heads, spec.rows))
    keys = sizes[spec.keys] if isinstance(spec.keys, str) else spec.keys
    items = n * h * -(-s * spec.group // blocks(spec, tile).rows)
    work = n * h * s * spec.group * keys * (spec.depth + spec.width)
    return max(1, min(items, work // _CHUNK_WORK, _MOST_CHUNKS))


_CHUNK_WORK, _MOST_CHUNKS = 1 << 17, 64
