"""Values, nodes, graphs, the builder and source locations."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.declare.arrays import blob
from treadle.errors import OperatorError
from treadle.ir.dims import sym
from treadle.ir.graph import Blob, Builder, Graph, Node, Value, trace
from treadle.ir.types import DTYPES, F32, parse_type
from treadle.ops.library import REGISTRY

F = parse_type("f32[n,4]")


def _nested() -> Graph:
    outer = Builder("g")
    x, y = outer.input("x", F), outer.input("y", F)
    body = Builder("b")
    made = body.emit(Node("add", (x, x), {}), [F])
    region = body.finish(made)
    outer.emit(Node("call", (y,), {}, regions={"body": region}), [F])
    return outer.finish(outer.graph.nodes[-1].outputs)


def test_regions_capture_what_they_read() -> None:
    g = _nested()
    x, y = g.inputs
    node = g.nodes[0]
    assert node.regions["body"].captures == (x,)
    assert list(node.uses()) == [y, x]
    assert [n.op for n in g.walk()] == ["call", "add"]
    assert g.free_values() == g.captures == ()


def test_optional_operands_are_the_last_inputs() -> None:
    a, b, c = (Value(F, n) for n in "abc")
    node = Node("f", (a, b, c), {}, keys=("mask",))
    assert node.operands() == ((a, b), {"mask": c})


def test_sizes_that_a_node_makes_and_reads() -> None:
    x = Value(F, "x")
    u = sym("u")
    node = Node("f", (x,), {"shape": (2 * u, sym("k")), "name": "s"})
    node.outputs = (Value(parse_type("f32[n,v]"), "", node),)
    assert node.reads() == {"u", "k"}
    assert node.makes() == {"v"}


def test_values_are_keys_by_identity() -> None:
    a, b = Value(F, "x"), Value(F, "x")
    assert a != b and len({a, b}) == 2
    assert repr(a) == "%x: f32[n,4]" and repr(Value(F)) == "%?: f32[n,4]"
    with pytest.raises(OperatorError, match="not known while tracing"):
        bool(a)


def test_equal_blobs_are_equal() -> None:
    a, b = blob(np.arange(4, dtype="f4")), blob(np.arange(4, dtype="f4"))
    assert a == b and hash(a) == hash(b) and a is not b
    assert a != blob(np.arange(4, dtype="i4"))
    assert a != blob(np.arange(4, dtype="f4").reshape(2, 2))
    assert a != blob(np.arange(1, 5, dtype="f4"))
    assert a != 3
    assert repr(a).startswith("Blob(f32[4], sha256=")
    assert blob(np.asfortranarray(np.ones((2, 3)))) == blob(np.ones((2, 3)))
    assert blob(np.array(["a", "b"])) == blob(np.array(["a", "b"], object))
    assert Blob(DTYPES["q4_0"], (32,), bytes(18)).type == parse_type("q4_0[32]")


def test_nodes_know_the_line_that_made_them() -> None:
    g = trace(lambda x: x + x, F)
    assert g.nodes[0].loc.startswith("test_graph.py:")
    with Builder("g") as b:
        x = b.input("x", F)
        with b.at("/layer.0/Add"):
            y = x + x
            with b.at(""):
                z = y + y
        w = z + z
    assert [v.producer.loc if v.producer else "" for v in (y, z)] == ["/layer.0/Add"] * 2
    assert w.producer is not None and w.producer.loc.startswith("test_graph.py:")


def test_builders_nest_and_restore() -> None:
    with Builder("outer") as outer:
        x = outer.input("x", F)
        with Builder("inner") as inner:
            y = inner.input("y", F)
            _ = y + y
        _ = x + x
    assert len(outer.graph.nodes) == len(inner.graph.nodes) == 1


def test_a_builder_is_closed_by_an_error() -> None:
    with pytest.raises(ZeroDivisionError), Builder("g"):
        raise ZeroDivisionError
    with pytest.raises(OperatorError, match="need an open builder"):
        _ = Value(F) + Value(F)


def test_values_of_another_graph_are_refused() -> None:
    stray = Value(F, "y")
    with pytest.raises(OperatorError, match=r"g uses %y: f32\[n,4\], a value of another graph"):
        trace(lambda x: x + stray, F, name="g")


def test_inputs_are_named_after_the_parameters() -> None:
    def model(tokens: Value, mask: Value) -> Value:
        return tokens + mask

    assert [v.name for v in trace(model, F, F).inputs] == ["tokens", "mask"]
    assert [v.name for v in trace(lambda *xs: xs[0] + xs[1], F, F).inputs] == ["x0", "x1"]
    assert trace(model, F, F).name == "model"


def test_numbers_take_the_dtype_of_the_value_beside_them() -> None:
    g = trace(lambda x: 2 * x, parse_type("f16[3]"))
    assert [str(v.type) for n in g.nodes for v in n.outputs] == ["f16[]", "f16[3]"]
    with pytest.raises(OperatorError, match=r"the constant 2.5 meets a i32 tensor"):
        trace(lambda x: x + 2.5, parse_type("i32[3]"))
    with pytest.raises(OperatorError, match="a NumPy array meets a graph value"):
        trace(lambda x: x + np.ones(3), parse_type("f32[3]"))


def test_every_python_operator_has_its_operator() -> None:
    def fn(x: Value, i: Value) -> tuple[Value, ...]:
        return (x + x, 1 + x, x - x, 1 - x, x * x, 2 * x, x / x, 1 / x, x // x, x % x, x**x, -x,
                x < x, x <= x, x > x, x >= x, i & i, i | i, i ^ i, ~i, i << i, i >> i)

    g = trace(fn, F, parse_type("i32[2]"))
    names = [v.producer.op for v in g.outputs if v.producer]
    assert names == ["add", "add", "sub", "sub", "mul", "mul", "div", "div", "floordiv", "mod",
                     "pow", "neg", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or",
                     "bitwise_xor", "bitwise_not", "shift_left", "shift_right"]
    assert set(names) <= REGISTRY.keys()
    assert F32 in {v.dtype for v in g.outputs}
