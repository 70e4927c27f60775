"""8-bit products with zero points, weights packed: exact against NumPy in i64."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime
import pytest

import treadle
from treadle.runtime.executable import Executable

TYPES = {"u8": onnx.TensorProto.UINT8, "i8": onnx.TensorProto.INT8}
NP = {"u8": np.uint8, "i8": np.int8}


def model(a: str, shape: list[int | str], b: np.ndarray, a_zero: list[int | str] | None,
          b_zero: np.ndarray | None) -> onnx.ModelProto:
    """MatMulInteger with weights, of which the zero point of A is an input."""
    infos = [onnx.helper.make_tensor_value_info("a", TYPES[a], shape)]
    held = [onnx.numpy_helper.from_array(b, "b")]
    names = ["a", "b", "az" if a_zero is not None else "", "bz" if b_zero is not None else ""]
    if a_zero is not None:
        infos.append(onnx.helper.make_tensor_value_info("az", TYPES[a], a_zero))
    if b_zero is not None:
        held.append(onnx.numpy_helper.from_array(b_zero, "bz"))
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    node = onnx.helper.make_node("MatMulInteger", names, ["y"])
    graph = onnx.helper.make_graph([node], "g", infos, [y], held)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])


def full(kind: str, size: tuple[int, ...], seed: int = 0) -> np.ndarray:
    low, high = np.iinfo(NP[kind]).min, np.iinfo(NP[kind]).max + 1
    return np.random.default_rng(seed).integers(low, high, size, NP[kind])


def native(made: onnx.ModelProto, threads: int | None = None) -> Executable:
    exe = treadle.load(made).compile("cpu", threads=threads)
    assert isinstance(exe, Executable)
    assert "host" not in exe.explain().counts
    return exe


@pytest.mark.parametrize(("a", "b"), [("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("i8", "u8")])
@pytest.mark.parametrize("zeros", ["", "a", "b", "ab", "rows", "columns", "both"])
def test_zero_points(a: str, b: str, zeros: str) -> None:
    for k, n in ((37, 50),) if zeros != "ab" else ((37, 50), (128, 16), (1, 1), (300, 33)):
        w = full(b, (k, n))
        by_row, by_column = zeros in ("rows", "both"), zeros in ("columns", "both")
        az = ["m"] if by_row else [] if "a" in zeros else None
        bz = full(b, (n,), 1) if by_column else full(b, (), 1) if "b" in zeros else None
        exe = native(model(a, ["m", k], w, az, bz))
        for m in (1, 5, 40, 0):
            x = full(a, (m, k), m)
            p = None if az is None else full(a, (m,) if by_row else (), 3)
            feeds = {"a": x} | ({} if p is None else {"az": p})
            left = x.astype(np.int64) - (0 if p is None else p[:, None] if by_row else p)
            right = w.astype(np.int64) - (0 if bz is None else bz)
            want = (left @ right).astype(np.int32)
            np.testing.assert_array_equal(exe(**feeds)["y"], want, f"{m} {k} {n}")


def test_batches_of_rows_on_any_threads() -> None:
    w, bz = full("i8", (64, 200)), full("i8", (200,), 1)
    made = model("u8", ["b", "c", "m", 64], w, [], bz)
    x, p = full("u8", (3, 2, 70, 64), 2), np.array(129, np.uint8)
    want = ((x.astype(np.int64) - 129) @ (w.astype(np.int64) - bz)).astype(np.int32)
    for threads in (1, 2, 4):
        np.testing.assert_array_equal(native(made, threads)(a=x, az=p)["y"], want)


def test_dynamic_quantisation_as_in_onnx_runtime() -> None:
    w = full("i8", (96, 40)) // 4  # the peer's sums of two products saturate at 16 bits
    nodes = [onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
             onnx.helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
             onnx.helper.make_node("Cast", ["i"], ["f"], to=onnx.TensorProto.FLOAT),
             onnx.helper.make_node("Mul", ["f", "s"], ["y"])]
    infos = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)
             for n, s in (("x", ["m", 96]), ("y", ["m", 40]))]
    graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:],
                                   [onnx.numpy_helper.from_array(w, "w")])
    made = onnx.helper.make_model(graph, ir_version=10, opset_imports=[
        onnx.helper.make_opsetid("", 21)])
    x = np.random.default_rng(1).normal(size=(9, 96)).astype(np.float32)
    peer = onnxruntime.InferenceSession(made.SerializeToString(), providers=[
        "CPUExecutionProvider"])
    np.testing.assert_allclose(native(made)(x=x)["y"], peer.run(None, {"x": x})[0], rtol=1e-6)
