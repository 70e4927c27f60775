"""Every operator against its own declaration and an independent answer."""

from __future__ import annotations

import pytest

from tests.conformance.harness import CASES, Case, Device, assert_same, check_types, execute
from tests.conformance.oracle import answer, assert_close
from treadle.declare.derive import derivative, differentiable
from treadle.declare.opdef import infer
from treadle.declare.scalar_text import parse, text
from treadle.ir.parser import parse_graph
from treadle.ir.printer import print_graph
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY
from treadle.transforms.inline import decompose

each_case = pytest.mark.parametrize("case", CASES, ids=[c.id for c in CASES])
ANSWERED = [c for c in CASES if c.sample.expect is not None]


@each_case
def test_all_ways_to_run_agree(case: Case) -> None:
    """Eager, traced, read back and decomposed give the same bits, of the inferred types."""
    want = case.eager()
    printed = print_graph(case.graph)
    again = parse_graph(printed)
    assert print_graph(again) == printed
    for graph in (case.graph, again, decompose(case.graph)):
        verify(graph, infer)
        binding: dict[str, int] = {}
        got = execute(graph, case.arrays, binding)
        assert_same(got, want)
        check_types(graph.outputs, got, binding)


@pytest.mark.parametrize("case", ANSWERED, ids=[c.id for c in ANSWERED])
def test_the_answer_is_right(case: Case, device: Device) -> None:
    """The value against an answer that does not come from the body."""
    assert_close(case, device.run(case.graph, case.arrays), answer(case))


ELEMENTWISE = [c for c in CASES if c.op.kind == "elementwise"]


@pytest.mark.parametrize("case", ELEMENTWISE, ids=[c.id for c in ELEMENTWISE])
def test_expressions_and_their_derivatives_read_back(case: Case) -> None:
    """What fusion and gradients store in `map` nodes is the same expression again."""
    node = case.graph.nodes[-1]
    dtypes = tuple([v.dtype for v in node.inputs])
    roots = case.op.scalars(node.attrs, dtypes)
    for root in (*roots, *(derivative(r, i) for r in roots if differentiable(r.dtype)
                           for i, d in enumerate(dtypes) if differentiable(d))):
        assert parse(text(root), dtypes) == (root,)
    assert parse(text(*roots), dtypes) == roots


def test_every_operator_has_an_independent_answer() -> None:
    without = sorted(REGISTRY.keys() - {c.op.name for c in ANSWERED})
    assert not without, f"no sample with expect=: {', '.join(without)}"
