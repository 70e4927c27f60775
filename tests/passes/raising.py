"""What the tests of raising share: build a spelling, run the pass, compare on hostile operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.passes.running import operands, run_both
from treadle.declare.arrays import Array
from treadle.declare.opdef import infer
from treadle.ir.graph import Graph, Value, trace
from treadle.ir.types import parse_type
from treadle.ir.verify import verify
from treadle.passes.base import Context
from treadle.passes.dce import DeadCode
from treadle.passes.pipeline import Phase, Pipeline, find

Fn = Callable[..., Any]
EPS = {"f32": 2.0**-23, "f64": 2.0**-52, "f16": 2.0**-10, "bf16": 2.0**-7}
HOSTILE = [0.0, -0.0, 1e-30, -1e-30, 0.1, -0.1, 1.0, -1.0, 2.9999, -2.9999, 3.0, -3.0, 6.5, -6.5,
           20.0, -20.0, 104.0, -104.0, 1e4, -1e4, 1e30, -1e30, np.inf, np.nan]


def apply(name: str, fn: Fn, *types: str, **options: Any) -> tuple[Graph, Graph, Context]:  # noqa: ANN401 - options of any pass
    """A traced function before and after one pass and the removal of what it left."""
    ctx = Context()
    before = DeadCode().run(trace(fn, *map(parse_type, types)), Context())
    chosen = {name: find(name)(**options)}
    after = Pipeline((Phase((name, "dce")),), chosen, verify=True).run(before, ctx).graph
    verify(after, infer)
    return before, after, ctx


def ops(graph: Graph) -> list[str]:
    """Operators that are no constants."""
    return [n.op for n in graph.walk() if n.op not in ("full", "constant")]


def close(a: Array, b: Array, scale: Array | float, dtype: str = "f32", ulps: float = 16) -> None:
    """Equal where not finite, else within rounding of the larger of the result and `scale`."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert np.array_equal(np.isnan(a), np.isnan(b))
    big = np.isinf(a) | np.isinf(b)
    assert np.array_equal(a[big], b[big])
    with np.errstate(invalid="ignore"):
        bound = ulps * EPS[dtype] * (np.abs(a) + np.abs(scale)) + 1e-37
        assert (np.isnan(a) | big | (np.abs(a - b) <= bound)).all(), (a - b, bound)


def compare(before: Graph, after: Graph, arrays: Sequence[Array] | None = None,
            scale: float = 1.0, dtype: str = "f32") -> None:
    """Both graphs give the same, up to rounding."""
    with np.errstate(all="ignore"):
        for a, b in zip(*run_both(before, after, arrays or operands(before)), strict=True):
            close(a, b, scale, dtype)


def stopped(ctx: Context) -> str:
    """What the report says was not done."""
    return "\n".join(str(e) for e in ctx.report if e.stopped)


def raised(fn: Fn, *types: str) -> list[str]:
    """Operators after the standard passes."""
    graph = trace(fn, *map(parse_type, types))
    return ops(Pipeline(verify=True).run(graph).graph)


__all__ = ["HOSTILE", "Value", "apply", "close", "compare", "ops", "raised", "stopped"]
