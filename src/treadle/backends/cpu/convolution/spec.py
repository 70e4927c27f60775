"""What a convolution kernel is asked to compute, and how it is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ....codegen.llvm.target import Target
from ....codegen.llvm.text import F32, Type
from ....records import dataclass
from ..contraction import Epilogue, Extent, Tile, tile_for
from ..contraction.tiles import UNROLL

_DEPTH = 256
"""Most steps of k in a block: a panel of so many is half of a first-level cache."""
_PANELS = 8
"""Panels that share a block of weights while it lies in the second-level cache."""
_GATHERED_FOR = 12
"""Tiles of filters for which a chunk is worth gathering its panels."""
_CHUNK_WORK, _MOST_CHUNKS = 1 << 20, 128


@dataclass(frozen=True, slots=True)
class Window:
    """Windows along one spatial axis: input position = output position * step + tap * gap - before.

    `line` is the distance of neighbours in the input, in elements.
    """

    size: Extent
    out: Extent
    line: Extent
    kernel: int
    step: int = 1
    gap: int = 1
    before: Extent = 0

    @property
    def trivial(self) -> bool:
        """Whether every output position reads the input at the same position."""
        return self.kernel == 1 and self.step == 1 and self.before == 0 and self.size == self.out

    def sizes(self) -> list[Extent]:
        """Sizes and strides that may be words."""
        return [self.size, self.out, self.line, self.before]


@dataclass(frozen=True, slots=True)
class Convolution:
    """y[n, g, f, o] = sum over t, c of w[g, f, t, c] * x[n, g, c, o * step + t * gap - before].

    `batch`, `groups`, then `filters` and `channels` of one group. y lies row by row; x has its own
    strides, of which the last axis has 1. `packed` weights are what `pack_filters` makes,
    others lie as (groups, filters, taps, channels).
    """

    batch: Extent
    groups: int
    filters: int
    channels: int
    windows: tuple[Window, ...]
    batch_line: Extent
    channel_line: Extent
    element: Type = F32
    packed: bool = True
    epilogue: Epilogue | None = None

    @property
    def taps(self) -> int:
        """Taps of a filter."""
        return prod([w.kernel for w in self.windows])

    @property
    def depth(self) -> int:
        """Products summed for an element: taps, channels fastest."""
        return self.taps * self.channels

    def run_time_words(self) -> list[str]:
        """Names of sizes and strides that each run supplies, in order of first use."""
        sizes = [self.batch, self.batch_line, self.channel_line]
        for w in self.windows:
            sizes += w.sizes()
        for operand in self.epilogue.operands if self.epilogue else ():
            sizes += operand.extents()
        return list(dict.fromkeys(s for s in sizes if isinstance(s, str)))

    def area(self) -> int | None:
        """Output positions of a channel, where they are known."""
        return known_product([w.out for w in self.windows])

    @property
    def direct(self) -> bool:
        """Whether panels of the input can be read where they lie: few filters read each once."""
        return self.filters <= 24 and len(self.windows) == 1 and self.windows[0].trivial


def known_product(sizes: Sequence[Extent]) -> int | None:
    """The product of sizes that are all known, else None."""
    if not all(isinstance(n, int) for n in sizes):
        return None
    return prod([n for n in sizes if isinstance(n, int)])


@dataclass(frozen=True, slots=True)
class Cut:
    """Register tiles of filters, panels of a block, blocks of k. Sizes alone decide."""

    tile: Tile
    row_tiles: int
    heights: tuple[int, ...]
    panels: int
    depths: tuple[tuple[int, int], ...]

    @property
    def height(self) -> int:
        """Rows that a packed tile of weights has room for."""
        return max(self.heights)

    def row(self, tile: int) -> int:
        """The first filter of a tile; the taller tiles come first."""
        return sum(self.heights[:tile])


def cut(spec: Convolution, target: Target) -> Cut:
    """How a convolution is cut on a target."""
    tile = tile_for(target, spec.element)
    count = max(1, -(-spec.filters // tile.rows))
    low, more = divmod(spec.filters, count)
    blocks = -(-spec.depth // _DEPTH)
    size = -(-spec.depth // blocks)
    size += -size % UNROLL
    depths = tuple([(at, min(size, spec.depth - at)) for at in range(0, spec.depth, size)])
    panels = _PANELS
    if (area := spec.area()) is not None:
        total = max(1, -(-area // tile.columns))
        panels = -(-total // -(-total // panels))
    return Cut(tile, count, (low + 1,) * more + (low,) * (count - more), panels, depths)


def scratch_bytes(spec: Convolution, plan: Cut) -> int:
    """Scratch memory of a lane: a gathered panel."""
    size = max(size for _, size in plan.depths)
    return size * plan.tile.columns * spec.element.size + 256


def chunks_for(spec: Convolution, plan: Cut, sizes: Mapping[str, int]) -> int:
    """Chunks for these run-time sizes."""
    batch, *outs = [sizes[n] if isinstance(n, str) else n for n in (
        spec.batch, *(w.out for w in spec.windows))]
    panels = -(-prod(outs) // plan.tile.columns)
    parts = max(1, plan.row_tiles // _GATHERED_FOR)
    units = batch * spec.groups * -(-panels // plan.panels) * parts
    work = batch * spec.groups * spec.filters * spec.depth * prod(outs)
    return max(1, min(units, work // _CHUNK_WORK, _MOST_CHUNKS))
