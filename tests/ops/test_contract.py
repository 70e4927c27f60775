"""Contractions: gradients against finite differences, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from treadle.declare import evaluate
from treadle.declare.arrays import Array, type_of
from treadle.errors import OperatorError
from treadle.ir.graph import Builder, Value
from treadle.ops.library import REGISTRY

EXPERT = np.array([1, 0, 1, 1])


def _cotangents(name: str, g: Array, arrays: list[Array], attrs: dict[str, Any]
                ) -> list[tuple[int, Array]]:
    """What the rule of `name` gives for every operand that has a cotangent."""
    op = REGISTRY[name]
    rule = cast("Callable[..., object]", op.rules.get("transpose") or op.rules.get("vjp"))
    with Builder("back") as b:
        cotangent = b.input("g", type_of(g))
        operands = [b.input(f"x{i}", type_of(a)) for i, a in enumerate(arrays)]
        out = rule(cotangent, *operands, **op.bind(attrs)[1])
        many = cast("tuple[Value | None, ...]", out if isinstance(out, tuple) else (out,))
        at = [i for i, v in enumerate(many) if v is not None]
        graph = b.finish([v for v in many if v is not None])
    return list(zip(at, evaluate.run(graph, [g, *arrays], {}, {}), strict=True))


CASES = [
    ("matmul", [(2, 1, 2, 3), (4, 3, 2)], {}), ("matmul", [(3,), (2, 3, 4)], {}),
    ("matmul", [(2, 2, 3), (3,)], {}), ("matmul", [(3,), (3,)], {}),
    ("dot_general", [(2, 3, 4), (4, 5, 2)],
     {"contract_a": (2,), "contract_b": (0,), "batch_a": (0,), "batch_b": (2,)}),
    ("dot_general", [(2, 3, 4, 5), (5, 2, 3)], {"contract_a": (1, 3), "contract_b": (2, 0)}),
    ("grouped_matmul", [(4, 3), (2, 3, 2), EXPERT], {}),
    ("grouped_outer", [(4, 3), (4, 2), EXPERT], {"experts": 2}),
    ("dense_solve", [(2, 3, 3), (2, 3)], {}), ("dense_solve", [(3, 3), (3, 2)], {}),
    ("inverse", [(2, 3, 3)], {}), ("det", [(2, 3, 3)], {}),
    ("kv_append", [(2, 2, 4, 3), (2, 2, 2, 3), np.array([3, -6])], {"mode": "circular"}),
    ("kv_append", [(2, 4), (2, 2), np.array([1, 2])], {"axis": 1})]


@pytest.mark.parametrize(("name", "shapes", "attrs"), CASES)
def test_cotangents_match_finite_differences(name: str, shapes: list[Any], attrs: dict[str, Any]
                                             ) -> None:
    rng, op, step = np.random.default_rng(1), REGISTRY[name], 1e-6
    arrays = [s if isinstance(s, np.ndarray) else rng.normal(size=s) for s in shapes]
    g = rng.normal(size=np.shape(op(*arrays, **attrs)))
    for i, got in _cotangents(name, g, arrays, attrs):
        want = np.zeros_like(arrays[i])
        for at in np.ndindex(want.shape):
            ends = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[i][at] += sign * step
                ends.append(np.sum(np.asarray(op(*moved, **attrs)) * g))
            want[at] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_a_singular_matrix_is_named() -> None:
    a = np.stack([np.eye(2), np.ones((2, 2))])
    with pytest.raises(OperatorError, match=r"batch entry \[1\] is singular"):
        REGISTRY["dense_solve"](a, np.ones((2, 2)))


def test_an_unknown_expert_is_named() -> None:
    with pytest.raises(OperatorError, match=r"expert\[1\] = 2 is outside 0\.\.1"):
        REGISTRY["grouped_matmul"](np.ones((2, 3)), np.ones((2, 3, 1)), np.array([0, 2]))


@pytest.mark.parametrize(("a", "b", "message"), [
    (np.ones((2, 3)), np.ones((2, 3)), "inner sizes differ: 3 against 2"),
    (np.ones((2, 3)), np.ones((3, 2), np.float32), "operands have dtypes f64 and f32"),
    (np.ones(()), np.ones(3), "a scalar has no axis"),
    (np.ones((2, 2, 3)), np.ones((3, 3, 1)), "do not broadcast")])
def test_operands_that_do_not_fit(a: Array, b: Array, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        REGISTRY["matmul"](a, b)


@pytest.mark.parametrize("equation", [
    "ij,jk->il", "ij,jk->ikk", "i,jk", "ij", "i1,jk", "ij,j.k", "ij,jk,kl"])
def test_equations_that_do_not_fit(equation: str) -> None:
    with pytest.raises(OperatorError):
        REGISTRY["einsum"]([np.ones((2, 3)), np.ones((3, 2))], equation=equation)


def test_integer_sums_are_exact_and_wrap_at_32_bits() -> None:
    row = np.full((1, 140_000), 255, np.uint8)
    got = REGISTRY["matmul_integer"](row, row.T)
    assert got == np.array(255 * 255 * 140_000).astype(np.int32)
