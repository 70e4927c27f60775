"""What is no good model, or does not fit one, gets an error that says what and where."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import treadle
from tests.onnx.build import F32, I64, add_model, model, node
from treadle.errors import BindingError, ImportFailure, UnsupportedError


def fails(source: object, *parts: str, error: type[Exception] = ImportFailure) -> str:
    """Loading raises an error whose text has all of `parts`."""
    with pytest.raises(error) as caught:
        treadle.load(source)
    text = str(caught.value)
    for part in parts:
        assert part in text, text
    return text


def test_truncated_file(tmp_path: Path) -> None:
    data = model([node("Add", ["x", "w"], ["y"])], [("x", F32, [1000])], [("y", F32, [1000])],
                 weights={"w": np.arange(1000, dtype=np.float32)}).SerializeToString()
    for cut in (0, 1, 10, len(data) // 2, len(data) - 1):
        path = tmp_path / "cut.onnx"
        path.write_bytes(data[:cut])
        fails(path, "cut.onnx", "truncated")


def test_not_an_onnx_file(tmp_path: Path) -> None:
    path = tmp_path / "picture.onnx"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    fails(path, "picture.onnx")
    fails(tmp_path / "absent.onnx", "cannot read", "absent.onnx")
    fails(tmp_path, "cannot read" if not tmp_path.is_dir() else "not a regular file")
    fails(b"", "empty")


def test_unknown_operators_are_reported_at_once() -> None:
    proto = model([node("Frobnicate", ["x"], ["a"], name="first"),
                   node("Frobnicate", ["a"], ["b"]),
                   node("Blend", ["x", "x"], ["c"], domain="com.example"),
                   node("Add", ["b", "c"], ["y"])],
                  [("x", F32, [2])], [("y", F32, [2])], imports=[("com.example", 1)])
    text = fails(proto, "Frobnicate", "com.example::Blend", "first", error=UnsupportedError)
    row = next(line for line in text.splitlines() if "Frobnicate" in line)
    assert row.split()[2] == "2", row


def test_an_unknown_attribute_is_refused() -> None:
    proto = model([node("Relu", ["x"], ["y"], leak=0.5)], [("x", F32, [2])], [("y", F32, [2])])
    fails(proto, "'leak'", "Relu", error=UnsupportedError)


def test_missing_initializer() -> None:
    proto = model([node("Add", ["x", "w"], ["y"], name="sum")], [("x", F32, [2])],
                  [("y", F32, [2])])
    fails(proto, "sum", "'w'", "missing")


def test_cyclic_graph() -> None:
    proto = model([node("Add", ["x", "b"], ["a"], name="one"), node("Relu", ["a"], ["b"])],
                  [("x", F32, [2])], [("a", F32, [2])])
    fails(proto, "cyclic", "one")


def test_unsorted_nodes_are_sorted() -> None:
    proto = model([node("Relu", ["a"], ["y"]), node("Neg", ["x"], ["a"])], [("x", F32, [2])],
                  [("y", F32, [2])])
    out = treadle.load(proto).compile()(x=np.array([-1, 2], np.float32))
    np.testing.assert_array_equal(out["y"], [1, 0])


@pytest.mark.parametrize("dims", [[-1], [-5, 2], [2**40, 2**40], [2**62], [3]])
def test_impossible_dimensions(dims: list[int]) -> None:
    proto = model([node("Identity", ["w"], ["y"])], [], [("y", F32, None)],
                  weights={"w": np.zeros(2, np.float32)})
    proto.graph.initializer[0].dims[:] = dims
    fails(proto, "initializer 'w'")


def test_cast_to_an_unknown_type() -> None:
    proto = model([node("Cast", ["x"], ["y"], to=99)], [("x", F32, [2])], [("y", F32, [2])])
    fails(proto, "99")


def test_opsets() -> None:
    proto = add_model()
    proto.opset_import[0].version = 999
    fails(proto, "opset 999", "re-export")
    proto = add_model()
    proto.ir_version = 99
    fails(proto, "IR version 99")
    proto = add_model()
    proto.opset_import.add(domain="", version=20)
    fails(proto, "imported as opset")
    proto = add_model()
    proto.opset_import.add(domain="org.unused", version=3)
    treadle.load(proto)


def test_recursive_function() -> None:
    fn = onnx.helper.make_function("f", "Loop", ["x"], ["y"],
                                   [node("Loop", ["x"], ["y"], domain="f")],
                                   [onnx.helper.make_opsetid("f", 1)])
    proto = model([node("Loop", ["x"], ["y"], domain="f")], [("x", F32, [2])], [("y", F32, [2])],
                  imports=[("f", 1)], functions=[fn])
    fails(proto, "nested deeper")


def external(folder: Path, location: str, *, length: int = 8, offset: int = 0) -> Path:
    """A model file whose weight lies in an external file."""
    proto = model([node("Add", ["x", "w"], ["y"])], [("x", F32, [2])], [("y", F32, [2])],
                  weights={"w": np.array([1, 2], np.float32)})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(4) + np.array([1, 2], np.float32).tobytes())
    exe = treadle.load(external(tmp_path, "w.bin", offset=4)).compile()
    np.testing.assert_array_equal(exe(np.zeros(2, np.float32))["y"], [1, 2])
    fails(external(tmp_path, "w.bin", offset=8), "do not hold")
    fails(external(tmp_path, "w.bin", offset=-4), "do not hold")
    fails(external(tmp_path, "w.bin", length=2**62), "do not hold")
    fails(external(tmp_path, "absent.bin"), "missing")
    fails(external(tmp_path, "w.bin").read_bytes(), "came as bytes")


@pytest.mark.parametrize("where", ["/etc/passwd", "../secret.bin", "sub/../../secret.bin", "",
                                   "a\0b"])
def test_external_data_outside_the_folder(tmp_path: Path, where: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(8))
    fails(external(folder, where), "outside the model's folder")


def test_external_data_through_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(8))
    os.symlink(tmp_path / "secret.bin", folder / "link.bin")
    fails(external(folder, "link.bin"), "outside the model's folder")


def binding_fails(named: dict[str, object], *parts: str) -> None:
    """Calling the two-input model raises an error whose text has all of `parts`."""
    proto = model([node("Add", ["a", "b"], ["y"])], [("a", F32, ["n", 3]), ("b", F32, ["n", 3])],
                  [("y", F32, ["n", 3])])
    exe = treadle.load(proto).compile()
    with pytest.raises(BindingError) as caught:
        exe(named)
    for part in parts:
        assert part in str(caught.value), caught.value


def test_binding_errors() -> None:
    good = np.zeros((2, 3), np.float32)
    binding_fails({"a": good, "c": good}, "'c'", "a: f32[n,3]")
    binding_fails({"a": good}, "'b' is missing")
    binding_fails({"a": good, "b": np.zeros(3, np.float32)}, "b: f32[n,3]", "rank 1")
    binding_fails({"a": good, "b": np.zeros((2, 3))}, "dtype f64", "astype('float32')")
    binding_fails({"a": good, "b": np.zeros((2, 4), np.float32)}, "axis 1 must be 3")
    binding_fails({"a": good, "b": np.zeros((5, 3), np.float32)}, "n is 2 in input 'a'",
                  "5 in input 'b'")
    binding_fails({"a": good, "b": object()}, "object is no array")


def test_a_shape_that_does_not_fit_names_the_node() -> None:
    proto = model([node("Add", ["x", "w"], ["y"], name="sum")], [("x", F32, [2])],
                  [("y", F32, [2])], weights={"w": np.zeros(3, np.float32)})
    fails(proto, "sum", "do not broadcast", "f32[2]", "f32[3]")


def test_an_index_out_of_range_names_the_node() -> None:
    proto = model([node("Gather", ["x", "i"], ["y"], name="pick")],
                  [("x", F32, [3]), ("i", I64, ["k"])], [("y", F32, ["k"])])
    exe = treadle.load(proto).compile()
    with pytest.raises(treadle.TreadleError) as caught:
        exe(x=np.zeros(3, np.float32), i=np.array([0, 7]))
    assert "pick" in str(caught.value) and "7" in str(caught.value)
