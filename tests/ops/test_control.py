"""Regions: shapes that change, values that leave, and what is refused."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pytest

from treadle.declare import evaluate
from treadle.declare.hosts import join
from treadle.declare.opdef import infer
from treadle.errors import OperatorError, RunError
from treadle.ir.graph import Graph, trace
from treadle.ir.parser import parse_graph
from treadle.ir.types import DTYPES, parse_type
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY

V: TypeAlias = Any  # a graph value, as closures see it
OPS: V = REGISTRY
F32, I64 = DTYPES["f32"], DTYPES["i64"]


def record(fn: V, *types: str) -> Graph:
    """The graph of `fn`, checked, and the same after printing and reading."""
    graph = trace(fn, *map(parse_type, types))
    verify(graph, infer)
    again = parse_graph(str(graph))
    verify(again, infer)
    assert str(again) == str(graph)
    return graph


def run(graph: Graph, *arrays: object) -> list[Any]:
    return [a.tolist() for a in evaluate.run(graph, [np.asarray(a) for a in arrays], {}, {})]


def out_types(graph: Graph) -> list[str]:
    return [str(v.type) for v in graph.outputs]


def number(value: int) -> V:
    return OPS["full"](value=value, shape=(), dtype=I64)


def test_a_loop_may_change_the_shape_of_what_it_carries() -> None:
    def doubling(i: V, go: V, x: V) -> V:
        return go, OPS["concat"]([x, x], axis=0), OPS["cast"](i, dtype=F32)

    graph = record(lambda x, n: OPS["loop"]([x], trip=n, body=doubling, fresh="L"),
                   "f32[k]", "i64[]")
    assert out_types(graph) == ["f32[L_0_0]", "f32[L_n]"]
    assert run(graph, np.float32([2]), 2) == [[2.0] * 4, [0.0, 1.0]]
    assert run(graph, np.float32([2]), 0) == [[2.0], []]


def test_a_changed_size_reaches_what_depends_on_it() -> None:
    """The second carried value takes the first one's shape, which changes."""
    def body(i: V, go: V, x: V, y: V) -> V:
        return go, OPS["concat"]([x, x], axis=0), x * 2.0

    graph = record(lambda x: OPS["loop"]([x, x], trip=number(3), body=body, fresh="L"), "f32[2]")
    assert out_types(graph) == ["f32[L_0_0]", "f32[L_1_0]"]
    assert [len(a) for a in run(graph, np.float32([1, 2]))] == [16, 8]


def test_the_body_s_condition_counts_only_when_one_is_given() -> None:
    def body(i: V, go: V, x: V) -> V:
        return x < 4.0, x * 2.0

    forever = record(lambda x: OPS["loop"]([x], trip=number(5), body=body), "f32[]")
    assert run(forever, np.float32(1)) == [32.0]
    graph = record(lambda x, go: OPS["loop"]([x], trip=number(5), keep_going=go, body=body),
                   "f32[]", "bool[]")
    assert run(graph, np.float32(1), True) == [8.0]
    assert run(graph, np.float32(1), False) == [1.0]


def test_nested_regions_read_outer_values_and_sizes() -> None:
    def outer(i: V, go: V, x: V) -> V:
        inner = OPS["loop"]([x], trip=i, body=lambda j, g, y: (g, OPS["concat"]([y, x], axis=0)),
                            fresh="inner")
        return go, OPS["concat"]([x, inner], axis=0)

    graph = record(lambda x: OPS["loop"]([x], trip=number(3), body=outer, fresh="outer"),
                   "f32[n]")
    assert len(run(graph, np.float32([1]))[0]) == 24  # sizes 1, 2, 6, 24


def test_a_loop_fills_a_sequence_whose_elements_grow() -> None:
    def body(i: V, go: V, x: V, seq: V) -> V:
        return go, OPS["concat"]([x, x], axis=0), OPS["sequence_insert"](seq, x)

    def fn(x: V, n: V) -> V:
        start = OPS["sequence_empty"](dtype=F32)
        _, seq = OPS["loop"]([x, start], trip=n, body=body, fresh="L")
        joined = OPS["concat_from_sequence"](seq, axis=0, fresh="all")
        return joined, OPS["sequence_length"](seq), OPS["sequence_at"](seq, n - 1, fresh="e")

    graph = record(fn, "f32[k]", "i64[]")
    assert out_types(graph) == ["f32[all_0]", "i64[]", "f32[e_0]"]
    assert run(graph, np.float32([1]), 3) == [[1.0] * 7, 3, [1.0] * 4]


def test_branches_may_give_different_sizes() -> None:
    def fn(p: V, x: V) -> V:
        return OPS["if"](p, then=lambda: (OPS["concat"]([x, x], axis=0), x),
                         orelse=lambda: (x, x * 2.0), fresh="I")

    graph = record(fn, "bool[]", "f32[n]")
    assert out_types(graph) == ["f32[I_0_0]", "f32[n]"]
    assert run(graph, True, np.float32([1])) == [[1.0, 1.0], [1.0]]
    assert run(graph, False, np.float32([1])) == [[1.0], [2.0]]


def test_a_size_made_in_a_branch_gets_a_new_name_outside() -> None:
    def branch(x: V) -> V:
        return OPS["nonzero"](x, names=("found",))

    graph = record(lambda p, x: OPS["if"](p, then=lambda: branch(x), orelse=lambda: branch(-x),
                                          fresh="I"), "bool[]", "f32[n]")
    assert out_types(graph) == ["i64[1,I_0_1]"]
    assert run(graph, True, np.float32([0, 3, 4])) == [[[1, 2]]]


def test_a_map_over_a_sequence_leaves_differing_sizes_open() -> None:
    def fn(x: V) -> V:
        seq = OPS["split_to_sequence"](x, parts=OPS["constant"](value=np.array([1, 2])))
        return OPS["concat_from_sequence"](
            OPS["sequence_map"]([seq, x], body=lambda e, t: (OPS["concat"]([e, t], axis=0),),
                                fresh="m"), axis=0, fresh="c")

    assert run(record(fn, "f32[3]"), np.float32([1, 2, 3])) == [
        [1.0, 1.0, 2.0, 3.0, 2.0, 3.0, 1.0, 2.0, 3.0]]


def test_while_and_scan() -> None:
    graph = record(lambda x: OPS["while"]([x], body=lambda v: v * 2.0, cond=lambda v: v < 50.0),
                   "f32[]")
    assert run(graph, np.float32(3)) == [96.0]
    graph = record(lambda c, x: OPS["scan"]([c, x], body=lambda a, b: (a + b, a), carried=1),
                   "f32[]", "f32[n]")
    assert out_types(graph) == ["f32[]", "f32[n]"]
    assert run(graph, np.float32(1), np.float32([1, 2])) == [4.0, [1.0, 2.0]]
    assert run(graph, np.float32(1), np.float32([])) == [1.0, []]


REFUSED = {
    "fresh=": lambda x: OPS["loop"]([x], trip=number(1), body=lambda i, g, v: (
        g, OPS["concat"]([v, v], axis=0))),
    "dtype and rank": lambda x: OPS["loop"]([x], trip=number(1), fresh="L", body=lambda i, g, v: (
        g, OPS["reshape"](v, shape=(1, 2)))),
    "for 1 carried": lambda x: OPS["loop"]([x], trip=number(1), body=lambda i, g, v: g),
    "outputs": lambda x: OPS["if"](OPS["any"](x > 0.0, axes=(0,)),
                                   then=lambda: (x, x), orelse=lambda: x),
    "the predicate": lambda x: OPS["if"](x, then=lambda: x, orelse=lambda: x),
    "needs `length`": lambda x: OPS["scan"]([x], body=lambda v: v, carried=1),
    "carried value 0": lambda x: OPS["scan"]([x], body=lambda v: v > 0.0, carried=1, length=2),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_is_refused(wrong: str) -> None:
    with pytest.raises(OperatorError, match=wrong):
        trace(REFUSED[wrong], parse_type("f32[2]"))


def test_a_wrong_length_is_a_run_error() -> None:
    graph = record(lambda x, n: OPS["loop"]([x], trip=n, length=3, body=lambda i, g, v: (g, v, v)),
                   "f32[]", "i64[]")
    with pytest.raises(RunError, match="ran 2 times, not 3"):
        run(graph, np.float32(1), 2)


@pytest.mark.parametrize(("a", "b", "both"), [
    ("seq(f32[2,3])[]", "seq(f32[2,4])[]", "seq(f32[2,_])[]"),
    ("seq(f32[2])[]", "seq(f32[2,4])[]", "seq(f32)[]"),
    ("seq(f32.none)[]", "seq(f32[n])[]", "seq(f32[n])[]"),
    ("opt(seq(f32[1])[])[]", "opt(seq(f32[2])[])[]", "opt(seq(f32[_])[])[]"),
    ("opt(seq(f32[1])[])[]", "seq(f32[2])[]", "opt(seq(f32[_])[])[]")])
def test_the_type_that_covers_two(a: str, b: str, both: str) -> None:
    assert str(join(parse_type(a), parse_type(b))) == both
    assert str(join(parse_type(b), parse_type(a))) == both
