"""Kernels for vectors that this processor lacks, which LLVM takes apart, as other ones run them.

The whole of tests/backends/cpu and tests/conformance runs so by hand with TREADLE_VECTOR_BYTES.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.cpu import test_random, test_recurrence
from treadle.codegen.llvm.target import describe, host


@pytest.fixture(params=[16, 64])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Another size of vectors, in this test alone."""
    monkeypatch.setenv("TREADLE_VECTOR_BYTES", str(request.param))
    host.cache_clear()
    yield request.param
    monkeypatch.undo()
    host.cache_clear()


def test_the_size_is_part_of_what_names_code(width: int) -> None:
    given = host()
    own = describe(given.triple, given.cpu, given.features)
    assert given.vector_bytes == width
    assert own.vector_bytes == width or own.key != given.key


@pytest.mark.parametrize("name", ["gated_delta halves", "gated by key", "linear", "delta"])
def test_linear_attention(width: int, name: str) -> None:  # noqa: ARG001 - the fixture acts
    test_recurrence.test_linear_attention_of_any_length_by_one_program(name)


def test_spans(width: int) -> None:  # noqa: ARG001 - the fixture acts
    test_recurrence.test_spans_hand_the_state_on(700, True, True)


def test_random_graphs(width: int) -> None:  # noqa: ARG001 - the fixture acts
    test_random.test_random_graphs(0)
