"""Models that fit some sizes only: one graph serves all sizes of a remainder."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import treadle
from tests.onnx.build import F32, model, node
from treadle.errors import TreadleError


def ladder() -> onnx.ModelProto:
    """Halved twice by pooling, doubled twice, added to what it was: whole for multiples of 4."""
    nodes = [
        node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("Constant", [], ["s"], value_floats=[1.0, 1.0, 4.0, 4.0]),
        node("Resize", ["b", "", "s"], ["c"], mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("Add", ["x", "c"], ["y"])]
    return model(nodes, [("x", F32, ["batch", 2, "height", "width"])], [("y", F32, None)])


def check(exe: object, proto: onnx.ModelProto, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    got, = exe(x).values()  # type: ignore[operator]
    np.testing.assert_allclose(got, session.run(None, {"x": x})[0], rtol=1e-6)


def test_one_graph_serves_every_multiple() -> None:
    proto = ladder()
    exe = treadle.load(proto).compile("cpu")
    for shape in ((1, 2, 32, 64), (3, 2, 96, 32), (1, 2, 160, 160)):
        check(exe, proto, shape)
    assert exe.compilations == 1  # type: ignore[union-attr]
    check(exe, proto, (1, 2, 36, 40))
    check(exe, proto, (2, 2, 4, 72))
    assert exe.compilations == 2  # type: ignore[union-attr]


def test_sizes_that_do_not_fit_are_refused_and_leave_the_others() -> None:
    proto = ladder()
    exe = treadle.load(proto).compile("cpu")
    check(exe, proto, (1, 2, 32, 32))
    for _ in range(2):
        with pytest.raises(TreadleError, match="add"):
            exe(np.zeros((1, 2, 33, 32), np.float32))
    check(exe, proto, (2, 2, 64, 96))
    assert exe.compilations == 1  # type: ignore[union-attr]


def test_the_first_sizes_may_be_the_odd_ones() -> None:
    exe = treadle.load(ladder()).compile("cpu")
    with pytest.raises(TreadleError, match="add"):
        exe(np.zeros((1, 2, 33, 32), np.float32))
    for shape in ((1, 2, 32, 32), (1, 2, 64, 32)):
        check(exe, ladder(), shape)
