"""The standard passes keep every sample of every operator bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.conformance.harness import CASES, Case, assert_same, execute
from treadle.declare.arrays import Array, Encoded, type_of
from treadle.errors import TreadleError
from treadle.ir.graph import Graph, Node
from treadle.ir.types import TensorType
from treadle.passes.base import Context, Data
from treadle.passes.constant_fold import GENERATORS
from treadle.passes.pipeline import Pipeline

PIPELINE = Pipeline(verify=True)


class NoKernels:
    """A backend that has no composite at all."""

    def declines(self, node: Node) -> str:
        """Always."""
        return "no kernel"


def _params(case: Case) -> Graph:
    """The operator on parameters in place of inputs."""
    graph = case.trace(case.types)
    for i, v in enumerate(graph.inputs):
        v.name = f"p{i}"
    graph.inputs, graph.params = [], graph.inputs
    return graph


def _run(graph: Graph, data: Sequence[Array], params: dict[str, Data] | None = None
         ) -> tuple[Array, ...]:
    known = params or {}
    return execute(graph, [*data, *[known[v.name] for v in graph.params]])  # type: ignore[list-item]


@pytest.mark.parametrize("case", CASES, ids=[c.id for c in CASES])
def test_passes(case: Case) -> None:
    try:
        want = execute(case.graph, case.arrays)
    except TreadleError:
        with pytest.raises(TreadleError):
            _run(PIPELINE.run(case.graph).graph, case.arrays)
        return
    text = str(case.graph)
    assert_same(_run(PIPELINE.run(case.graph).graph, case.arrays), want)
    opened = PIPELINE.run(case.graph, Context(legaliser=NoKernels())).graph
    assert_same(_run(opened, case.arrays), want)
    assert str(case.graph) == text
    frozen = _params(case)
    ctx = Context({v.name: a for v, a in zip(frozen.params, case.arrays, strict=True)})
    folded = PIPELINE.run(frozen, ctx).graph
    assert_same(_run(folded, [], ctx.params), want)
    if _foldable(case.types, want) and not case.regions:
        assert {n.op for n in folded.nodes} <= {"constant", "full"} | GENERATORS, str(folded)


def _foldable(types: Sequence[TensorType], outputs: Sequence[Array]) -> bool:
    """Whether everything can be stored in the graph."""
    found = [*types, *[type_of(a) for a in outputs if not isinstance(a, Encoded)]]
    return all(t.dtype.sort not in ("block", "host") for t in found)
