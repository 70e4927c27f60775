"""Random graphs, the CPU device's own, on MLX against the reference."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tests.backends.cpu.test_random import TYPES, inputs, random_graphs
from tests.backends.mlx.running import program
from treadle.declare import evaluate
from treadle.ir.graph import trace
from treadle.ir.types import parse_type


@pytest.mark.parametrize("mode", ["lazy", "compiled"])
@pytest.mark.parametrize("seed", range(4))
def test_random_graphs(seed: int, mode: str) -> None:
    """Fifty graphs at two sizes; traces run unfused, since MLX's CPU fusion calls a compiler."""
    graph = trace(random_graphs(seed), *map(parse_type, TYPES))
    made = program(graph, mode)
    mx.disable_compile()
    try:
        for n in (1, 20):
            xs = inputs(n)
            want = evaluate.run(graph, xs, {}, {"n": n})
            for i, (a, w) in enumerate(zip(made.run(xs, {"n": n}), want, strict=True)):
                np.testing.assert_allclose(a, w, rtol=1e-4, atol=1e-4, err_msg=f"output {i}")
    finally:
        mx.enable_compile()
