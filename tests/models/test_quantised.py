"""Models with 8-bit weights, on inputs at which f32 cannot round otherwise than f64 does."""

from __future__ import annotations

import json
from functools import cache
from unicodedata import normalize

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from tests.models.judge import DEVICES, agree, session
from tests.models.quantised import Exact, Inputs, decided, unsigned
from tests.models.steady import check_layouts, check_steady
from tools.fetch import model

ALPHABET = {"bilstm": (18, 54), "rawi": (149, 180)}
"""The ids of Arabic letters in the vocabularies of the two families."""
INPUTS = {"bilstm": {(1, 3): 788, (2, 2): 773},
          "rawi": {(1, 7): 217, (2, 5): 778},
          "rawi_ensemble": {(1, 4): 218, (2, 3): 1746},
          "rawi_v2": {(1, 7): 121, (2, 5): 542},
          "rawi_v3": {(1, 7): 215, (2, 5): 1549}}
"""For each model and shape a seed of letters that bring no value near a tie."""


def proto(name: str) -> onnx.ModelProto:
    """The published model."""
    return onnx.load(model(f"text2tashkeel/{name}.int8.onnx"))


@cache
def readings(name: str) -> list[tuple[str, Inputs, dict[str, np.ndarray]]]:
    """For each shape its text, the inputs, and what the model says in f64, as its own types."""
    source = proto(name)
    exact, found, ids = Exact(source), [], source.graph.input[0].name
    for shape, seed in INPUTS[name].items():
        inputs = {ids: np.random.default_rng(seed).integers(*ALPHABET[name.split("_")[0]], shape)}
        outputs, margins = exact(inputs)
        assert decided(margins, attention=name == "bilstm"), f"{name} {shape}: seed {seed}"
        wanted = {o.name: a.astype(helper.tensor_dtype_to_np_dtype(o.type.tensor_type.elem_type))
                  for o, a in zip(source.graph.output, outputs, strict=True)}
        found.append((f"{name} {shape}", inputs, wanted))
    return found


@pytest.mark.parametrize("name", INPUTS)
def test_onnxruntime_without_saturation_agrees_with_f64(name: str) -> None:
    judge = session(unsigned(proto(name)).SerializeToString())
    for text, inputs, wanted in readings(name):
        for (output, b), a in zip(wanted.items(), judge.run(None, inputs), strict=True):
            agree(f"{text} {output}", np.asarray(a), b)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", INPUTS)
def test_quantised_model_agrees_with_f64(name: str, device: str) -> None:
    exe = treadle.load(model(f"text2tashkeel/{name}.int8.onnx")).compile(device=device)
    for text, inputs, wanted in readings(name):
        found = exe(inputs)
        assert set(found) == set(wanted)
        for output, b in wanted.items():
            agree(f"{text} {output}", found[output], b)
    if device == "cpu":
        check_steady(exe, inputs)
        assert check_layouts(exe)


@pytest.mark.parametrize("device", DEVICES)
def test_ensemble_sets_the_vowels_of_a_sentence(device: str) -> None:
    """As every reader of the Basmala writes them (the alef of the article carries no mark)."""
    marked = normalize("NFC", "بِسْمِ اللَّهِ الرَّحْمَنِ الرَّحِيمِ")
    tables = json.loads(model("text2tashkeel/rawi_v2.vocab.json").read_text(encoding="utf-8"))
    marks = {i: text for text, i in tables["diac_to_idx"].items()}
    bare = [c for c in marked if c in tables["char_to_idx"]]
    ids = np.array([[tables["char_to_idx"][c] for c in bare]])
    exe = treadle.load(model("text2tashkeel/rawi_ensemble.int8.onnx")).compile(device=device)
    classes, = exe(input=ids).values()
    written = "".join(c + marks[int(i)] for c, i in zip(bare, classes[0], strict=True))
    assert normalize("NFC", written) == marked


def test_unsigned_weights_make_the_same_product() -> None:
    """One layer in integers, on u8 values that saturate 16-bit sums of u8 x s8 products soonest."""
    source = proto("rawi")
    node = next(n for n in source.graph.node if n.op_type == "MatMulInteger")
    stored, moved = ({t.name: t for t in p.graph.initializer} for p in (source, unsigned(source)))
    w, zero = (numpy_helper.to_array(stored[node.input[i]]).astype(np.int64) for i in (1, 3))
    a, a_zero = np.full((3, w.shape[0]), 255, np.uint8), np.uint8(3)
    a[1, ::2], a[2] = 0, np.random.default_rng(0).integers(0, 256, w.shape[0])
    alone = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", node.input[1], "z", node.input[3]], ["y"])], "g",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, a.shape),
         helper.make_tensor_value_info("z", TensorProto.UINT8, ())],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [moved[node.input[1]], moved[node.input[3]]])
    layer = helper.make_model(alone, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found, = session(layer.SerializeToString()).run(None, {"a": a, "z": np.asarray(a_zero)})
    np.testing.assert_array_equal(found, (a.astype(np.int64) - int(a_zero)) @ (w - zero))
