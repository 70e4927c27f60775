"""Files made to exhaust a reader: each is refused, or runs, within the limits of the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.fuzz.driver import Worker
from tests.onnx.build import BOOL, F32, I64, model, node

STRING = TensorProto.STRING


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def doubling_functions() -> onnx.ModelProto:
    """30 functions, each of which calls the next one twice."""
    opsets = [helper.make_opsetid("f", 1), helper.make_opsetid("", 21)]
    made = [helper.make_function("f", f"F{i}", ["a"], ["c"],
                                 [node(f"F{i + 1}", ["a"], ["b"], domain="f"),
                                  node(f"F{i + 1}", ["b"], ["c"], domain="f")], opsets)
            for i in range(30)]
    last = helper.make_function("f", "F30", ["a"], ["c"], [node("Relu", ["a"], ["c"])], opsets)
    return model([node("F0", ["x"], ["y"], domain="f")], [("x", F32, [2])], [("y", F32, [2])],
                 imports=[("f", 1)], functions=[*made, last])


def mutual_functions() -> onnx.ModelProto:
    """Two functions that call each other."""
    opsets = [helper.make_opsetid("f", 1)]
    made = [helper.make_function("f", a, ["a"], ["b"], [node(b, ["a"], ["b"], domain="f")], opsets)
            for a, b in (("A", "B"), ("B", "A"))]
    return model([node("A", ["x"], ["y"], domain="f")], [("x", F32, [2])], [("y", F32, [2])],
                 imports=[("f", 1)], functions=made)


def nested_loops() -> onnx.ModelProto:
    """Loops in loops whose carried size grows."""
    inner = [node("Concat", ["v0", "v0"], ["w0"], axis=0)]
    for depth in range(12):
        i, go, v, w = (f"{n}{depth}" for n in ("i", "go", "v", "w"))
        body = helper.make_graph(
            [*inner, node("Identity", [go], [f"{go}_out"])], "body",
            [helper.make_tensor_value_info(n, t, s) for n, t, s in (
                (i, I64, []), (go, BOOL, []), (v, F32, None))],
            [helper.make_tensor_value_info(f"{go}_out", BOOL, []),
             helper.make_tensor_value_info(w, F32, None)])
        inner = [node("Loop", ["two", "", f"v{depth + 1}"], [f"w{depth + 1}"], body=body)]
    inner[0].input[2] = "x"
    return model(inner, [("x", F32, ["n"])], [("w12", F32, None)], weights={"two": np.array(2)})


def reversed_chain() -> onnx.ModelProto:
    """20,000 nodes, the last one first."""
    chain = [node("Identity", [f"v{i}"], [f"v{i + 1}"]) for i in range(20_000)]
    return model(chain[::-1], [("v0", F32, [1])], [("v20000", F32, [1])])


def long_names() -> onnx.ModelProto:
    """Names of a megabyte, in an error."""
    name = "n" * 1_000_000
    return model([node("Add", ["x", "w"], [name], name=name)], [("x", F32, [2])],
                 [(name, F32, [3])], weights={"w": np.zeros(3, np.float32)})


def many_axes() -> onnx.ModelProto:
    """A tensor of 100,000 axes."""
    proto = model([node("Identity", ["w"], ["y"])], [], [("y", F32, None)],
                  weights={"w": np.zeros(1, np.float32)})
    proto.graph.initializer[0].dims[:] = [1] * 100_000
    return proto


def many_input_axes() -> onnx.ModelProto:
    """An input of 5,000 symbolic axes."""
    return model([node("Relu", ["x"], ["y"])], [("x", F32, [f"d{i}" for i in range(5000)])],
                 [("y", F32, None)])


def growing_rank() -> onnx.ModelProto:
    """100 unsqueezes."""
    steps = [node("Unsqueeze", [f"v{i}", "zero"], [f"v{i + 1}"]) for i in range(100)]
    return model(steps, [("v0", F32, [1])], [("v100", F32, None)], weights={"zero": np.array([0])})


def sparse_giant() -> onnx.ModelProto:
    """A sparse tensor of 2^28 elements."""
    proto = model([node("Identity", ["w"], ["y"])], [], [("y", F32, None)])
    sparse = proto.graph.sparse_initializer.add(dims=[2**28])
    sparse.values.CopyFrom(helper.make_tensor("w", TensorProto.DOUBLE, [1], [1.0]))
    sparse.indices.CopyFrom(helper.make_tensor("i", I64, [1], [0]))
    return proto


def regular_expression() -> onnx.ModelProto:
    """A pattern on which backtracking takes exponential time."""
    return model([node("RegexFullMatch", ["x"], ["y"], pattern="(a|aa)+(a|a?)+b")], [],
                 [("y", BOOL, None)], weights={"x": np.array(["a" * 60], object)})


def huge(op: str, *inputs: Any, **attrs: Any) -> Callable[[], onnx.ModelProto]:  # noqa: ANN401 - arrays
    """One operator on constants, that asks for a result that fits no memory."""
    def make() -> onnx.ModelProto:
        names = [f"c{i}" for i in range(len(inputs))]
        return model([node(op, [n if a is not None else "" for n, a in zip(names, inputs,
                                                                          strict=True)],
                           ["y"], **attrs)], [], [("y", F32, None)],
                     weights={n: a for n, a in zip(names, inputs, strict=True) if a is not None},
                     opset=18)

    return make


BIG, ONE = np.array([2**40]), np.ones(1, np.float32)
HUGE = {
    "constant_of_shape": huge("ConstantOfShape", np.array([2**31, 2**31])),
    "expand": huge("Expand", ONE, BIG), "tile": huge("Tile", ONE, BIG),
    "pad": huge("Pad", ONE, np.array([0, 2**40])),
    "range": huge("Range", np.array(0), np.array(2**45), np.array(1)),
    "one_hot": huge("OneHot", np.array([1]), BIG, np.array([0.0, 1.0], np.float32)),
    "resize": huge("Resize", ONE.reshape(1, 1, 1), None, np.array([1, 1, 2e12], np.float32)),
    "resize_to": huge("Resize", ONE.reshape(1, 1, 1), None, None, np.array([1, 1, 2**40])),
    "reshape": huge("Reshape", ONE, BIG), "window": huge("HannWindow", np.array(2**40)),
    "mel": huge("MelWeightMatrix", np.array(2**31), np.array(2**40), np.array(16000),
                np.array(0.0, np.float32), np.array(8000.0, np.float32)),
    "random": huge("RandomNormal", shape=[2**20, 2**20]),
    "conv_pads": huge("Conv", np.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32),
                      pads=[2**40, 2**40]),
    "pool": huge("MaxPool", np.ones((1, 1, 4), np.float32), kernel_shape=[2**30],
                 pads=[2**30, 2**30]),
    "center_crop_pad": huge("CenterCropPad", ONE, BIG),
    "eye": huge("EyeLike", np.zeros((0, 0), np.float32), k=2**62),
    "trilu": huge("Trilu", np.ones((2, 2), np.float32), np.array(2**62)),
    "split": huge("SplitToSequence", ONE, np.array(0)),
    "top_k": huge("TopK", ONE, BIG), "dft": huge("DFT", ONE.reshape(1, 1, 1), np.array(2**40)),
    "blackman": huge("BlackmanWindow", np.array(-5))}
FILES = {f.__name__: f for f in (
    doubling_functions, mutual_functions, nested_loops, reversed_chain, long_names, many_axes,
    many_input_axes, growing_rank, sparse_giant, regular_expression)} | HUGE


@pytest.mark.parametrize("name", FILES)
def test_hostile_files(name: str, worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "hostile.onnx"
    path.write_bytes(FILES[name]().SerializeToString())
    verdict = worker.ask(f"file {path}")
    assert verdict.startswith("ok"), verdict
    assert len(verdict) < 1000
