"""How much a graph computes and holds: FLOPs and bytes, as sizes or numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from ..declare.opdef import REGISTRY
from ..declare.scalar import walk
from ..ir.dims import Size, evaluate
from ..ir.graph import Graph, Node, Value
from ..ir.types import count


def _matmul(node: Node) -> Size:
    inner = node.inputs[0].type.shape[-1] if node.inputs[0].type.rank else 1
    return 2 * count(node.outputs[0].type.shape) * inner


def _conv(node: Node) -> Size:
    weight = node.inputs[1].type.shape
    return 2 * count(node.outputs[0].type.shape) * count(weight[1:])


def _conv_transpose(node: Node) -> Size:
    return 2 * count(node.inputs[0].type.shape) * count(node.inputs[1].type.shape[1:])


def _dot_general(node: Node) -> Size:
    shape = node.inputs[0].type.shape
    axes = cast("tuple[int, ...]", node.attrs["contract_a"])
    return 2 * count(node.outputs[0].type.shape) * count(tuple([shape[i] for i in axes]))


def _recurrent(node: Node) -> Size:
    """Both products of every step; the elementwise part is small beside them."""
    x, w, r = (node.inputs[i].type.shape for i in range(3))
    return 2 * x[0] * x[1] * (count(w) + count(r))


def _linear_attention(node: Node) -> Size:
    """What the recurrence does, token by token, whatever form it is computed in."""
    shapes, (q_heads, heads) = [v.type.shape for v in node.inputs], (
        cast(int, node.attrs[k]) for k in ("q_heads", "kv_heads"))
    n, t, dk, dv = *shapes[0][:2], shapes[0][2] // q_heads, shapes[2][2] // heads
    each = 2 + ("decay" in node.keys) + 2 * ("beta" in node.keys)
    return n * t * dk * dv * (heads * each + 2 * max(q_heads, heads))


def _causal_conv(node: Node) -> Size:
    return 2 * count(node.inputs[0].type.shape) * node.inputs[1].type.shape[2]


def _selective_scan(node: Node) -> Size:
    """A product and a function call for the decay, then h and y."""
    return count(node.inputs[0].type.shape) * (node.inputs[2].type.shape[1] * 7 + 1)


FLOPS: dict[str, Callable[[Node], Size]] = {
    "matmul": _matmul, "matmul_integer": _matmul, "grouped_matmul": _matmul,
    "quantized_matmul": _matmul, "quantized_grouped_matmul": _matmul,
    "dot_general": _dot_general, "conv": _conv, "convolution": _conv,
    "conv_transpose": _conv_transpose, "transposed_convolution": _conv_transpose,
    "lstm": _recurrent, "gru": _recurrent, "rnn": _recurrent,
    "dynamic_quantized_lstm": _recurrent, "linear_attention": _linear_attention,
    "causal_conv_with_state": _causal_conv, "selective_scan": _selective_scan}
"""Operators whose work is not proportional to their elements."""


def flops(node: Node) -> Size:
    """Arithmetic of one node: a multiply-add is 2, a function call is 1, integers count alike."""
    if (rule := FLOPS.get(node.op)) is not None:
        return rule(node)
    op = REGISTRY[node.op]
    if op.kind == "elementwise":
        roots = op.scalars(node.attrs, tuple([v.type.dtype for v in node.inputs]))
        work = sum(bool(s.args) and s.op != "cast" for s in walk(*roots))
        return work * count(node.outputs[0].type.shape)
    if op.kind == "composite":
        return graph_flops(op.body_graph(node))
    return count(node.inputs[0].type.shape) if op.kind == "reduction" else 0


def graph_flops(graph: Graph) -> Size:
    """FLOPs of a graph; of control flow, every region once."""
    total: Size = 0
    for node in graph.walk():
        total = total + flops(node)
    return total


def peak_bytes(graph: Graph, binding: Mapping[str, int]) -> int:
    """Most bytes of inputs and intermediate values alive at once, under a binding of symbols.

    Values are freed after their last use; views count as copies. Sizes that only data decides
    count as `binding` gives them, or 0.
    """
    last: dict[Value, int] = {}
    for i, node in enumerate(graph.nodes):
        last.update(dict.fromkeys((*node.uses(), *node.outputs), i))
    last.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    params = set(graph.params)
    alive = sum(_nbytes(v, binding) for v in graph.inputs)
    peak = alive
    for i, node in enumerate(graph.nodes):
        alive += sum(_nbytes(v, binding) for v in node.outputs)
        peak = max(peak, alive)
        alive -= sum(_nbytes(v, binding) for v in dict.fromkeys((*node.uses(), *node.outputs))
                     if last[v] == i and v not in params)
    return peak


def _nbytes(value: Value, binding: Mapping[str, int]) -> int:
    try:
        return evaluate(value.type.nbytes(), binding)
    except KeyError:
        return 0
