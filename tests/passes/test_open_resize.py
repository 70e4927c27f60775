"""Resizing as gathers gives every bit of the operator's own body, and native kernels run it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.running import operands, run_both
from treadle.backends.cpu.backend import Cpu
from treadle.backends.cpu.program import CpuProgram
from treadle.ir.dims import sym
from treadle.ir.graph import Graph, trace
from treadle.ir.types import parse_type
from treadle.ops.library import REGISTRY as OPS
from treadle.passes.base import Context
from treadle.passes.open_resize import OpenResize
from treadle.passes.pipeline import from_config


def opened(x: str, **attrs: object) -> tuple[Graph, Graph, str]:
    graph = trace(lambda x: OPS["resize"](x, **attrs), parse_type(x))
    context = Context(legaliser=Cpu())
    after = OpenResize().run(graph, context)
    return graph, after, "\n".join(map(str, context.report))


@pytest.mark.parametrize(("coordinates", "nearest"), [
    ("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"), ("pytorch_half_pixel", "round_prefer_floor"),
    ("half_pixel_symmetric", "round_prefer_ceil")])
@pytest.mark.parametrize("scales", [(2.0, 3.0), (8.0, 1.0), (1.0, 5.0)])
def test_whole_repeats_of_unknown_sizes(coordinates: str, nearest: str,
                                        scales: tuple[float, float]) -> None:
    n, m = sym("n"), sym("m")
    attrs = {"sizes": (n * int(scales[0]), m * int(scales[1])), "axes": (1, 2), "scales": scales,
             "coordinates": coordinates, "nearest": nearest}
    before, after, report = opened("f32[2,n,m]", **attrs)
    assert not any(k.op == "resize" for k in after.nodes) and "resize as repeats" in report
    for a, b in zip(*run_both(before, after, operands(before)), strict=True):
        np.testing.assert_array_equal(a, b)


UP = {"sizes": (7, 12), "axes": (2, 3)}


@pytest.mark.parametrize("attrs", [
    {"sizes": (8, 12), "axes": (2, 3), "scales": (2.0, 2.0), "coordinates": "asymmetric",
     "nearest": "floor"},
    UP, {**UP, "nearest": "ceil", "coordinates": "align_corners"},
    {**UP, "mode": "linear"}, {**UP, "mode": "linear", "coordinates": "align_corners"},
    {**UP, "mode": "linear", "coordinates": "pytorch_half_pixel", "exclude_outside": True},
    {**UP, "mode": "cubic"}, {"sizes": (2, 5), "axes": (2, 3), "mode": "linear"},
    {"sizes": (3, 4), "axes": (2, 3), "mode": "linear", "antialias": True}])
@pytest.mark.parametrize("x", ["f32[n,3,4,6]", "f64[2,3,4,6]", "f16[2,3,4,6]"])
def test_every_bit(attrs: dict[str, object], x: str) -> None:
    before, after, _ = opened(x, **attrs)
    assert not any(n.op == "resize" for n in after.nodes)
    for a, b in zip(*run_both(before, after, operands(before)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("attrs", [{**UP, "scales": (1.75, 2.0)}, {**UP, "mode": "linear"}])
def test_no_step_on_the_host(attrs: dict[str, object]) -> None:
    graph = trace(lambda x: OPS["resize"](x, **attrs), parse_type("f32[n,3,4,6]"))
    after = from_config().run(graph, Context(legaliser=Cpu())).graph
    program = CpuProgram(after, {}, 2, backend=Cpu())
    xs = operands(graph)
    want, _ = run_both(graph, after, xs)
    np.testing.assert_allclose(program.run(xs, {"n": 3})[0], want[0], rtol=1e-6, atol=1e-7)
    assert all(Cpu().claim(n).how == "native" for n in after.nodes)


@pytest.mark.parametrize(("x", "attrs", "why"), [
    ("f32[1,n,4]", {"sizes": (9,), "axes": (1,)}, "sizes that are not known"),
    ("u8[1,4,4]", {"sizes": (9,), "axes": (1,), "mode": "linear"}, "weights of integers"),
    ("f32[64]", {"sizes": (2,), "mode": "linear", "antialias": True}, "more than 8 taps"),
    ("f32[4]", {"sizes": (6,), "mode": "linear", "roi": (-1.0, 2.0),
                "coordinates": "tf_crop_and_resize"}, "positions outside the operand")])
def test_what_stays(x: str, attrs: dict[str, object], why: str) -> None:
    before, after, report = opened(x, **attrs)
    assert after is before
    assert why in report
