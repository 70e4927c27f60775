"""Shapes, bounds and margins that only the run gives: ONNX Runtime decides what they mean."""

from __future__ import annotations

import numpy as np
import pytest
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

import treadle
from tests.onnx.build import F32, I64, model, node
from tests.onnx.ort import Run, check
from tests.runtime.surface import HERE

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def pad(mode: str, *pads: int) -> Run:
    return Run("Pad", {"x": X, "p": ints(*pads)}, 1, {"mode": mode}, domain="")


def cut(starts: np.ndarray, ends: np.ndarray, axes: np.ndarray, steps: np.ndarray,
        *weights: str) -> Run:
    return Run("Slice", {"x": X, "s": starts, "e": ends, "a": axes, "t": steps}, 1,
               domain="", weights=weights)


CASES = {
    "Pad crops one axis and widens another": pad("constant", -1, 2, 0, 0, -1, 1),
    "Pad crops before it repeats the edge": pad("edge", 2, 1, -2, 1, -1, 1),
    "Pad crops before it reflects": pad("reflect", 0, -1, -1, 0, 0, 1),
    "Slice with a start far before a negative step": cut(ints(-6), ints(-9), ints(0), ints(-1)),
    "Slice with a constant start before a negative step": cut(
        ints(-4), ints(-5), ints(1), ints(-2), "s", "e", "a", "t"),
    "Slice between bounds beyond the axis": cut(ints(-7), ints(9), ints(-1), ints(2), "a", "t"),
    "Slice from a constant start to a computed end": cut(
        ints(1), ints(-1), ints(2), ints(1), "s", "a", "t"),
    "Reshape with 0 and -1": Run("Reshape", {"x": X, "s": ints(0, -1)}, domain=""),
    "Expand with a 1": Run("Expand", {"x": X, "s": ints(2, 1, 3, 1)}, domain=""),
}


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str) -> None:
    check(CASES[name])


BROADCASTS = ((3, 1), (2, 1, 4), (1, 4), (2, 3, 4), (5, 1, 3, 1), (2, 2, 4), (2,), (1, 5), (-1,),
              (0,), (4, 3, 4), (5, 2, 2, 4))


@pytest.mark.parametrize("on", HERE)
def test_expand_refuses_what_onnxruntime_does(on: str) -> None:
    """Shapes that are computed, against an input whose sizes are known."""
    options = SessionOptions()
    options.log_severity_level = 4
    for n in (1, 2, 3, 4):
        data = model([node("Expand", ["x", "s"], ["y"])],
                     [("x", F32, [2, 3, 4]), ("s", I64, [n])], [("y", F32, None)]
                     ).SerializeToString()
        exe, judge = treadle.load(data).compile(on), InferenceSession(data, options)
        for shape in [s for s in BROADCASTS if len(s) == n]:
            try:
                want = judge.run(None, {"x": X, "s": ints(*shape)})[0]
            except (InvalidArgument, Fail):
                with pytest.raises(treadle.TreadleError, match="expand to|is negative"):
                    exe(X, ints(*shape))
            else:
                np.testing.assert_array_equal(exe(X, ints(*shape))["y"], want)


def test_an_axis_named_twice() -> None:
    data = model([node("Slice", ["x", "s", "e", "a"], ["y"])],
                 [("x", F32, [2, 3, 4]), ("s", I64, [2]), ("e", I64, [2])], [("y", F32, None)],
                 weights={"a": ints(1, -2)}).SerializeToString()
    with pytest.raises(treadle.TreadleError, match="names an axis twice"):
        treadle.load(data)


@pytest.mark.parametrize("starts", [ints(1), ints(1, 0, 0)])
def test_bounds_of_other_numbers(starts: np.ndarray) -> None:
    data = model([node("Slice", ["x", "s", "e", "a"], ["y"])],
                 [("x", F32, [2, 3, 4])], [("y", F32, None)],
                 weights={"s": starts, "e": ints(2, 3), "a": ints(0, 1)}).SerializeToString()
    with pytest.raises(treadle.TreadleError, match="starts, ends, axes and steps"):
        treadle.load(data)


def test_a_condition_of_two_elements() -> None:
    from onnx import helper

    same = helper.make_graph([node("Identity", ["x"], ["z"])], "body", [],
                             [helper.make_tensor_value_info("z", F32, [2])])
    data = model([node("If", ["c"], ["y"], then_branch=same, else_branch=same)],
                 [("x", F32, [2])], [("y", F32, [2])],
                 weights={"c": np.array([True, False])}).SerializeToString()
    with pytest.raises(treadle.TreadleError, match="must hold one element"):
        treadle.load(data)
