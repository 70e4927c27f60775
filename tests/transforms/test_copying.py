"""Copying, inlining, opening composites and binding sizes."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.declare import evaluate
from treadle.declare.opdef import infer
from treadle.errors import OperatorError
from treadle.ir.graph import Builder, Graph, Value, trace
from treadle.ir.printer import print_graph
from treadle.ir.types import parse_type
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY as OPS
from treadle.transforms.clone import bind_sizes, clone, rebuild
from treadle.transforms.inline import decompose, inline


def small() -> Graph:
    """A graph with regions, captures, a variadic operator and an optional operand."""
    def fn(x: Value, y: Value) -> tuple[Value, ...]:
        both = OPS["concat"]([x, y], axis=0)
        out = OPS["if"](OPS["gt"](OPS["sum"](y, axes=(0,)), 0.0),
                        then=lambda: (OPS["exp"](both),), orelse=lambda: (both,))
        two = OPS["full"](value=2.0, shape=(), dtype=x.dtype)
        return out, OPS["pad"](x, pads=(1, 1), fill=two)  # type: ignore[return-value]

    return trace(fn, parse_type("f32[n]"), parse_type("f32[n]"))


def named(graph: Graph) -> Graph:
    graph.output_names = tuple(f"out{i}" for i in range(len(graph.outputs)))
    graph.nodes[0].outputs[0].name = "joined"
    return graph


def test_a_clone_prints_the_same_and_shares_nothing() -> None:
    graph = named(small())
    copy = clone(graph)
    verify(copy, infer)
    assert print_graph(copy, locs=True) == print_graph(graph, locs=True)
    assert {*map(id, graph.walk())}.isdisjoint(map(id, copy.walk()))


def test_rebuild_without_a_change_gives_the_graph_itself() -> None:
    graph = small()
    assert rebuild(graph, lambda _: None) is graph


def test_inlining_keeps_names_locations_and_meaning() -> None:
    graph = named(small())
    with Builder(graph.name) as b:
        args = [b.input(v.name, v.type) for v in graph.inputs]
        copy = b.finish(inline(graph, args), graph.output_names)
    verify(copy, infer)
    assert print_graph(copy, locs=True) == print_graph(graph, locs=True)


def test_inlining_takes_every_leaf() -> None:
    with Builder("g") as b, pytest.raises(OperatorError, match="2 inputs and parameters, got 1"):
        inline(small(), [b.input("x", parse_type("f32[n]"))])


def test_decompose_opens_nested_composites_and_keeps_what_is_claimed() -> None:
    graph = trace(lambda x: OPS["softmax"](OPS["mean"](x, axes=(0,), keepdims=True)),
                  parse_type("f16[3,4]"))
    kinds = {OPS[n.op].kind for n in decompose(graph).walk()}
    assert "composite" not in kinds
    kept = decompose(graph, lambda node: node.op == "mean")
    assert [n.op for n in kept.walk()][0] == "mean"
    x = np.arange(12, dtype="f2").reshape(3, 4)
    np.testing.assert_array_equal(evaluate.run(graph, [x], {}, {})[0],
                                  evaluate.run(decompose(graph), [x], {}, {})[0])


def test_bound_sizes_reach_types_attributes_and_regions() -> None:
    def fn(x: Value) -> Value:
        flat = OPS["reshape"](x, shape=(x.shape[0] * 4,))
        return OPS["if"](OPS["gt"](OPS["sum"](flat, axes=(0,)), 0.0),  # type: ignore[return-value]
                         then=lambda: (OPS["expand"](flat, shape=(2, x.shape[0] * 4)),),
                         orelse=lambda: (OPS["full"](value=0.0, shape=(2, x.shape[0] * 4),
                                                     dtype=x.dtype),))

    bound = bind_sizes(trace(fn, parse_type("f32[n,4]")), {"n": 3})
    verify(bound, infer)
    assert str(bound.outputs[0].type) == "f32[2,12]" and "n" not in str(bound.inputs[0].type)
    assert not any(node.reads() for node in bound.walk())
