"""Running graphs on the device "mlx"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from tests.conformance.harness import Arrays
from treadle.api import trace
from treadle.backends.base import Data
from treadle.backends.mlx.backend import Mlx
from treadle.backends.mlx.program import MlxProgram
from treadle.declare.arrays import Array, host
from treadle.declare.evaluate import bind_shapes
from treadle.ir.graph import Graph
from treadle.passes.base import Context
from treadle.passes.pipeline import from_config
from treadle.runtime.executable import Executable


def program(graph: Graph, mode: str, params: Mapping[str, Data] | None = None) -> MlxProgram:
    """A graph after the passes, compiled for a mode."""
    backend = Mlx(mode)
    ctx = Context({}, legaliser=backend)
    return backend.compile(from_config().run(graph, ctx).graph, params or {})


def run_graph(mode: str, graph: Graph, arrays: Arrays) -> Sequence[Array]:
    """The graph's outputs in a mode."""
    return _run(program(graph, mode), graph, arrays)


def twice(mode: str, graph: Graph, arrays: Arrays) -> tuple[Sequence[Array], Sequence[Array]]:
    """The outputs of two runs: step by step, and by script where the graph has one."""
    made = program(graph, mode)
    found = _run(made, graph, arrays), _run(made, graph, arrays)
    assert not made.notes
    return found


def _run(made: MlxProgram, graph: Graph, arrays: Arrays) -> Sequence[Array]:
    binding = dict[str, int]()
    bind_shapes([v.type for v in graph.inputs], arrays, binding)
    return [host(a) if v.dtype.sort == "host" else a
            for v, a in zip(graph.outputs, map(_plain, made.run(arrays, binding)), strict=True)]


def _plain(array: Array) -> Array:
    return array.item() if array.dtype == object and not array.ndim else array


def executable(fn: object, *specs: str, mode: str = "compiled", freeze: bool = True) -> Executable:
    """A traced function compiled for a mode."""
    return trace(fn, *specs).compile("mlx", mode=mode, freeze=freeze)  # type: ignore[arg-type]


def normal(*shape: int, seed: int = 0) -> Array:
    """Reproducible f32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


lazily, eagerly, compiled = (partial(run_graph, m) for m in ("lazy", "eager", "compiled"))
