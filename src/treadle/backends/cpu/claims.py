"""Which operators have native code, and why others have none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...codegen.llvm.scalars import holds
from ...declare.opdef import infer
from ...errors import Declined
from ...ir.graph import Node, Value
from ...ir.types import F32, DType
from ...memory.views import RULES, View, follow, whole
from ...ops.library import REGISTRY
from ..base import Claim
from . import (
    attention,
    convolution,
    epilogues,
    integer_products,
    movement,
    pointwise,
    products,
    recurrence,
    reductions,
    scatter,
    sorting,
)
from .counted import as_scan
from .lowered import Lowered
from .pointwise import Lowering

LOWERINGS: dict[str, Lowering] = {
    **pointwise.LOWERINGS, **movement.LOWERINGS, **reductions.LOWERINGS, **scatter.LOWERINGS,
    **sorting.LOWERINGS, **attention.LOWERINGS, **convolution.POOLS, **recurrence.LOWERINGS}
"""Lowerings by operator; elementwise operators share one."""
PACKING = {**products.LOWERINGS, **integer_products.LOWERINGS, **convolution.LOWERINGS,
           "fused": epilogues.group}
"""Lowerings that pack parameters."""
KNOWN = frozenset({"shape_of"})
"""Operators that need only the sizes of their operands."""


def lowering(node: Node) -> Lowering | None:
    """The lowering of an operator, which may still decline."""
    if REGISTRY[node.op].kind == "elementwise":
        return pointwise.elementwise
    return LOWERINGS.get(node.op)


def lower(node: Node, ins: Sequence[View], outs: Sequence[View],
          fixed: Collection[Value] = ()) -> list[Lowered]:
    """The kernels of a node; raises `Declined` with the reason. `fixed` are the parameters."""
    if (packing := PACKING.get(node.op)) is not None:
        return packing(node, ins, outs, fixed)
    found = lowering(node)
    if found is None and node.regions:
        why = CONTROL[node.op][0](node) if node.op in CONTROL else ""
        raise Declined(why or "chooses and repeats programs of its regions")
    if found is None:
        raise Declined(f"{node.op} has no native lowering yet")
    return found(node, ins, outs)


def writes_anywhere(node: Node) -> bool:
    """Whether the kernels of a node write outputs of any strides."""
    loops = {**pointwise.LOWERINGS, **movement.LOWERINGS, **reductions.LOWERINGS}
    return node.op != "concat" and (
        node.op in loops or REGISTRY[node.op].kind == "elementwise" or (
            node.op == "fused" and epilogues.head_of(node.regions["body"]) is None)) and (
        not is_leaf(node) and not is_view(node))


def is_leaf(node: Node) -> bool:
    """Whether the outputs follow from attributes and sizes alone."""
    return node.op in KNOWN or (not node.inputs and not node.regions and not node.makes())


def is_view(node: Node) -> bool:
    """Whether the outputs are the operand's elements in place, or after one copy."""
    return node.op in RULES and holds(node.inputs[0].dtype)


_EXTREMES = frozenset({"max_pool", "min_pool"})
_WINDOWS = _EXTREMES | {"convolution", "transposed_convolution", "sum_pool"}


def widened(node: Node) -> DType | None:
    """The type in which windows of narrow elements are computed, with the same results.

    Halves accumulate in f32 anyway; every 8-bit number is exact in f32.
    """
    if node.op not in _WINDOWS:
        return None
    dtype = node.inputs[0].dtype
    half = dtype.sort == "float" and dtype.bits == 16
    byte = node.op in _EXTREMES and dtype.sort in ("int", "uint") and dtype.bits == 8
    return F32 if half or byte else None


def declined_branches(node: Node) -> str:
    """Why the host has to choose between the branches of an `if`, or nothing."""
    if made := sorted(node.makes()):
        return f"its branches give different sizes, {', '.join(made)}"
    values = [*node.outputs, *[v for g in node.regions.values() for v in g.captures]]
    strange = next((v.dtype for v in values if not holds(v.dtype)), None)
    if strange is not None:
        return f"no kernel reads {strange}"
    for inner in (n for g in node.regions.values() for n in g.nodes):
        if (found := claim(inner)).how != "native":
            return f"a branch runs {inner.op} on the host: {found.reason}"
    return ""


def _declined_body(node: Node) -> str:
    """Why the host has to run a loop, or nothing; a plain loop is looked at as a scan."""
    if node.op == "loop":
        try:
            node = as_scan(node).nodes[-1]
        except Declined as e:
            return e.message
    for inner in node.regions["body"].walk():
        if (found := claim(inner)).how != "native":
            return f"its body runs {inner.op} on the host: {found.reason}"
    return ""


_TURNS = "the kernels of its body, called again for every turn"
CONTROL: dict[str, tuple[Callable[[Node], str], str]] = {
    "if": (declined_branches, "the kernels of both branches; a run takes those of one"),
    "scan": (_declined_body, _TURNS), "loop": (_declined_body, _TURNS)}
"""Why control flow is not native, and what is said where it is."""


def claim(node: Node) -> Claim:
    """How a node runs on operands of its types."""
    if is_leaf(node):
        return Claim("native", "computed once for each binding of sizes")
    if is_view(node):
        moved = follow(node, whole(node.inputs[0])) is None
        return Claim("native", "a copy" if moved else "a view")
    if (control := CONTROL.get(node.op)) is not None and not control[0](node):
        return Claim("native", control[1])
    outs = node.outputs or [Value(t) for t in infer(node)]  # a call being recorded has none yet
    try:
        lower(node, [whole(v) for v in node.inputs], [whole(v) for v in outs])
    except Declined as e:
        kind = REGISTRY[node.op].kind
        return Claim("decomposed" if kind == "composite" else "host", e.message)
    return Claim("native")
