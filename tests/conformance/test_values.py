"""Every operator against its own declaration and an independent answer."""

from __future__ import annotations

import pytest

from tests.conformance.harness import CASES, Case, Device, assert_same, check_types, execute
from tests.conformance.oracle import answer, assert_close
from treadle.declare.opdef import infer
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
    text = print_graph(case.graph)
    again = parse_graph(text)
    assert print_graph(again) == text
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


def test_every_operator_has_an_independent_answer() -> None:
    without = sorted(REGISTRY.keys() - {c.op.name for c in ANSWERED})
    assert not without, f"no sample with expect=: {', '.join(without)}"
