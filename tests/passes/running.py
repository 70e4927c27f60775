"""Run a graph before and after a pass on the same operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from treadle.declare import evaluate
from treadle.declare.arrays import Array, np_dtype
from treadle.ir.dims import evaluate as bind
from treadle.ir.dims import symbols
from treadle.ir.graph import Graph
from treadle.ir.types import TensorType


def operand(type_: TensorType, rng: np.random.Generator, sizes: Mapping[str, int]) -> Array:
    """Small random numbers of a type."""
    shape = tuple(bind(d, sizes) for d in type_.shape)
    if type_.dtype.sort == "float":
        return rng.normal(size=shape).astype(np_dtype(type_.dtype))
    if type_.dtype.sort == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    return rng.integers(1, 4, shape).astype(np_dtype(type_.dtype))


def operands(graph: Graph, size: int = 3) -> list[Array]:
    """One operand for each input and parameter; every symbol is `size`."""
    rng = np.random.default_rng(7)
    leaves = (*graph.inputs, *graph.params)
    sizes = {s: size for v in leaves for d in v.type.shape for s in symbols(d)}
    return [operand(v.type, rng, sizes) for v in leaves]


def run_both(before: Graph, after: Graph, arrays: Sequence[Array]
             ) -> tuple[Sequence[Array], Sequence[Array]]:
    """The outputs of two graphs of the same inputs."""
    return evaluate.run(before, arrays, {}, {}), evaluate.run(after, arrays, {}, {})
