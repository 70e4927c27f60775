"""Lowerings of pooling: sums and extremes of windows over planes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ....ir.graph import Node
from ....memory.views import View
from ..lowered import Lowered
from .geometry import Sizes, by_rows, element, windows
from .lowering import slide
from .planes import Fold, Planes

FOLDS: dict[str, Fold] = {"sum_pool": "sum", "max_pool": "max", "min_pool": "min"}


def pool(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """A fold of windows. What `ceil_mode` means lies in the sizes of the output."""
    before = list[Lowered]()
    kind = element(ins[0])
    x, y, sizes = by_rows(ins[0], before), outs[0], Sizes()
    made = windows(node, cast("tuple[int, ...]", node.attrs["kernel"]), x, y.shape, sizes)
    spec = Planes(FOLDS[node.op], sizes.extent(x.shape[0]), sizes.extent(x.shape[1]), 1,
                  tuple(made), sizes.extent(x.strides[0]), sizes.extent(x.strides[1]), kind)
    return [*before, slide(spec, sizes, [x, y])]


LOWERINGS = dict.fromkeys(FOLDS, pool)
"""Folds of windows by operator."""
