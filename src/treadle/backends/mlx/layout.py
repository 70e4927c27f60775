"""Images with their channels last, as MLX's convolutions want them.

A convolution leaves its result that way; what follows it element by element, pools, joins and pads
it stays so. All else sees the channels on axis 1 through a transposed view.
"""

from __future__ import annotations

import mlx.core as mx

from ...ir.graph import Node


def last(x: mx.array) -> mx.array:
    """[N, C, spatial..] with the channels last."""
    return mx.moveaxis(x, 1, -1)


def first(x: mx.array) -> mx.array:
    """The inverse of `last`."""
    return mx.moveaxis(x, -1, 1)


def spread(x: mx.array, rank: int) -> mx.array:
    """An operand that broadcasts to images of a rank, its channels last."""
    full = (*[1] * (rank - x.ndim), *x.shape)
    if x.size == full[1]:  # one number for each channel stays in one piece
        return mx.reshape(x, (*[1] * (rank - 1), x.size))
    return last(mx.reshape(x, full) if x.ndim < rank else x)


def moved(axis: int, rank: int) -> int:
    """Where an axis lies when the channels are last."""
    at = axis % rank
    return at if at == 0 else rank - 1 if at == 1 else at - 1


def rank_of(node: Node) -> int:
    """The rank of the images that a node makes; 0 if it makes others besides."""
    ranks = {v.type.rank for v in node.outputs}
    return ranks.pop() if len(ranks) == 1 else 0
