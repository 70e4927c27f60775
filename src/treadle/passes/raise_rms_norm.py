"""Find RMS normalisation that an exporter opened."""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Node, Value
from ..ops.leaves import full
from ..ops.norm import rms_norm
from ..records import dataclass
from .norm_forms import norm, record, squeezed
from .raising import Match, Near, Raise, Trail, View


@dataclass(frozen=True, slots=True)
class RaiseRmsNorm(Raise):
    """Records rms_norm over the last axes.

    Results differ by the rounding of one division and one product; halves round once instead of
    before the scale. Holds for every operand.
    """

    name: ClassVar[str] = "raise_rms_norm"
    anchors: ClassVar[frozenset[str]] = frozenset({"mul", "div"})

    def match(self, node: Node, view: View) -> Match:
        """The norm that ends in `node`."""
        trail = Trail(view, node)
        found = norm(node, trail)
        if found is None or found.var.centred:
            return None
        x, axes = found.var.x, found.var.axes
        if axes != tuple(range(axes[0], x.type.rank)):
            return Near(f"an RMS norm over the axes {axes} of {x.type}", trail.nodes)
        axis, shape = axes[0], x.shape[axes[0]:]

        def build(x: Value, gamma: Value | None, beta: Value | None) -> Value:
            assert beta is None
            scale = full(value=1.0, shape=shape, dtype=x.dtype) if gamma is None else (
                squeezed(gamma, shape))
            return rms_norm(x, scale, axis=axis - x.type.rank, eps=found.eps)

        return record("rms_norm", found, trail, build)
