"""Steps that are one call into MLX once their sizes are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from operator import getitem
from typing import TypeAlias, cast

import mlx.core as mx

from ...ir.graph import Node
from ...ops.windows import per_axis
from ...records import dataclass, field
from .arrays import on_gpu
from .layout import moved
from .reductions import BLOCK

Shape: TypeAlias = "tuple[int, ...]"
FULL = slice(None)


@dataclass(frozen=True, slots=True)
class Site:
    """A function called with the operands, then `args`, then `named`."""

    fn: Callable[..., object]
    args: tuple[object, ...] = ()
    named: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Place:
    """A node under a binding of sizes: attributes as numbers, shapes as the arrays lie."""

    node: Node
    attrs: Mapping[str, object]
    shapes: tuple[Shape, ...]
    out: Shape
    dtype: mx.Dtype
    turned: bool = False

    @property
    def exact(self) -> bool:
        """Whether MLX computes in f32, or on a GPU, where it accumulates so."""
        return self.dtype == mx.float32 or on_gpu()

    def ints(self, name: str) -> Shape:
        """An attribute that is a tuple of sizes."""
        return cast(Shape, self.attrs[name])


def _matmul(p: Place) -> Site | None:
    return Site(mx.matmul) if p.exact else None


def _reshape(p: Place) -> Site | None:
    return Site(mx.reshape, (p.out,)) if math.prod(p.out) == math.prod(p.shapes[0]) else None


def _transpose(p: Place) -> Site | None:
    perm = p.ints("perm")
    return Site(mx.transpose, (perm,)) if perm else None


def _squeeze(p: Place) -> Site | None:
    axes = p.ints("axes")
    ones = all(p.shapes[0][a] == 1 for a in axes)
    return Site(mx.squeeze, (axes,)) if axes and ones else None


def _unsqueeze(p: Place) -> Site | None:
    axes = p.ints("axes")
    return Site(mx.expand_dims, (axes,)) if axes else None


def _expand(p: Place) -> Site | None:
    return Site(mx.broadcast_to, (p.out,))


def _narrow(p: Place) -> Site | None:
    """The walk refuses a stretch that the axis does not have."""
    start, length = cast(int, p.attrs["start"]), cast(int, p.attrs["length"])
    axis = cast(int, p.attrs["axis"]) % len(p.shapes[0])
    if start < 0 or length < 0 or start + length > p.shapes[0][axis]:
        return None
    return Site(getitem, ((*[FULL] * axis, slice(start, start + length)),))


def _sum(p: Place) -> Site | None:
    """MLX's CPU may never end a fold of nothing."""
    n = len(p.shapes[0])
    axes = tuple([moved(a, n) if p.turned else a for a in p.ints("axes")])
    total = math.prod(p.shapes[0][a] for a in axes)
    if p.dtype != mx.float32 or not axes or 0 in p.shapes[0] or total > BLOCK and not on_gpu():
        return None
    return Site(mx.sum, (axes, cast(bool, p.attrs["keepdims"])))


def _convolution(p: Place) -> Site | None:
    """Shapes are channels last; the walk refuses windows that do not fit."""
    n, groups = len(p.shapes[0]) - 2, cast(int, p.attrs["groups"])
    steps = per_axis("strides", p.ints("strides"), n, 1)
    gaps, pads = per_axis("dilations", p.ints("dilations"), n, 1), per_axis(
        "pads", p.ints("pads"), 2 * n, 0)
    if not p.exact or min(pads, default=0) < 0 or min(p.out) < 1 or groups > 1 and n > 2:
        return None
    if {*p.shapes[1][2:], *steps, groups} == {1} and not any(pads):
        wide = (p.shapes[1][0], p.shapes[1][1])
        return Site(lambda x, w: mx.matmul(x, mx.reshape(w, wide).T))
    low, high = list(pads[:n]), list(pads[n:])
    return Site(mx.conv_general, (steps, (low, high), gaps, 1, groups))


def _attention(p: Place) -> Site | None:
    """Plain or causal; MLX aligns its causal mask to the last key."""
    a, (q, k) = p.attrs, p.shapes[:2]
    if not p.exact or p.node.keys or a["left"] is not None:
        return None
    by = 1.0 / math.sqrt(max(q[3], 1)) if a["scale"] is None else a["scale"]
    if a["right"] is None:
        return Site(mx.fast.scaled_dot_product_attention, (), {"scale": by})
    if a["right"] != 0 or a["start"] != k[2] - q[2] or q[2] > k[2]:
        return None
    return Site(mx.fast.scaled_dot_product_attention, (), {"scale": by, "mask": "causal"})


def _norm(p: Place) -> Site | None:
    if p.dtype != mx.float32 or any(v.dtype is not p.node.inputs[0].dtype for v in p.node.inputs):
        return None
    eps = cast(float, p.attrs["eps"])
    if p.node.op == "rms_norm":
        return Site(mx.fast.rms_norm, (eps,))
    return Site(mx.fast.layer_norm, (eps,) if p.node.keys else (None, eps))


SITES: Mapping[str, Callable[[Place], Site | None]] = {
    "matmul": _matmul, "reshape": _reshape, "transpose": _transpose, "squeeze": _squeeze,
    "unsqueeze": _unsqueeze, "expand": _expand, "narrow": _narrow, "sum": _sum,
    "convolution": _convolution, "attention": _attention, "rms_norm": _norm, "layer_norm": _norm}
"""By operator; None where a kernel has more to do than one call. Of images `TURNED` alone."""
TURNED = frozenset({"convolution", "sum"})
