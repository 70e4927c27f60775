"""Which operators have MLX lowerings, and why others have none."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import DeclarationError
from ...ir.graph import Node
from ...ops.library import REGISTRY
from ..base import Claim
from . import (
    attention,
    contraction,
    control,
    convolution,
    gates,
    gather,
    movement,
    norms,
    pools,
    quantized,
    recurrence,
    reductions,
    sorting,
    spectrum,
)
from .arrays import holds
from .expressions import ELEMENTWISE
from .lowering import Lowering

LOWERINGS: dict[str, Lowering] = {
    **movement.LOWERINGS, **reductions.LOWERINGS, **gather.LOWERINGS, **sorting.LOWERINGS,
    **contraction.LOWERINGS, **convolution.LOWERINGS, **pools.LOWERINGS, **spectrum.LOWERINGS,
    **control.LOWERINGS, **attention.LOWERINGS, **norms.LOWERINGS, **recurrence.LOWERINGS,
    **quantized.LOWERINGS, **gates.LOWERINGS}
"""Lowerings by operator; elementwise operators share one."""
KNOWN = frozenset({"shape_of"})
"""Operators that need only the sizes of their operands."""
if unknown := sorted(LOWERINGS.keys() - REGISTRY.keys()):
    raise DeclarationError(f"lowerings of operators that do not exist: {', '.join(unknown)}")


def is_leaf(node: Node) -> bool:
    """Whether the outputs follow from attributes and sizes alone."""
    return node.op in KNOWN or (not node.inputs and not node.regions and not node.makes())


def lowering(node: Node) -> Lowering | None:
    """The lowering of an operator, which may still refuse the node."""
    elementwise = REGISTRY[node.op].kind == "elementwise" and node.inputs
    return ELEMENTWISE if elementwise else LOWERINGS.get(node.op)


def refusal(node: Node) -> str:
    """Why a node does not run in MLX, or nothing."""
    if (found := lowering(node)) is None:
        return f"MLX has no {node.op}"
    for v in (*node.inputs, *node.outputs):
        if not holds(v.dtype):
            return f"MLX has no arrays of {v.dtype} on every device"
    if node.makes():
        return "sizes that its values decide"
    return found.refuse(node)


def claim(node: Node) -> Claim:
    """How a node runs on operands of its types."""
    if is_leaf(node):
        return Claim("native", "computed once for each binding of sizes")
    if not (why := refusal(node)):
        return Claim("native", _note(node))
    return Claim("decomposed" if REGISTRY[node.op].kind == "composite" else "host", why)


def _note(node: Node) -> str:
    found = lowering(node)
    return found.note if found else ""


def blockers(nodes: Iterable[Node]) -> list[str]:
    """Why a graph of these nodes cannot be traced as one, by node."""
    out = list[str]()
    for node in nodes:
        found = claim(node)
        if found.how != "native" or is_leaf(node):
            out += [f"{node.op} needs host data ({found.reason})"] if found.how != "native" else []
        elif why := control.blocker(node):
            out.append(why)
    return out
