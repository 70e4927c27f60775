"""Branches on MLX: a trace computes both, but only the one that is taken can fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.backends.mlx.running import executable, normal
from treadle.config import MLX_MODES
from treadle.errors import RunError
from treadle.ops import gather, if_, inverse, sum_, topk


@pytest.fixture(autouse=True)
def unfused() -> Iterator[None]:
    """Traces run as they are: on the CPU MLX calls g++ for each kernel."""
    mx.disable_compile()
    yield
    mx.enable_compile()


@pytest.mark.parametrize("mode", MLX_MODES)
def test_an_index_matters_where_its_branch_is_taken(mode: str) -> None:
    """Also in a branch inside a branch."""
    def fn(p: Any, q: Any, x: Any, i: Any) -> Any:  # noqa: ANN401 - traced values
        def inner() -> Any:  # noqa: ANN401 - a traced value
            return if_(q, then=lambda: gather(x, i, axis=0), orelse=lambda: x * 3.0)

        return if_(p, then=inner, orelse=lambda: x * 2.0)

    exe = executable(fn, "bool[]", "bool[]", "f32[2]", "i64[2]", mode=mode)
    x = normal(2)
    for p, q, i in [(True, True, 1), (False, True, 9), (True, False, 9), (True, True, 9),
                    (False, False, 0)]:
        given = (np.array(p), np.array(q), x, np.full(2, i))
        if p and q and i > 1:
            with pytest.raises(RunError, match="the index 9 is out of range"):
                exe(*given)
        else:
            want = x[[i, i]] if p and q else x * (3 if p else 2)
            np.testing.assert_array_equal(next(iter(exe(*given).values())), want)
    assert not exe.explain().notes


def test_a_singular_matrix_in_a_branch() -> None:
    exe = executable(lambda p, a: if_(p, then=lambda: inverse(a), orelse=lambda: a * 2.0), "bool[]",
                     "f32[2,2]")
    ones = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(next(iter(exe(np.array(False), ones).values())), 2 * ones)
    with pytest.raises(RunError, match="the matrix is singular"):
        exe(np.array(True), ones)


def test_sizes_for_which_a_branch_fails_run_lazily() -> None:
    def fn(p: Any, x: Any) -> Any:  # noqa: ANN401 - traced values
        return if_(p, then=lambda: sum_(topk(x, k=3, axis=0, largest=True, sorted=True)[0],
                                        axes=(0,)), orelse=lambda: sum_(x, axes=(0,)))

    exe = executable(fn, "bool[]", "f32[n]")
    for p, n in [(True, 4), (False, 4), (False, 2)]:
        assert next(iter(exe(np.array(p), np.ones(n, np.float32)).values())) == (3 if p else n)
    assert "'n': 2} run in the mode lazy: a branch of an if fails" in exe.explain().notes[0]
    with pytest.raises(RunError, match="3 elements of axis 0 of size 2"):
        exe(np.array(True), np.ones(2, np.float32))
