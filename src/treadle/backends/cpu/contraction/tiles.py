"""Register tiles and cache blocks by target."""

from __future__ import annotations

from ....codegen.llvm.target import Target
from ....codegen.llvm.text import Type
from ....records import dataclass
from .spec import Matmul

UNROLL = 4
_CHAINS = 8
"""Independent sums that keep two multiply-adds a cycle of latency 4 busy."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A block of C held in registers: at most `rows` by `vectors` vectors of `lanes`."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """Columns of one panel of B."""
        return self.vectors * self.lanes

    def splits(self, rows: int, vectors: int) -> int:
        """Partial sums per element that hide latency where a tile has few rows."""
        return next((s for s in (4, 2) if s * rows * vectors <= _CHAINS), 1)

    def streams(self, rows: int, vectors: int) -> int:
        """Places of B that a low tile reads side by side.

        One stream waits at each page. Measured on Zen 3: four are 1.5 times as fast for one or two
        rows, two are 1.1 times as fast for four, one is best for six.
        """
        live = rows * vectors
        return 4 if live <= 4 else 2 if live <= _CHAINS else 1


def tile_for(target: Target, accumulator: Type) -> Tile:
    """The tile that fills the registers without spilling; its columns decide how B is packed.

    6 x 2 vectors leave 4 of 16 registers for B and A. 13 x 2 leave 6 of 32; an embedded broadcast
    needs none for A, but with 14 LLVM spills where it moves loads of B ahead. 128-bit vectors take
    5 x 4 of 32.
    """
    lanes = target.lanes(accumulator)
    if target.vector_registers < 32:
        return Tile(6, 2, lanes)
    return Tile(13, 2, lanes) if target.vector_bytes == 64 else Tile(5, 4, lanes)


def depth_blocks(spec: Matmul, target: Target, tile: Tile) -> list[tuple[int, int]]:
    """(start, size) of the blocks of a known k, each but the last a multiple of the unrolling.

    A panel of B takes at most a quarter of the second-level cache. Sums between blocks rest in C,
    so only an accumulator-typed C allows more than one. A single row tile reads B once: whole
    panels then make one sequential stream.
    """
    assert isinstance(spec.k, int)
    single = isinstance(spec.m, int) and spec.m <= tile.rows
    if single or spec.c != spec.accumulator:
        return [(0, spec.k)]
    most = max(256, target.l2_bytes // 4 // (tile.columns * spec.b.size))
    count = max(1, -(-spec.k // most))
    size = -(-spec.k // count)
    size = max(size + -size % UNROLL, UNROLL)
    return [(at, min(size, spec.k - at)) for at in range(0, max(spec.k, 1), size)]
