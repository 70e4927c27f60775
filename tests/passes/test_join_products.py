"""Products of one operand become one product with packed weights, where the backend asks for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.passes.running import operands, run_both
from treadle.declare.arrays import Array
from treadle.ir.graph import Builder, Graph, Node, Value
from treadle.ir.types import parse_type
from treadle.ops.contract import matmul
from treadle.ops.mathfn import tanh
from treadle.passes.base import Context
from treadle.passes.join_products import JoinProducts


class Joins:
    """A backend that joins every product."""

    def declines(self, node: Node) -> str:
        """It has all operators."""
        return ""

    def joins(self, node: Node) -> bool:
        """Always."""
        return True


def graph_of(weights: Mapping[str, Array]) -> Graph:
    """x q, x k, tanh(x) v and x w of a vector, with w read twice."""
    with Builder("products") as b:
        x = b.input("x", parse_type("f32[n,4]"))
        q, k, v, w = (b.input(n, parse_type(f"f32[{','.join(map(str, a.shape))}]"), param=True)
                      for n, a in weights.items())
        found: list[Value] = [matmul(x, q), matmul(tanh(x), v), matmul(x, k), matmul(x, w)]
        return b.finish([*found, matmul(w, w)])


def test_products_of_one_operand() -> None:
    draw = np.random.default_rng(0)
    weights = {n: draw.standard_normal(s).astype(np.float32) for n, s in (
        ("q", (4, 6)), ("k", (4, 2)), ("v", (4, 3)), ("w", (4, 4)))}
    graph = graph_of(weights)
    ctx = Context(dict(weights), legaliser=Joins())
    done = JoinProducts().run(graph, ctx)
    assert [n.op for n in done.nodes].count("matmul") == 4  # q and k in one
    assert "joined products x1" in str(ctx.report[0])
    for a, b in zip(*run_both(graph, done, operands(graph)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert JoinProducts(most=12).run(graph, Context(dict(weights), legaliser=Joins())) is graph
    assert JoinProducts().run(graph, Context(dict(weights))) is graph
    assert JoinProducts().run(graph, Context({}, legaliser=Joins())) is graph
