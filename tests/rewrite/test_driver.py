"""Matching and applying equations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from treadle.errors import DeclarationError
from treadle.ir.graph import Graph, Value, trace
from treadle.ir.types import parse_type
from treadle.ops.library import REGISTRY as OPS
from treadle.rewrite.driver import FIRINGS, Driver
from treadle.rewrite.pattern import EQUATIONS, Equation, op, rule
from treadle.transforms.clone import rebuild

Rule = Callable[..., Equation]


@pytest.fixture
def local() -> Iterator[Rule]:
    """`rule` for equations that the test forgets."""
    before = dict(EQUATIONS)
    yield rule
    EQUATIONS.clear()
    EQUATIONS.update(before)


def apply(equation: Equation, fn: Callable[..., object], *types: str) -> tuple[Graph, Driver]:
    driver = Driver([equation], "fast")
    return rebuild(trace(fn, *map(parse_type, types)), driver.visit), driver


def test_a_repeated_variable_means_one_value(local: Rule) -> None:
    same = local("t", lambda x: x * x, lambda x: op.exp(x))
    assert apply(same, lambda x, y: x * x, "f32[n]", "f32[n]")[1].fired
    assert not apply(same, lambda x, y: x * y, "f32[n]", "f32[n]")[1].fired


def test_commutative_operators_match_in_either_order(local: Rule) -> None:
    made = local("t", lambda x, y: op.exp(x) + y, lambda x, y: x - y)
    assert apply(made, lambda x, y: OPS["exp"](x) + y, "f32[n]", "f32[n]")[1].fired
    graph, driver = apply(made, lambda x, y: y + OPS["exp"](x), "f32[n]", "f32[n]")
    assert driver.fired and graph.nodes[-1].inputs == tuple(graph.inputs)
    ordered = local("u", lambda x, y: op.exp(x) - y, lambda x, y: x + y)
    assert not apply(ordered, lambda x, y: y - OPS["exp"](x), "f32[n]", "f32[n]")[1].fired


@pytest.mark.parametrize(("number", "fires"), [(0.0, True), (-0.0, False), (1.0, False)])
def test_numbers_tell_the_zeros_apart(local: Rule, number: float, fires: bool) -> None:
    made = local("t", lambda x: x + 0.0, lambda x: x)
    assert bool(apply(made, lambda x: x + number, "f32[n]")[1].fired) is fires


def test_unwritten_attributes_have_their_defaults(local: Rule) -> None:
    made = local("t", lambda x: op.leaky_relu(x), lambda x: op.relu(x))
    assert apply(made, lambda x: OPS["leaky_relu"](x), "f32[n]")[1].fired
    assert not apply(made, lambda x: OPS["leaky_relu"](x, alpha=0.5), "f32[n]")[1].fired


def test_a_result_of_another_type_is_not_used(local: Rule) -> None:
    made = local("t", lambda x, y: x * y, lambda x: x)
    graph, driver = apply(made, lambda x, y: x * y, "f32[3]", "f32[2,3]")
    assert not driver.fired and [n.op for n in graph.nodes] == ["mul"]


def test_a_right_side_that_does_not_fit_is_reported(local: Rule) -> None:
    made = local("t", lambda x: op.exp(x), lambda x: op.reshape(x, shape=(7,)))
    graph, driver = apply(made, lambda x: OPS["exp"](x), "f32[3]")
    assert [n.op for n in graph.nodes] == ["exp"] and not driver.fired
    assert next(iter(driver.stopped)).startswith("t: reshape(f32[3])")


def test_what_a_right_side_records_is_rewritten_too_up_to_a_bound(local: Rule) -> None:
    grow = local("t", lambda x: op.exp(x), lambda x: op.exp(x + 1.0))
    graph, driver = apply(grow, lambda x: OPS["exp"](x), "f32[3]")
    assert driver.fired["t"] == FIRINGS and driver.stopped
    assert [n.op for n in graph.nodes].count("exp") == 1


def test_locations_and_names_carry_over(local: Rule) -> None:
    from treadle.ir.graph import Builder

    made = local("t", lambda x: op.exp(x), lambda x: op.sqrt(x) + op.sqrt(x))
    with Builder("g") as b, b.at("layer.3"):
        y = OPS["exp"](b.input("x", parse_type("f32[n]")))
        assert isinstance(y, Value)
        y.name = "scores"
        graph = b.finish(y, ["out"])
    new = rebuild(graph, Driver([made]).visit)
    assert {n.loc for n in new.nodes} == {"layer.3"}
    assert new.outputs[0].name == "scores" and new.output_names == ("out",)


def test_the_domain_selects(local: Rule) -> None:
    fast = local("t", lambda x: op.exp(x), lambda x: x, domain="fast")
    graph = trace(lambda x: OPS["exp"](x), parse_type("f32[n]"))
    assert rebuild(graph, Driver([fast], "finite").visit) is graph
    assert not rebuild(graph, Driver([fast], "fast").visit).nodes


@pytest.mark.parametrize(("left", "right", "message"), [
    (lambda x: x, lambda x: x, "no operator"),
    (lambda x: op.exp(x), lambda y: y, "'y', which its left side does not bind"),
    (lambda x: op.nonsense(x), lambda x: x, "'nonsense', which is no operator"),
    (lambda x: op.exp(x, base=2), lambda x: x, "an attribute 'base'"),
    (lambda x: op.transpose(x), lambda x: x, "lacks the attribute 'perm'")])
def test_wrong_declarations(local: Rule, left: object, right: object, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        local("t", left, right)
    local("u", lambda x: op.exp(x), lambda x: x)
    with pytest.raises(DeclarationError, match="declared twice"):
        local("u", lambda x: op.exp(x), lambda x: x)
