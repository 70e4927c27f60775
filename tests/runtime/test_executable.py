"""Calling executables: storage, dtypes, foreign arrays, signatures."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import treadle
from tests.onnx.build import F32, I64, add_model, model, node
from treadle.errors import BindingError, DeviceError


def test_ways_to_call() -> None:
    exe = treadle.load(add_model()).compile(device="reference")
    x = np.ones((2, 3), np.float32)
    for out in (exe(x), exe(x=x), exe({"x": x}), exe([[1, 1, 1], [1, 1, 1]])):
        assert list(out) == ["y"]
        np.testing.assert_array_equal(out["y"], 2 * x)
    assert "x: f32[n,3]" in repr(exe) and "y: f32[n,3]" in repr(exe)


class Foreign:
    """An array that offers DLPack alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **kw: object) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack() -> None:
    exe = treadle.load(add_model()).compile()
    np.testing.assert_array_equal(exe(Foreign(np.ones((1, 3), np.float32)))["y"],
                                  np.full((1, 3), 2.0))


def test_outputs_are_fresh() -> None:
    proto = model([node("Identity", ["x"], ["y"]), node("Identity", ["x"], ["z"]),
                   node("Identity", ["w"], ["v"])],
                  [("x", F32, [2])], [("y", F32, [2]), ("z", F32, [2]), ("v", F32, [2])],
                  weights={"w": np.array([5, 6], np.float32)})
    exe = treadle.load(proto).compile()
    x = np.array([1, 2], np.float32)
    first = exe(x)
    for a in first.values():
        assert a.flags.writeable
        a[:] = -1
    assert x.tolist() == [1, 2]
    again = exe(x)
    assert again["y"].tolist() == [1, 2] and again["v"].tolist() == [5, 6]


def test_out_supplies_storage() -> None:
    exe = treadle.load(add_model()).compile()
    x, y = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32)
    result = exe(x, out={"y": y})
    assert result["y"] is y and (y == 2).all()
    with pytest.raises(BindingError, match="no output 'q'"):
        exe(x, out={"q": y})
    with pytest.raises(BindingError, match="needs an array of f32"):
        exe(x, out={"y": np.empty((2, 3))})
    with pytest.raises(BindingError, match="shape"):
        exe(x, out={"y": np.empty((5, 3), np.float32)})


def test_strided_inputs() -> None:
    exe = treadle.load(add_model()).compile()
    x = np.arange(12, dtype=np.float32).reshape(6, 2).T[:, ::2]
    np.testing.assert_array_equal(exe(x)["y"], x + x)
    big = x.astype(">f4")
    np.testing.assert_array_equal(exe(big)["y"], x + x)


def test_parameters_can_be_replaced() -> None:
    proto = model([node("Mul", ["x", "w"], ["y"])], [("x", F32, [2])], [("y", F32, [2])],
                  weights={"w": np.array([2, 3], np.float32)})
    with pytest.raises(BindingError, match="frozen"):
        treadle.load(proto).compile().set_param("w", np.zeros(2, np.float32))
    exe = treadle.load(proto).compile(freeze=False)
    one = np.ones(2, np.float32)
    assert exe(one)["y"].tolist() == [2, 3]
    exe.set_params({"w": np.array([7, 8], np.float32)})
    assert exe(one)["y"].tolist() == [7, 8]
    with pytest.raises(BindingError, match="no parameter 'q'"):
        exe.set_param("q", one)
    with pytest.raises(BindingError, match=r"w is f32\[2\]"):
        exe.set_param("w", np.ones(3, np.float32))


def test_a_graph_that_depends_on_an_input() -> None:
    """Reduction axes as an input: built at the first call, again only for new axes."""
    proto = model([node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
                  [("x", F32, ["n", "m"]), ("axes", I64, [1])], [("y", F32, None)])
    loaded = treadle.load(proto)
    assert "built at its first run" in repr(loaded)
    exe = loaded.compile()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(exe(x=x, axes=np.array([0]))["y"], x.sum(0))
    np.testing.assert_array_equal(exe(x=x, axes=np.array([1]))["y"], x.sum(1))
    np.testing.assert_array_equal(exe(x=x[:, :2], axes=np.array([1]))["y"], x[:, :2].sum(1))
    assert exe.compilations == 2
    assert "axes" in str(exe.explain())


def test_traced_python() -> None:
    from treadle import ops

    exe = treadle.trace(lambda x, y: ops.gelu(x) * y, "f32[n,4]", "f32[4]").compile()
    out = exe(np.ones((2, 4), np.float32), np.full(4, 2, np.float32))
    np.testing.assert_allclose(next(iter(out.values())), 2 * 0.8413447, rtol=1e-6)


def test_unknown_device() -> None:
    with pytest.raises(DeviceError, match="no device 'quantum'"):
        treadle.load(add_model()).compile(device="quantum")
    with pytest.raises(DeviceError, match="precision policy 'f8'"):
        treadle.load(add_model()).compile(precision="f8")
    assert "reference" in treadle.devices()


def test_sequences_come_out_as_lists() -> None:
    proto = model([node("SplitToSequence", ["x"], ["s"], axis=0)], [("x", F32, [2, 3])], [])
    proto.graph.output.append(onnx.helper.make_tensor_sequence_value_info("s", F32, None))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = treadle.load(proto).compile()(x)["s"]
    assert isinstance(out, list) and len(out) == 2
    np.testing.assert_array_equal(out[1], x[1:])
