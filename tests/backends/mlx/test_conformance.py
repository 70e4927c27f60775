"""Every operator of the registry on MLX, in every mode, against its independent answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import mlx.core as mx
import pytest

from tests.backends.mlx.running import compiled, twice
from tests.conformance.harness import CASES, Array, Case, check_types, execute, spread
from tests.conformance.oracle import answer, assert_close

TOLERANCES: dict[str, tuple[float, str]] = {
    "gelu": (2, "1 + erf(x) cancels, and MLX's sums of products round twice"),
    "erfc": (20, "MLX's exp on the CPU is 64 ulp off at large arguments")}
"""Operators that agree less closely than their samples ask: how many times less, and why."""


def agree(case: Case, got: Sequence[Array]) -> None:
    """Against the independent answer, or else the operator's own meaning; types too."""
    binding: dict[str, int] = {}
    meant = execute(case.graph, case.arrays, binding)
    check_types(case.graph.outputs, got, binding)
    wanted = answer(case) if case.sample.expect is not None else list(meant)
    if case.op.name in TOLERANCES:
        times = TOLERANCES[case.op.name][0]
        sample = dataclasses.replace(case.sample, rtol=case.sample.rtol * times)
        case = dataclasses.replace(case, sample=sample)
    assert_close(case, got, wanted)


@pytest.mark.parametrize("case", CASES, ids=[c.id for c in CASES])
def test_lazily(case: Case) -> None:
    for got in twice("lazy", case.graph, case.arrays):
        agree(case, got)


SOME = spread(CASES, 2)
"""Two samples of each operator."""
FUSED = ("gelu", "sum", "layer_norm", "gather", "conv", "if", "mod", "swiglu")
"""Operators whose traces go through MLX's compiler too: on the CPU it calls g++ for each kernel."""
ONE = [c for c in spread(CASES, 1) if c.op.name in FUSED]


@pytest.fixture
def without_fusion() -> Iterator[None]:
    """Traces run as they are."""
    mx.disable_compile()
    yield
    mx.enable_compile()


@pytest.mark.parametrize("case", SOME, ids=[c.id for c in SOME])
def test_one_by_one(case: Case) -> None:
    for got in twice("eager", case.graph, case.arrays):
        agree(case, got)


@pytest.mark.parametrize("case", SOME, ids=[c.id for c in SOME])
def test_traced(case: Case, without_fusion: None) -> None:
    agree(case, compiled(case.graph, case.arrays))


@pytest.mark.parametrize("case", ONE, ids=[c.id for c in ONE])
def test_compiled(case: Case) -> None:
    agree(case, compiled(case.graph, case.arrays))
