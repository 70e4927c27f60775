"""Graph text: printing, reading back, and what happens to text that is no graph."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ir.random_graphs import graph as random_graph
from treadle.declare.opdef import infer
from treadle.errors import ParseError
from treadle.ir.graph import Graph, Node, Value, trace
from treadle.ir.parser import parse_graph
from treadle.ir.printer import attr_text, print_graph
from treadle.ir.types import parse_type as ty
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY

Pairs = dict[Value, Value]


def assert_same(a: Graph, b: Graph, seen: Pairs | None = None) -> None:
    """`b` is `a` up to the names of inner values; the names of leaves and outputs are exact."""
    seen = {} if seen is None else seen
    assert a.name == b.name and a.output_names == b.output_names
    for xs, ys in ((a.inputs, b.inputs), (a.params, b.params)):
        assert [v.name for v in xs] == [v.name for v in ys]
        _match(xs, ys, seen)
    assert [seen[v] for v in a.captures] == list(b.captures)
    assert len(a.nodes) == len(b.nodes)
    for n, m in zip(a.nodes, b.nodes, strict=True):
        _assert_same_node(n, m, seen)
    assert [seen[v] for v in a.outputs] == list(b.outputs)


def _match(xs: Sequence[Value], ys: Sequence[Value], seen: Pairs) -> None:
    assert [v.type for v in xs] == [v.type for v in ys]
    assert [v.index for v in xs] == [v.index for v in ys]
    seen.update(zip(xs, ys, strict=True))


def _assert_same_node(n: Node, m: Node, seen: Pairs) -> None:
    assert (n.op, n.keys, n.loc) == (m.op, m.keys, m.loc)
    assert [seen[v] for v in n.inputs] == list(m.inputs)
    assert list(n.attrs) == list(m.attrs) and list(n.regions) == list(m.regions)
    for key, value in n.attrs.items():
        assert attr_text(value) == attr_text(m.attrs[key])
        assert value.__class__ is m.attrs[key].__class__
    for key, region in n.regions.items():
        assert_same(region, m.regions[key], seen)
    _match(n.outputs, m.outputs, seen)
    assert all(v.producer is m for v in m.outputs)


SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=400, deadline=None)
@given(SEEDS)
def test_text_reads_back_as_the_same_graph(seed: int) -> None:
    graph = random_graph(Random(seed))
    verify(graph)
    text = print_graph(graph, locs=True)
    again = parse_graph(text)
    assert_same(graph, again)
    verify(again)
    assert print_graph(again, locs=True) == text


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_damaged_text_is_a_graph_or_a_parse_error(seed: int) -> None:
    rng = Random(seed)
    text = print_graph(random_graph(rng), locs=True)
    for _ in range(8):
        try:
            parse_graph(_damage(text, rng))
        except ParseError as e:
            assert str(e).startswith("line ")


def _damage(text: str, rng: Random) -> str:
    i, j = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    match rng.randrange(5):
        case 0:
            return text[:i] + text[j:]
        case 1:
            return text[:j] + text[i:]
        case 2:
            return text[:i] + rng.choice('%"(){}[]<>,=@:1e9.-\\\n\0é²') + text[i:]
        case 3:
            words = text.split(" ")
            rng.shuffle(words)
            return " ".join(words)
        case _:
            return text[:i]


@given(st.text(max_size=80))
def test_any_text_is_a_graph_or_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError, match="^line "):
        parse_graph(text)


BAD = {
    "undefined": ("graph g(%x: f32[4]) {\n  %1: f32[4] = neg(%z)\n  return %1\n}",
                  "line 2: expected a value defined above, got '%z'\n  %1: f32[4] = neg(%z)"),
    "type": ("graph g(%x: f99[4]) {\n  return %x\n}", "line 1: not a dtype: 'f99'\n  graph g("),
    "size": ("graph g(%x: f32[4//0]) {\n  return %x\n}", "line 1: not a size: '4//0'\n  graph"),
    "twice": ("graph g(%x: f32[4], %x: f32[4]) {\n  return %x\n}",
              "line 1: expected a new %name, got '%x'"),
    "attribute": ("graph g() {\n  %0: f32[] = full() {value=?}\n  return %0\n}",
                  "line 2: expected an attribute value, got '?'"),
    "attribute twice": ("graph g() {\n  %0: f32[] = full() {v=1, v=2}\n  return %0\n}",
                        "line 2: expected name=, with a name not given before, got 'v'"),
    "operand order": ("graph g(%x: f32[]) {\n  %0: f32[] = f(mask=%x, %x)\n  return %0\n}",
                      "line 2: expected name=, with a name not given before, got '%x'"),
    "operand twice": ("graph g(%x: f32[]) {\n  %0: f32[] = f(m=%x, m=%x)\n  return %0\n}",
                      "line 2: expected name=, with a name not given before, got 'm'"),
    "blob": ("graph g() {\n  %0: u8[1] = c() {v=blob<u8[1] é>}\n  return %0\n}",
             "line 2: the bytes of blob u8[1] are not base64"),
    "blob digest": ("graph g() {\n  %0: u8[1] = c() {v=blob<u8[1] sha256:00>}\n  return %0\n}",
                    "line 2: the blob u8[1] was printed without its bytes"),
    "blob size": ("graph g() {\n  %0: u8[1] = c() {v=blob<u8[n] AA==>}\n  return %0\n}",
                  "line 2: the blob u8[n] has a symbolic size"),
    "complex": ("graph g() {\n  %0: c64[] = c() {v=complex(1.0,2.0,3.0)}\n  return %0\n}",
                "line 2: a complex number has two floating parts"),
    "long number": (f"graph g() {{\n  %0: i64[] = c() {{v={'9' * 5000}}}\n  return %0\n}}",
                    "line 2: expected an attribute value"),
    "rest": ("graph g(%x: f32[]) {\n  return %x\n}\nmore", "line 4: expected the end, got 'more'"),
    "cut": ("graph g(%x: f32[]) {\n  %0: f32[] = neg(", 
            "line 2: expected name=, with a name not given before, got ''"),
    "deep tuple": ("graph g() {\n  %0: f32[] = c() {v=" + "(" * 5000,
                   "line 2: expected at most 64"),
    "empty": ("", "line 1: expected 'graph', got ''"),
}


@pytest.mark.parametrize("name", BAD)
def test_parse_errors_show_the_line(name: str) -> None:
    text, want = BAD[name]
    with pytest.raises(ParseError) as e:
        parse_graph(text)
    assert str(e.value).startswith(want), str(e.value)


def test_regions_nested_too_deeply() -> None:
    text = "graph g() {\n" + "".join(f"%{i}: f32[] = c() b=graph g() {{\n" for i in range(99))
    with pytest.raises(ParseError, match="at most 64 levels of nesting"):
        parse_graph(text)


def test_large_blobs_can_be_left_out() -> None:
    g = trace(lambda: REGISTRY["constant"](value=np.arange(64, dtype="u1")))
    short = print_graph(g, blob_limit=8)
    assert "sha256:" in short and len(short) < 200
    assert parse_graph(str(g)).nodes[0].attrs == g.nodes[0].attrs


def test_traced_graphs_round_trip_with_types() -> None:
    def fn(x: Value, y: Value) -> tuple[Value, ...]:
        h = x * y + 1.0
        a, b = REGISTRY["map"]([x, y], expr="t0=exp(x0);add(mul(t0,x1),t0);mul(x0,2.0)")
        return REGISTRY["where"](h > x, a, b), h

    g = trace(fn, ty("f32[n,8]"), ty("f32[8]"))
    again = parse_graph(str(g))
    verify(again, infer)
    assert str(again) == str(g)
    assert str(g).startswith("graph fn(%x: f32[n,8], %y: f32[8]) {\n  %2: f32[n,8] = mul(%x, %y)\n")
