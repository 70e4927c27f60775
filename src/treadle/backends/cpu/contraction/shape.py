"""How a product is cut, before any code is written: chunks, scratch memory, blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ....codegen.llvm.text import Module
from .integer import integer_plan
from .spec import Extent, Matmul
from .tiles import UNROLL, Tile, depth_blocks, tile_for

_BLOCK_ROWS, _FEW_ROWS = 192, 24
"""Rows of a block: they share each panel of B. Fewer where a copy of all their A is needed."""
_PAGE = 4096
"""Addresses this far apart share a set of the first-level cache."""
_WAYS = 8
"""Lines of one set of a first-level cache."""
_STAGED_FOR = 12
"""Panels for which a chunk is worth copying its A."""
_FAR_ROWS = 10
"""Rows of A at unknown distances whose addresses leave the registers to the sums."""
_WIDE_ROWS = 2
"""The same where products take registers of their own."""
_PAIR_ROWS = 5
"""The same where sums of pairs and ones to add them with take two."""
_CHUNK_WORK = 1 << 20
"""Multiply-adds that make a chunk worth claiming."""
_MOST_CHUNKS = 256
_BOUND_ROWS = 8
"""Fewer rows than this wait for the memory that B lies in."""
_REPACK_TILES = 4
"""Row tiles from which a panel of B, read row by row, is worth copying first."""


class Depth(NamedTuple):
    """A block of k."""

    start: int
    size: Extent
    first: bool
    last: bool


def chunks_for(spec: Matmul, tile: Tile, sizes: Mapping[str, int]) -> int:
    """How many chunks a plan should cut the kernel into for these run-time sizes."""
    m, n, k = (_known(size, sizes) for size in (spec.m, spec.n, spec.k))
    batch = 1
    for axis in spec.batch:
        batch *= _known(axis.extent, sizes)
    panels = -(-n // tile.columns)
    parts = -(-panels // _STAGED_FOR) if _stages(spec, tile) else panels
    units = batch * parts * max(1, m // 96)
    work = batch * max(m, _BOUND_ROWS) * n * k
    return max(1, min(units, work // _CHUNK_WORK, _MOST_CHUNKS))


def _known(size: Extent, sizes: Mapping[str, int]) -> int:
    return sizes[size] if isinstance(size, str) else size


def scratch_bytes(module: Module, spec: Matmul, sizes: Mapping[str, int]) -> int:
    """Scratch memory per lane for these run-time sizes."""
    shape = Shape(module, spec)
    k = _known(spec.k, sizes)
    depth = k if shape.open_depth else max(size for _, size in depth_blocks(
        spec, module.target, shape.tile))
    lines, length = shape.tile.rows * shape.block_tiles, depth
    if spec.a_transposed:
        lines, length = length, lines
    staged = lines * (-(-length // 16) * 16 + 16) if shape.stages else 0
    return (staged + depth * shape.tile.columns) * spec.accumulator.size + 256


class Shape:
    """What follows from the specification and the target before any code is written."""

    def __init__(self, module: Module, spec: Matmul) -> None:
        target = module.target
        self.tile = tile_for(target, spec.accumulator)
        self.open_depth = not isinstance(spec.k, int)
        self.stages = _stages(spec, self.tile)
        if not spec.a_transposed and not isinstance(spec.k if self.stages else spec.row_a, int):
            self.tile = replace(self.tile, rows=min(self.tile.rows, _FAR_ROWS))
        self.integer = integer_plan(target, spec) if spec.integer else None
        self.group = self.integer.group if self.integer else 1
        if self.group == 2 and target.is_arm:  # widened products are pairs of registers
            self.tile = replace(self.tile, rows=min(self.tile.rows, _WIDE_ROWS))
        if spec.small:
            self.tile = replace(self.tile, rows=min(self.tile.rows, _PAIR_ROWS))
        # LLVM reassociates integer sums across unrolled steps, and then spills.
        self.unroll = 1 if self.group == 2 or spec.small else UNROLL
        several = isinstance(spec.m, int) and spec.m > _REPACK_TILES * self.tile.rows
        self.copies_b = spec.b_layout == "columns" or (spec.b_layout == "rows" and several)
        self.depths = [Depth(0, spec.k, True, True)]
        if isinstance(spec.k, int) and not spec.integer:
            blocks = depth_blocks(spec, target, self.tile)
            self.depths = [Depth(at, size, at == 0, at == blocks[-1][0]) for at, size in blocks]
        few = self.stages and self.open_depth
        self.block_tiles = max(1, (_FEW_ROWS if few else _BLOCK_ROWS) // self.tile.rows)


def _stages(spec: Matmul, tile: Tile) -> bool:
    """Whether blocks of A are copied first: to convert them, or to lie better."""
    return (spec.a != spec.accumulator or spec.prologue is not None or _collides(spec, tile))


def _collides(spec: Matmul, tile: Tile) -> bool:
    """Whether the lines of A that a tile reads together are more than a cache set can hold."""
    several = tile.rows > _WAYS and (not isinstance(spec.m, int) or spec.m > tile.rows)
    line = spec.row_a
    return several and isinstance(line, int) and line > 0 and line * spec.a.size % _PAGE == 0
