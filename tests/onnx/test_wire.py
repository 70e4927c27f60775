"""Tensors that are taken out of a message are the ones that onnx's own reader finds in it."""

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.errors import ImportFailure
from treadle.frontends.onnx.reading import read_model, tensor_array
from treadle.frontends.onnx.wire import OWN, separate


def model(*tensors: TensorProto) -> onnx.ModelProto:
    """y = x + w, and what else is held."""
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", kind, [3, 1000])],
        [helper.make_tensor_value_info("y", kind, [3, 1000])], list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def held() -> list[TensorProto]:
    """Tensors of both kinds: taken out and left in."""
    rng = np.random.default_rng(5)
    w = rng.normal(size=(3, 1000)).astype(np.float32)
    fields = helper.make_tensor("fields", TensorProto.FLOAT, [2000], [1.5] * 2000)
    odd = numpy_helper.from_array(rng.integers(0, 9, 4099, np.int8), "odd length")
    odd.doc_string = "described"
    return [numpy_helper.from_array(w, "w"), fields, odd,
            numpy_helper.from_array(w[:, :7].astype(np.float64), "small"),
            numpy_helper.from_array(w.astype(np.float16), "half")]


def test_tensors_are_those_of_onnx(tmp_path: Path) -> None:
    whole = model(*held())
    path = tmp_path / "model.onnx"
    path.write_bytes(whole.SerializeToString())
    for source in (path, path.read_bytes()):
        proto, beside, _ = read_model(source)
        out = [t.data_location == TensorProto.EXTERNAL for t in proto.graph.initializer]
        assert out == [True, False, True, False, True]
        for ours, theirs in zip(proto.graph.initializer, whole.graph.initializer, strict=True):
            found = tensor_array(ours, beside, ours.name)
            assert ours.doc_string == theirs.doc_string
            assert found.flags.aligned
            np.testing.assert_array_equal(found, numpy_helper.to_array(theirs))
        assert proto.graph.node == whole.graph.node
    assert beside.own is not None and len(proto.SerializeToString()) < 10_000


def test_a_tensor_of_the_wrong_length_is_refused() -> None:
    tensor = numpy_helper.from_array(np.zeros((3, 1000), np.float32), "w")
    tensor.dims[0] = 4
    with pytest.raises(ImportFailure, match="takes 16000 bytes, the file has 12000"):
        treadle.load(model(tensor).SerializeToString())


@pytest.mark.parametrize("kept", [1, 40, 5_000, 13_000])
def test_what_is_cut_short_is_left_to_protobuf(kept: int) -> None:
    data = model(*held()).SerializeToString()[:kept]
    assert separate(io.BytesIO(data), kept) == (data, None)
    with pytest.raises(ImportFailure, match="not a complete ONNX model"):
        treadle.load(data)


def test_two_graphs_are_left_to_protobuf() -> None:
    data = model(*held()).SerializeToString() * 2
    assert separate(io.BytesIO(data), len(data)) == (data, None)


def test_a_file_may_not_name_the_place_itself() -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3, 1000],
                         data_location=TensorProto.EXTERNAL)
    for key, value in {"location": OWN, "offset": "0", "length": "12000"}.items():
        tensor.external_data.add(key=key, value=value)
    with pytest.raises(ImportFailure, match="external data"):
        treadle.load(model(tensor).SerializeToString())
    with pytest.raises(ImportFailure, match="the file has 4160"):  # another tensor's, and its end
        treadle.load(model(tensor, held()[2]).SerializeToString())
