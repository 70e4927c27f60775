"""Find layer normalisation that an exporter opened."""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Node, Value
from ..ops.leaves import full
from ..ops.norm import layer_norm, layer_norm_2d
from ..records import dataclass
from .norm_forms import Build, Norm, norm, record, squeezed
from .raising import Match, Near, Raise, Trail, View


@dataclass(frozen=True, slots=True)
class RaiseLayerNorm(Raise):
    """Records layer_norm over the last axes, and layer_norm_2d over axis 1.

    Results differ by the rounding of one division and one product. Holds for every operand. A
    variance written as E[x^2] - E[x]^2 loses all digits where the mean is much larger than the
    deviation, so it is replaced only when `moments` allows it.
    """

    name: ClassVar[str] = "raise_layer_norm"
    anchors: ClassVar[frozenset[str]] = frozenset({"add", "mul", "div"})
    moments: bool = False

    def match(self, node: Node, view: View) -> Match:
        """The norm that ends in `node`."""
        trail = Trail(view, node)
        found = norm(node, trail)
        if found is None or not found.var.centred:
            return None
        if found.var.moments and not self.moments:
            return Near("its variance is E[x^2] - E[x]^2, which rounds differently where the mean "
                        "is large (moments=True takes it)", trail.nodes)
        x, axes = found.var.x, found.var.axes
        if axes == tuple(range(axes[0], x.type.rank)):
            return record("layer_norm", found, trail, _rows(found))
        if axes == (1,) and found.gamma is not None:
            return record("layer_norm_2d", found, trail, _pixels(found))
        return Near(f"a layer norm over the axes {axes} of {x.type}", trail.nodes)


def _rows(found: Norm) -> Build:
    axis = found.var.axes[0]
    shape = found.var.x.shape[axis:]

    def build(x: Value, gamma: Value | None, beta: Value | None) -> Value:
        scale = full(value=1.0, shape=shape, dtype=x.dtype) if gamma is None else (
            squeezed(gamma, shape))
        shift = None if beta is None else squeezed(beta, shape)
        return layer_norm(x, scale, beta=shift, axis=axis - x.type.rank, eps=found.eps)

    return build


def _pixels(found: Norm) -> Build:
    shape = found.var.x.shape[1:2]

    def build(x: Value, gamma: Value | None, beta: Value | None) -> Value:
        assert gamma is not None
        shift = None if beta is None else squeezed(beta, shape)
        return layer_norm_2d(x, squeezed(gamma, shape), beta=shift, eps=found.eps)

    return build
