"""Every rule of the IR: one broken graph each, and what the message says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from treadle.declare.opdef import infer
from treadle.errors import VerifyError
from treadle.ir.graph import Builder, Graph, Node, Value, trace
from treadle.ir.parser import parse_graph
from treadle.ir.types import parse_type as ty
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY

F = ty("f32[n,4]")


def _pair() -> Graph:
    return trace(lambda x, y: (x + y) * y, F, F, name="g")


def _swapped() -> Graph:
    g = _pair()
    g.nodes.reverse()
    return g


def _foreign() -> Graph:
    g = _pair()
    g.outputs = (Value(F, "z"),)
    return g


def _top_level_capture() -> Graph:
    g = _pair()
    g.captures = (Value(F, "z"),)
    return g


def _unlisted_capture() -> Graph:
    g = parse_graph("graph g(%x: f32[n,4]) {\n  %1: f32[n,4] = f() body=graph b() captures(%x) {\n"
                    "    %2: f32[n,4] = neg(%x)\n    return %2\n  }\n  return %1\n}")
    g.nodes[0].regions["body"].captures = ()
    return g


def _capture_out_of_scope() -> Graph:
    text = ("graph g(%x: f32[]) {{\n  %1: f32[] = f(){}\n  %2: f32[] = neg(%x){}\n"
            "  return %1\n}}")
    body = " body=graph b() captures(%x) {\n    return %x\n  }"
    g = parse_graph(text.format(body, ""))
    region = g.nodes[0].regions["body"]
    region.captures = region.outputs = g.nodes[1].outputs
    return g


def _inner_value_read_outside() -> Graph:
    return parse_graph("""graph g(%x: f32[]) {
      %1: f32[] = while(%x) {max_iterations=1, fresh=""} body=graph b(%a: f32[]) {
        %2: f32[] = neg(%a)
        return %2
      } cond=graph c(%c: f32[]) {
        %3: bool[] = isnan(%c)
        return %3
      }
      %4: f32[] = neg(%2)
      return %4
    }""")


def _output_names() -> Graph:
    g = _pair()
    g.output_names = ("a", "b")
    return g


def _twice_an_input() -> Graph:
    g = _pair()
    g.inputs.append(g.inputs[0])
    return g


def _unlinked() -> Graph:
    g = _pair()
    g.nodes[0].outputs[0].producer = g.nodes[1]
    return g


def _wrong_index() -> Graph:
    g = _pair()
    g.nodes[0].outputs[0].index = 1
    return g


def _keys() -> Graph:
    g = _pair()
    g.nodes[0].keys = ("a", "b", "c")
    return g


def _unknown_size() -> Graph:
    with Builder("g") as b:
        b.input("x", F)
        node = Node("full", (), {"value": 1.0, "shape": ty("f32[m]").shape, "dtype": F.dtype})
        return b.finish(b.emit(node, [ty("f32[m]")]))


def _size_before_its_witness() -> Graph:
    def fn(k: Value) -> tuple[object, object]:
        w = REGISTRY["witness"](k, names=("u",))
        return w, REGISTRY["full"](value=1.0, shape=ty("f32[u]").shape, dtype=F.dtype)

    g = trace(fn, ty("i64[1]"), name="g")
    verify(g, infer)
    g.nodes.reverse()
    return g


def _wrong_type() -> Graph:
    return parse_graph("graph g(%x: f32[4]) {\n %1: f32[5] = neg(%x)\n return %1\n}")


def _too_few_outputs() -> Graph:
    return parse_graph('graph g(%x: f32[4]) {\n %1: f32[4] = map(%x) {expr="x0;x0"}\n'
                       " return %1\n}")


def _unknown_operator() -> Graph:
    return parse_graph("graph g(%x: f32[4]) {\n %1: f32[4] = nag(%x)\n return %1\n}")


def _refused() -> Graph:
    return parse_graph("graph g(%x: f32[4], %y: f32[3]) {\n %1: f32[4] = add(%x, %y)\n"
                       " return %1\n}")


def _text(line: str) -> Callable[[], Graph]:
    return lambda: parse_graph(f"graph g(%x: f32[4,4], %p: bool[]) {{\n  {line}\n  return %1\n}}")


BROKEN: dict[str, tuple[Callable[[], Graph], str]] = {
    "order": (_swapped, "mul reads %?: f32[n,4], neither made"),
    "foreign output": (_foreign, "graph g lists other captures than the values it reads"),
    "top-level capture": (_top_level_capture, "graph g captures values that are not in scope"),
    "unlisted capture": (_unlisted_capture, "neg reads %x: f32[n,4], neither made"),
    "capture out of scope": (_capture_out_of_scope, "f reads %?: f32[], neither made"),
    "inner value": (_inner_value_read_outside, "neg reads %?: f32[], neither made"),
    "output names": (_output_names, "graph g names 2 of 1 outputs"),
    "input twice": (_twice_an_input, "graph g lists an input twice"),
    "producer": (_unlinked, "output 0 of add is not linked to it"),
    "index": (_wrong_index, "output 0 of add is not linked to it"),
    "keys": (_keys, "add names its optional operands a, b, c, but has 2 operands"),
    "unknown size": (_unknown_size, "full needs the size m before it is known"),
    "early size": (_size_before_its_witness, "full needs the size u before it is known"),
    "type": (_wrong_type, "neg claims f32[5] but its rule gives f32[4]"),
    "outputs": (_too_few_outputs, "map claims f32[4] but its rule gives f32[4], f32[4]"),
    "operator": (_unknown_operator, "there is no operator 'nag'"),
    "operand count": (_text("%1: f32[4,4] = add(%x)"), "add: it takes 2 operands (a, b), got 1"),
    "variadic count": (_text('%1: f32[4,4] = concat() {axis=0}'), "concat"),
    "optional": (_text("%1: f32[4,4] = neg(%x, mask=%x)"),
                 "neg: its optional operands are none, in this order, got mask"),
    "optional order": (_text("%1: f32[4,4] = clip(%x, hi=%x, lo=%x)"),
                       "clip: its optional operands are lo, hi, in this order, got hi, lo"),
    "attribute missing": (_text("%1: f32[4,4] = softmax(%x)"),
                          "softmax: it lacks the attribute axis"),
    "attribute unknown": (_text("%1: f32[4,4] = neg(%x) {axis=0}"),
                          "neg: it does not know the attribute axis"),
    "attribute type": (_text('%1: f32[4,4] = softmax(%x) {axis="x"}'),
                       "softmax: attribute axis='x' is not int"),
    "region": (_text('%1: f32[4,4] = if(%p) {fresh=""} then=graph t() captures(%x) '
                     "{ return %x }"), "if: it lacks the region orelse"),
    "refused": (_refused, "add(f32[4], f32[3]): [4] and [3] do not broadcast"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_graph_is_refused(name: str) -> None:
    build, want = BROKEN[name]
    with pytest.raises(VerifyError) as e:
        verify(build(), infer)
    assert str(e.value).startswith(want), str(e.value)


def test_without_a_rule_types_are_not_checked() -> None:
    verify(_wrong_type())
    verify(_unknown_operator())


def test_a_sound_graph_passes() -> None:
    verify(_pair(), infer)
