"""Random graphs of maps, rows, products and movement against the reference, memory poisoned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from treadle.backends.cpu.backend import Cpu
from treadle.backends.cpu.program import CpuProgram
from treadle.declare import evaluate
from treadle.ir.dims import Size, sym
from treadle.ir.graph import Value, trace
from treadle.ir.types import parse_type
from treadle.ops.library import REGISTRY as OPS
from treadle.passes.base import Context
from treadle.passes.pipeline import from_config

N = sym("n")
SHAPE: tuple[Size, ...] = (N, 6, 10)
"""Every value that is made has this shape up to the order of its axes, which `back` undoes."""


def moved(rng: np.random.Generator, x: Value) -> Value:
    """The elements of x in another order, through views of some kind."""
    kind = int(rng.integers(0, 6))
    if kind == 0:
        t = OPS["transpose"](x, perm=(2, 0, 1))
        return OPS["transpose"](OPS["exp"](t * 0.1), perm=(1, 2, 0))
    if kind == 1:
        t = OPS["reshape"](OPS["transpose"](x, perm=(0, 2, 1)), shape=(N, 6, 10))
        return t * 0.5
    if kind == 2:
        return OPS["flip"](x, axes=(0, 2))
    if kind == 3:
        cut = OPS["slice"](x, starts=(1, -1), ends=(6, -11), steps=(1, -1), axes=(1, 2))
        rest = OPS["narrow"](x, axis=1, start=0, length=1)
        return OPS["concat"]([cut, rest], axis=1)
    if kind == 4:
        padded = OPS["pad"](x, pads=(0, 1, 2, 0, 1, 0), mode=("constant", "edge", "reflect")[
            int(rng.integers(0, 3))])
        return OPS["narrow"](OPS["narrow"](padded, axis=1, start=1, length=6), axis=2, start=1,
                             length=10)
    a, b = OPS["split"](x, axis=2, sizes=(4, 6))
    return OPS["concat"]([OPS["tanh"](b), a * 2.0], axis=2)


def mixed(rng: np.random.Generator, a: Value, b: Value, w: Value) -> Value:
    """A value computed from two others."""
    kind = int(rng.integers(0, 7))
    if kind < 2:
        return OPS[("add", "mul")[kind]](OPS["tanh"](a), OPS["sigmoid"](b))
    if kind == 2:
        axes = ((0,), (1,), (2,), (1, 2), (0, 2))[int(rng.integers(0, 5))]
        return a - OPS["mean"](b, axes=axes, keepdims=True)
    if kind == 3:
        return OPS["softmax"](a, axis=int(rng.integers(0, 3))) + b * 0.5
    if kind == 4:
        return OPS["tanh"](OPS["matmul"](a, w))
    if kind == 5:
        scores = OPS["matmul"](a, OPS["transpose"](b, perm=(0, 2, 1)))
        return OPS["tanh"](OPS["matmul"](scores * 0.1, a))
    return OPS["where"](a > b, a, OPS["expand"](OPS["reduce_max"](b, axes=(1,), keepdims=True),
                                                shape=SHAPE))


def random_function(seed: int) -> Callable[..., object]:
    rng = np.random.default_rng(seed)

    def fn(x: Value, y: Value, w: Value) -> list[Value]:
        made = [x, y]
        for _ in range(int(rng.integers(4, 16))):
            a, b = (made[int(i)] for i in rng.integers(0, len(made), 2))
            made.append(mixed(rng, a, b, w) if rng.integers(3) else moved(rng, a))
        return [made[-1], made[int(rng.integers(2, len(made)))]]

    return fn


@pytest.mark.parametrize("seed", range(30))
def test_random_graph(seed: int) -> None:
    graph = trace(random_function(seed), *map(parse_type, ("f32[n,6,10]", "f32[n,6,10]",
                                                           "f32[10,10]")))
    after = from_config().run(graph, Context(legaliser=Cpu())).graph
    program = CpuProgram(after, {}, threads=2, poison=bool(seed % 2))
    for n in (1, 3, 20):
        rng = np.random.default_rng(n)
        xs = [rng.normal(size=s).astype(np.float32) for s in ((n, 6, 10), (n, 6, 10), (10, 10))]
        want = evaluate.run(graph, xs, {}, {"n": n})
        for a, b in zip(program.run(xs, {"n": n}), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    for planner in program.stages:
        planner.arena.check(planner.arena.layout({"n": 20}))
