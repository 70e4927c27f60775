"""Re-record a graph in the open builder, opening composites where the builder says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from ..errors import OperatorError
from ..ir.graph import Builder, Graph, Node, Value, current
from ..ops.library import REGISTRY
from .clone import keep_names


def inline(graph: Graph, args: Sequence[Value], outer: Mapping[Value, Value] | None = None
           ) -> tuple[Value, ...]:
    """Record the nodes of `graph` on `args`, its inputs and then its parameters.

    Captured values are read through `outer`, and stay themselves where it lacks them. Source
    locations and names are kept. Gives the values of the outputs.
    """
    leaves = (*graph.inputs, *graph.params)
    if len(leaves) != len(args):
        raise OperatorError(f"graph {graph.name} has {len(leaves)} inputs and parameters, "
                            f"got {len(args)} values")
    env = {v: (outer or {}).get(v, v) for v in graph.captures}
    env.update(zip(leaves, args, strict=True))
    builder = current()
    before = builder.loc
    for node in graph.nodes:
        builder.loc = node.loc or before or ""
        outputs = apply_node(node, [env[v] for v in node.inputs], env)
        keep_names(node.outputs, outputs)
        env.update(zip(node.outputs, outputs, strict=True))
    builder.loc = before
    return tuple([env[v] for v in graph.outputs])


def apply_node(node: Node, inputs: Sequence[Value], env: Mapping[Value, Value] | None = None
               ) -> tuple[Value, ...]:
    """Call the operator of `node` on other inputs; its regions read captures through `env`."""
    op = REGISTRY[node.op]
    split = len(inputs) - len(node.keys)
    named = dict(zip(node.keys, inputs[split:], strict=True))
    regions = {k: partial(_region, g, env or {}) for k, g in node.regions.items()}
    out = op(*op.group(inputs[:split]), **named, **node.attrs, **regions)
    return (out,) if isinstance(out, Value) else tuple(cast("Sequence[Value]", out))


def _region(g: Graph, outer: Mapping[Value, Value], *args: Value) -> tuple[Value, ...]:
    return inline(g, args, outer)


def record_leaves(b: Builder, graph: Graph) -> list[Value]:
    """Give the open graph the inputs and parameters of `graph`."""
    args = [b.input(v.name, v.type) for v in graph.inputs]
    return args + [b.input(v.name, v.type, param=True) for v in graph.params]


def decompose(graph: Graph, keep: Callable[[Node], bool] = lambda _: False) -> Graph:
    """Open every composite, at any depth, that `keep` does not claim."""
    with Builder(graph.name, lambda node: not keep(node)) as b:
        return b.finish(inline(graph, record_leaves(b, graph)), graph.output_names)
