"""Models of which sizes decide the branches: one program serves all sizes that decide alike."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import treadle
from tests.onnx.build import F32, I64, model, node
from treadle.errors import TreadleError


def graph(name: str, out: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    """A branch; what it reads lies outside."""
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(
        out, TensorProto.FLOAT, None)])


def squeezed(x: str, out: str) -> list[onnx.NodeProto]:
    """What PyTorch exports for `squeeze(-1)`: the last axis goes if it has size 1."""
    return [node("Constant", [], [f"{out}_last"], value_int=-1),
            node("Shape", [x], [f"{out}_shape"]),
            node("Gather", [f"{out}_shape", f"{out}_last"], [f"{out}_size"]),
            node("Constant", [], [f"{out}_one"], value_int=1),
            node("Equal", [f"{out}_size", f"{out}_one"], [f"{out}_is"]),
            node("Constant", [], [f"{out}_axes"], value_ints=[-1]),
            node("If", [f"{out}_is"], [out], name=f"if_{out}",
                 then_branch=graph("then", f"{out}_a", node("Squeeze", [x, f"{out}_axes"], [
                     f"{out}_a"])),
                 else_branch=graph("else", f"{out}_b", node("Identity", [x], [f"{out}_b"])))]


def pooled(x: str, out: str, width: int) -> list[onnx.NodeProto]:
    """Sums over windows, which leave one place for some lengths; without it a product."""
    return [node("AveragePool", [x], [f"{out}_p"], kernel_shape=[width], strides=[width]),
            *squeezed(f"{out}_p", f"{out}_s"), node("MatMul", [f"{out}_s", "w"], [out])]


def two_rates() -> onnx.ModelProto:
    """Windows of 4 or 16, as an input says; each branch works for its own lengths only."""
    nodes = [node("Constant", [], ["sixteen"], value_int=16),
             node("Equal", ["rate", "sixteen"], ["wide"]),
             node("If", ["wide"], ["y"], name="rates",
                  then_branch=graph("t", "y_t", *pooled("x", "y_t", 16)),
                  else_branch=graph("e", "y_e", *pooled("x", "y_e", 4)))]
    return model(nodes, [("x", F32, ["batch", 8, "n"]), ("rate", I64, [])], [("y", F32, None)],
                 weights={"w": np.eye(8, 3, dtype=np.float32)})


CALLS = ((1, 20, 16), (3, 16, 16), (1, 5, 4), (2, 31, 16), (4, 7, 4), (1, 20, 16), (1, 4, 4))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_one_program_for_all_sizes_that_decide_alike(device: str, order: int) -> None:
    proto = two_rates()
    session = onnxruntime.InferenceSession(proto.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    exe = treadle.load(proto).compile(device)
    for batch, n, rate in CALLS[::order]:
        x = np.random.default_rng(n).normal(size=(batch, 8, n)).astype(np.float32)
        given = {"x": x, "rate": np.array(rate)}
        np.testing.assert_allclose(exe(given)["y"], session.run(None, given)[0], rtol=1e-5,
                                   atol=1e-6)
        with pytest.raises(TreadleError):
            exe({"x": np.zeros((1, 8, 33), np.float32), "rate": np.array(16)})
        with pytest.raises(TreadleError):
            exe({"x": np.zeros((1, 8, 3), np.float32), "rate": np.array(rate)})
    assert exe.compilations == 1  # type: ignore[union-attr]


def test_ranks_that_sizes_decide() -> None:
    """Both ranks are possible: a program for each, whatever the sizes."""
    proto = model(squeezed("x", "y"), [("x", F32, ["b", "n"])], [("y", F32, None)])
    exe = treadle.load(proto).compile("cpu")
    for b, n in ((2, 1), (3, 5), (4, 1), (1, 9), (0, 1)):
        x = np.ones((b, n), np.float32)
        assert exe(x)["y"].shape == ((b,) if n == 1 else (b, n))
    assert exe.compilations == 2  # type: ignore[union-attr]


def test_a_condition_on_much_data_still_names_the_input() -> None:
    """The rank depends on values of an input that is not small: each content has its program."""
    nodes = [node("ReduceMax", ["flags"], ["most"], keepdims=0),
             node("Cast", ["most"], ["is"], to=TensorProto.BOOL),
             node("Constant", [], ["axes"], value_ints=[0]),
             node("If", ["is"], ["y"],
                  then_branch=graph("t", "a", node("Unsqueeze", ["x", "axes"], ["a"])),
                  else_branch=graph("e", "b", node("Identity", ["x"], ["b"])))]
    proto = model(nodes, [("x", F32, ["n"]), ("flags", I64, [100])], [("y", F32, None)])
    exe = treadle.load(proto).compile("cpu")
    x = np.ones(3, np.float32)
    for flag in (0, 1, 0):
        got = exe(x, np.full(100, flag, np.int64))["y"]
        assert got.shape == ((1, 3) if flag else (3,))
    assert exe.compilations == 2  # type: ignore[union-attr]


def test_a_condition_of_no_elements_is_refused() -> None:
    nodes = [node("Cast", ["flags"], ["is"], to=TensorProto.BOOL),
             node("Constant", [], ["axes"], value_ints=[0]),
             node("If", ["is"], ["y"],
                  then_branch=graph("t", "a", node("Unsqueeze", ["x", "axes"], ["a"])),
                  else_branch=graph("e", "b", node("Identity", ["x"], ["b"])))]
    for shape in (["n"], [1], []):
        proto = model(nodes, [("x", F32, ["m"]), ("flags", I64, shape)], [("y", F32, None)])
        exe, x = treadle.load(proto).compile("cpu"), np.ones(3, np.float32)
        assert exe(x, np.ones([1] * len(shape), np.int64))["y"].shape == (1, 3)
        assert exe(x, np.zeros([1] * len(shape), np.int64))["y"].shape == (3,)
        if shape == ["n"]:
            with pytest.raises(TreadleError):
                exe(x, np.zeros(0, np.int64))
