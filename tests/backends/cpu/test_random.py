"""Random graphs of maps, rows, products, windows, movement and branches against the reference.

2,000 graphs, fifty to a program: kernels that several of them need are compiled once. Every program
runs with dead memory poisoned and on two threads, to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from treadle.backends.cpu.backend import Cpu
from treadle.backends.cpu.program import CpuProgram
from treadle.declare import evaluate
from treadle.ir.dims import Size, sym
from treadle.ir.graph import Graph, Value, trace
from treadle.ir.types import F32, F64, parse_type
from treadle.ops.control import if_, scan
from treadle.ops.library import REGISTRY as OPS
from treadle.passes.base import Context
from treadle.passes.pipeline import from_config
from treadle.transforms.clone import bind_sizes

N = sym("n")
SHAPE: tuple[Size, ...] = (N, 6, 10)
"""Every value that is made has this shape up to the order of its axes, which `back` undoes."""
TYPES = ("f32[n,6,10]", "f32[n,6,10]", "f32[10,10]", "f32[6,6,3]", "i64[10]")
PROGRAMS, GRAPHS = 40, 50
Rng = np.random.Generator


def bounded(x: Value) -> Value:
    """Values in [-2, 2], in fewer instructions than a function."""
    return OPS["min"](OPS["max"](x, -2.0), 2.0)


def transposed(_: Rng, x: Value) -> Value:
    t = OPS["transpose"](x, perm=(2, 0, 1))
    return OPS["transpose"](OPS["exp"](t * 0.1), perm=(1, 2, 0))


def reshaped(_: Rng, x: Value) -> Value:
    return OPS["reshape"](OPS["transpose"](x, perm=(0, 2, 1)), shape=(N, 6, 10)) * 0.5


def flipped(_: Rng, x: Value) -> Value:
    return OPS["flip"](x, axes=(0, 2))


def cut(_: Rng, x: Value) -> Value:
    part = OPS["slice"](x, starts=(1, -1), ends=(6, -11), steps=(1, -1), axes=(1, 2))
    return OPS["concat"]([part, OPS["narrow"](x, axis=1, start=0, length=1)], axis=1)


def padded(rng: Rng, x: Value) -> Value:
    wide = OPS["pad"](x, pads=(0, 1, 2, 0, 1, 0), mode=("constant", "edge", "reflect")[
        int(rng.integers(0, 3))])
    return OPS["narrow"](OPS["narrow"](wide, axis=1, start=1, length=6), axis=2, start=1,
                         length=10)


def rejoined(_: Rng, x: Value) -> Value:
    a, b = OPS["split"](x, axis=2, sizes=(4, 6))
    return OPS["concat"]([bounded(b), a * 2.0], axis=2)


def widened(_: Rng, x: Value) -> Value:
    return OPS["cast"](OPS["sin"](OPS["cast"](x, dtype=F64)), dtype=F32)


def summed(rng: Rng, x: Value) -> Value:
    return bounded(OPS["cumsum"](x, axis=int(rng.integers(0, 3))))


def recurrent(_: Rng, x: Value) -> Value:
    def step(h: Value, row: Value) -> tuple[Value, Value]:
        new = bounded(h * 0.5 + row)
        return new, new

    return scan([OPS["mean"](x, axes=(1,)), x], body=step, carried=1, axes=(1,), out_axes=(1,))[1]


def chosen(rng: Rng, a: Value, b: Value, at: Value, depth: int = 0) -> Value:
    """One of two values, by an element that the inputs give; branches nest, or pass values on."""
    k, most, deeper = int(rng.integers(0, 10)), int(rng.integers(-8, 8)), int(rng.integers(0, 3))
    moved = MOVED[int(rng.integers(0, len(MOVED)))]
    seed = int(rng.integers(0, 1 << 30))  # a branch may be recorded more than once
    flag = OPS["gather"](at, OPS["full"](value=k, shape=(), dtype=at.dtype), axis=0) > most

    def other() -> Value:
        if deeper == 0 and depth < 2:
            return chosen(np.random.default_rng(seed), b, a, at, depth + 1)
        return a if deeper == 1 else OPS["softmax"](a, axis=2) + b * 0.5

    return if_(flag, then=lambda: moved(np.random.default_rng(seed), a), orelse=other)


MOVED = (transposed, reshaped, flipped, cut, padded, rejoined, widened, summed, recurrent)
"""The elements of one value in another order, or each with its neighbours."""


def mixed(rng: Rng, a: Value, b: Value, w: Value, filters: Value, at: Value) -> Value:
    """A value computed from two others; continuous, so that rounding stays small."""
    axis, kind = int(rng.integers(0, 3)), int(rng.integers(0, 11))
    if kind < 2:
        return OPS[("add", "mul")[kind]](OPS["tanh"](a), bounded(b))
    if kind == 2:
        axes = ((0,), (1,), (2,), (1, 2), (0, 2))[int(rng.integers(0, 5))]
        return a - OPS["mean"](b, axes=axes, keepdims=True)
    if kind == 3:
        return OPS["softmax"](a, axis=axis) + b * 0.5
    if kind == 4:
        return bounded(OPS["matmul"](a, w))
    if kind == 5:
        scores = OPS["matmul"](a, OPS["transpose"](b, perm=(0, 2, 1)))
        return bounded(OPS["matmul"](scores * 0.1, a))
    if kind == 6:
        return OPS["where"](a > b, a * 2.0 - b, a)
    if kind == 7:
        top = OPS["reduce_max"](b, axes=(axis,), keepdims=True)
        return bounded(a) * OPS["expand"](bounded(top), shape=SHAPE)
    if kind == 8:
        return OPS["gather"](a, at, axis=2) + b
    if kind == 9:
        return bounded(OPS["conv"](a, filters, pads=(1, 1))) - b
    return OPS["layer_norm"](a, OPS["mean"](w, axes=(0,))) * (bounded(b) * 0.5)


def random_graph(rng: Rng, x: Value, y: Value, w: Value, filters: Value, at: Value
                 ) -> list[Value]:
    """Two outputs: the last value, and one on the way."""
    made = [x, y]
    for _ in range(int(rng.integers(2, 7))):
        a, b = (made[int(i)] for i in rng.integers(0, len(made), 2))
        kind = int(rng.integers(0, 15))
        if kind == 0:
            made.append(chosen(rng, a, b, at))
        else:
            made.append(mixed(rng, a, b, w, filters, at) if kind < 10 else (
                MOVED[int(rng.integers(0, len(MOVED)))](rng, a)))
    return [made[-1], made[int(rng.integers(2, len(made)))]]


def random_graphs(seed: int) -> Callable[..., object]:
    def fn(*xs: Value) -> list[Value]:
        rng = np.random.default_rng(seed)
        return [v for _ in range(GRAPHS) for v in random_graph(rng, *xs)]

    return fn


def inputs(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    shapes = ((n, 6, 10), (n, 6, 10), (10, 10), (6, 6, 3))
    return [*(rng.normal(size=s).astype(np.float32) for s in shapes), rng.integers(-10, 10, 10)]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_graphs(seed: int) -> None:
    graph = trace(random_graphs(seed), *map(parse_type, TYPES))
    after = from_config().run(graph, Context(legaliser=Cpu())).graph
    program = CpuProgram(after, {}, threads=2, backend=Cpu())
    for n in (1, 20):
        xs, binding = inputs(n), {"n": n}
        first = program.run(xs, dict(binding))
        program.poison = True
        again = program.run(xs, dict(binding))
        program.poison = False
        want = evaluate.run(graph, xs, {}, dict(binding))
        for i, (a, b, w) in enumerate(zip(first, again, want, strict=True)):
            assert a.tobytes() == b.tobytes(), f"output {i} reads what is dead"
            np.testing.assert_allclose(a, w, rtol=1e-4, atol=1e-4, err_msg=f"output {i}")


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_of_parameters(seed: int) -> None:
    """What follows from parameters alone is prepared, what does not is run; both as `reference`."""
    graph = bind_sizes(trace(random_graphs(seed), *map(parse_type, TYPES)), {"n": 3})
    xs, given = inputs(3), graph.inputs[seed % 2]
    held = [v for v in graph.inputs if v is not given]
    values = dict(zip(graph.inputs, xs, strict=True))
    closed = Graph(graph.name, [given], held, graph.nodes, graph.outputs)
    after = from_config().run(closed, Context(legaliser=Cpu())).graph
    program = CpuProgram(after, {v.name: values[v] for v in held}, backend=Cpu(), poison=True)
    assert program.whole.prepared
    want = evaluate.run(graph, xs, {}, {})
    for _ in range(2):
        for i, (a, w) in enumerate(zip(program.run([values[given]], {}), want, strict=True)):
            np.testing.assert_allclose(a, w, rtol=1e-4, atol=1e-4, err_msg=f"output {i}")
