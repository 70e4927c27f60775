"""Check a graph's rules: SSA order, output links, captures, symbols, and types by a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..errors import OperatorError, VerifyError
from .dims import symbols
from .graph import Graph, Node, Value
from .types import TensorType

Infer = Callable[[Node], Sequence[TensorType]]


def verify(graph: Graph, infer: Infer | None = None) -> None:
    """Raise VerifyError for the first broken rule; `infer` re-derives each node's types."""
    _verify(graph, infer, set(), set())


def type_symbols(values: Iterable[Value]) -> set[str]:
    """Every size symbol in the types of `values`."""
    return {s for v in values for d in v.type.shape for s in symbols(d)}


def _verify(graph: Graph, infer: Infer | None, outer: set[Value], sizes: set[str]) -> None:
    if not set(graph.captures) <= outer:
        raise VerifyError(f"graph {graph.name} captures values that are not in scope")
    if graph.output_names and len(graph.output_names) != len(graph.outputs):
        raise VerifyError(f"graph {graph.name} names {len(graph.output_names)} of "
                          f"{len(graph.outputs)} outputs")
    known = {*graph.inputs, *graph.params, *graph.captures}
    if len(known) != len(graph.inputs) + len(graph.params) + len(graph.captures):
        raise VerifyError(f"graph {graph.name} lists an input twice")
    sizes = sizes | type_symbols(known)
    for node in graph.nodes:
        _verify_node(node, known, sizes)
        for region in node.regions.values():
            _verify(region, infer, known, sizes)
        if infer:
            _verify_types(node, infer)
        known.update(node.outputs)
        sizes |= type_symbols(node.outputs)
    if set(graph.free_values()) != set(graph.captures):
        raise VerifyError(f"graph {graph.name} lists other captures than the values it reads",
                          hint="recompute captures with free_values()")


def _verify_node(node: Node, known: set[Value], sizes: set[str]) -> None:
    if len(set(node.keys)) != len(node.keys) or len(node.keys) > len(node.inputs):
        raise VerifyError(f"{node.op} names its optional operands {', '.join(node.keys)}, but "
                          f"has {len(node.inputs)} operands")
    if unknown := [v for v in node.uses() if v not in known]:
        raise VerifyError(f"{node.op} reads {unknown[0]!r}, neither made before nor captured",
                          hint="keep nodes in order; recompute captures with free_values()")
    if unmade := sorted(node.reads() - sizes):
        raise VerifyError(f"{node.op} needs the size {unmade[0]} before it is known")
    for i, out in enumerate(node.outputs):
        if out.producer is not node or out.index != i or out in known:
            raise VerifyError(f"output {i} of {node.op} is not linked to it")


def _verify_types(node: Node, infer: Infer) -> None:
    try:
        want = tuple(infer(node))
    except OperatorError as e:
        raise VerifyError(e.message, hint=e.hint) from None
    got = tuple(v.type for v in node.outputs)
    if want != got:
        raise VerifyError(f"{node.op} claims {', '.join(map(str, got))} "
                          f"but its rule gives {', '.join(map(str, want))}")
