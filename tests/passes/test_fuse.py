"""Fusion keeps every bit, forms the groups that it should, and never a cycle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from treadle.declare import evaluate
from treadle.declare.opdef import infer
from treadle.ir.graph import Graph, Node, Value, trace
from treadle.ir.parser import parse_graph
from treadle.ir.printer import print_graph
from treadle.ir.types import parse_type
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY
from treadle.passes.base import Context
from treadle.passes.fuse import Fuse

OPS = REGISTRY


class Everything:
    """A backend that holds anything in one kernel."""

    def declines(self, node: Node) -> str:
        """Nothing."""
        return ""

    def fuses(self, node: Node) -> bool:
        """Whatever computes."""
        return bool(node.inputs)


def fuse(fn: Callable[..., object], *types: str) -> tuple[Graph, Graph]:
    before = trace(fn, *map(parse_type, types))  # type: ignore[arg-type]
    after = Fuse().run(before, Context(legaliser=Everything()))
    verify(after, infer)
    text = print_graph(after)
    assert print_graph(parse_graph(text)) == text
    return before, after


def same(graphs: tuple[Graph, Graph], *shapes: Sequence[int]) -> list[str]:
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=s).astype(np.float32) for s in shapes]
    a, b = (evaluate.run(g, xs, {}, {}) for g in graphs)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)
    return [n.op for n in graphs[1].nodes if n.op != "full"]


def softmax(x: Value) -> Value:
    top = OPS["reduce_max"](x, axes=(-1,), keepdims=True)
    e = OPS["exp"](x - top)
    return e / OPS["sum"](e, axes=(-1,), keepdims=True)


def test_chains_become_one_map() -> None:
    graphs = fuse(lambda x, y: OPS["exp"](x * 2.0 + y) - y * y, "f32[n,4]", "f32[4]")
    assert same(graphs, (3, 4), (4,)) == ["map"]


def test_a_map_has_every_value_that_others_read() -> None:
    def fn(x: Value) -> tuple[Value, Value]:
        y = OPS["exp"](x)
        return y, y * y + 1.0

    graphs = fuse(fn, "f32[n]")
    assert same(graphs, (5,)) == ["map"]
    assert len(graphs[1].nodes[-1].outputs) == 2


def test_rows_take_what_comes_before_and_after() -> None:
    graphs = fuse(lambda x, b: softmax(x * 0.5 + b) * 3.0, "f32[n,8]", "f32[8]")
    assert same(graphs, (3, 8), (8,)) == ["fused"]


def test_folds_over_other_axes_stay_apart() -> None:
    graphs = fuse(lambda x: OPS["sum"](OPS["sum"](x * x, axes=(0,), keepdims=True), axes=(1,)),
                  "f32[n,8]")
    assert same(graphs, (3, 8)) == ["fused", "sum"]


def test_a_group_never_waits_for_itself() -> None:
    """The product reads the first map and feeds the second: they cannot be one."""
    def fn(x: Value, w: Value) -> Value:
        y = OPS["exp"](x) + 1.0
        return OPS["matmul"](y, w) * 2.0 + y

    assert same(fuse(fn, "f32[n,4]", "f32[4,4]"), (3, 4), (4, 4)) == ["map", "matmul", "map"]


def test_small_operands_are_computed_again() -> None:
    graphs = fuse(lambda x, m: x + (1.0 - m) * -1e4, "f32[n,4,8]", "f32[n,1,8]")
    assert same(graphs, (2, 4, 8), (2, 1, 8)) == ["map"]


def random_function(seed: int) -> Callable[..., object]:
    rng = np.random.default_rng(seed)

    def fn(x: Value, y: Value, w: Value) -> list[Value]:
        made = [x, y, OPS["sum"](x, axes=(1,), keepdims=True)]
        for _ in range(int(rng.integers(5, 30))):
            a, b = (made[int(i)] for i in rng.integers(0, len(made), 2))
            kind = int(rng.integers(0, 7))
            if kind < 3:
                made.append(OPS[("add", "mul", "sub")[kind]](OPS["tanh"](a), b))
            elif kind == 3:
                axis = int(rng.integers(0, 2))
                made.append(OPS["reduce_max"](a, axes=(axis,), keepdims=True))
            elif kind == 4:
                made.append(OPS["matmul"](OPS["expand"](a, shape=(6, 6)), w))
            else:
                made.append(OPS["where"](a > b, a, OPS["neg"](b)))
        return [OPS["expand"](made[int(i)], shape=(6, 6)) for i in rng.integers(0, len(made), 3)]

    return fn


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_keep_every_bit(seed: int) -> None:
    same(fuse(random_function(seed), "f32[6,6]", "f32[6,1]", "f32[6,6]"), (6, 6), (6, 1), (6, 6))
