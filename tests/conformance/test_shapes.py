"""Symbolic sizes, empty axes and half precision, derived from the samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.conformance.harness import (
    CASES,
    Array,
    Case,
    assert_same,
    check_types,
    execute,
    spread,
)
from treadle.declare.arrays import np_dtype, type_of
from treadle.declare.opdef import infer
from treadle.errors import OperatorError, RunError
from treadle.ir.dims import Size, sym
from treadle.ir.graph import Graph
from treadle.ir.types import BF16, F16, F32, TensorType
from treadle.ir.verify import verify

OPERANDS = spread([c for c in CASES if any(d not in (0, 1) for t in c.types for d in t.shape)
                   and not any(t.dtype.sort == "block" for t in c.types)])
ids = [c.id for c in OPERANDS]
ANY_SIZE = {"elementwise", "reduction"}
"""Kinds whose rules accept any sizes, as long as equal ones stay equal."""


def _resized(case: Case, size: Callable[[int], Size]) -> list[TensorType]:
    """The operands' types with another size for every number but 0 and 1."""
    return [t.with_(shape=tuple([d if d in (0, 1) else size(int(str(d))) for d in t.shape]))
            for t in case.types]


def _sizes(case: Case) -> list[int]:
    return sorted({int(str(d)) for t in case.types for d in t.shape} - {0, 1})


def _symbolic(case: Case, chosen: set[int]) -> Graph | None:
    """The operator on symbols for the chosen sizes, or None where the type rule needs numbers."""
    try:
        return case.trace(_resized(case, lambda d: sym(f"s{d}") if d in chosen else d))
    except OperatorError:
        return None


@pytest.mark.parametrize("case", OPERANDS, ids=ids)
def test_symbolic_sizes_give_the_same_types_and_values(case: Case) -> None:
    """Each size as a symbol, then all of them: other types and other values are errors."""
    sizes = _sizes(case)
    traced = 0
    for chosen in [{d} for d in sizes] + ([set(sizes)] if len(sizes) > 1 else []):
        if (graph := _symbolic(case, chosen)) is None:
            continue
        traced += 1
        verify(graph, infer)
        binding: dict[str, int] = {}
        out = execute(graph, case.arrays, binding)
        check_types(graph.outputs, out, binding)
        assert_same(out, execute(case.graph, case.arrays))
    assert traced or case.op.kind not in ANY_SIZE


@pytest.mark.parametrize("case", OPERANDS, ids=ids)
def test_empty_axes_run_or_are_refused(case: Case) -> None:
    """Every size in turn as 0: a result of the inferred type, or an error that says why."""
    for size in _sizes(case):
        arrays = [_emptied(a, size) for a in case.arrays]
        try:
            graph = case.trace([type_of(a) for a in arrays])
        except OperatorError:
            assert case.op.kind != "elementwise"
            continue
        binding: dict[str, int] = {}
        try:
            out = execute(graph, arrays, binding)
        except RunError as e:
            assert "Error:" not in str(e), f"the body fails on size 0 in place of {size}: {e}"
            continue
        check_types(graph.outputs, out, binding)


def _emptied(a: Array, size: int) -> Array:
    return a[tuple([slice(0) if d == size else slice(None) for d in a.shape])]


HALVES = [c for c in CASES if c.op.kind == "elementwise" and not c.op.keep and c.sample.data is None
          and all(t.dtype is F32 for t in c.types)]


@pytest.mark.parametrize("case", HALVES, ids=[c.id for c in HALVES])
@pytest.mark.parametrize("half", [F16, BF16], ids=str)
def test_halves_compute_in_f32_and_round_once(case: Case, half: object) -> None:
    dtype = np_dtype(F16 if half is F16 else BF16)
    narrow = [a.astype(dtype) for a in case.arrays]
    got = case.eager(narrow)
    wide = case.eager([a.astype(np.float32) for a in narrow])
    assert_same(got, [a.astype(dtype) if a.dtype == np.float32 else a for a in wide])
