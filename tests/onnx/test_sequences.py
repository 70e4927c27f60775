"""Sequences, optionals and strings in models, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import treadle
from tests.onnx.build import F32, I64, info, model, node
from treadle.errors import TreadleError

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Nodes = Sequence[onnx.NodeProto]


def same(proto: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    session = onnxruntime.InferenceSession(proto.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    found = treadle.load(proto).compile(device="reference")(feeds)
    for want, got in zip(session.run(None, feeds), found.values(), strict=True):
        _same(want, got)


def _same(want: Any, got: Any) -> None:  # noqa: ANN401 - an array or a list of them
    if isinstance(want, list):
        items = got
        assert len(items) == len(want)
        for w, g in zip(want, items, strict=True):
            _same(w, g)
    else:
        assert want.dtype == got.dtype
        np.testing.assert_array_equal(want, got)


def sequence_output(name: str = "y") -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, F32, None)


def build(nodes: Nodes, shape: Sequence[int | str] = ("n", 3),
          outputs: Sequence[onnx.ValueInfoProto] | None = None, **weights: object
          ) -> onnx.ModelProto:
    made = model(nodes, [("x", F32, shape)], [("y", F32, None)],
                 weights={k: np.asarray(v) for k, v in weights.items()})
    if outputs:
        del made.graph.output[:]
        made.graph.output.extend(outputs)
    return made


def grown(body: Nodes, extra: Sequence[onnx.ValueInfoProto] = ()) -> onnx.GraphProto:
    """A loop body that carries a sequence."""
    seq = [helper.make_tensor_sequence_value_info(n, F32, None) for n in ("s", "t")]
    return helper.make_graph(list(body), "body", [
        info("i", I64, []), info("go", TensorProto.BOOL, []), seq[0]],
        [info("more", TensorProto.BOOL, []), seq[1], *extra])


LOOP = grown([
    node("Identity", ["go"], ["more"]), node("Unsqueeze", ["i", "zero"], ["ends"]),
    node("Slice", ["x", "zero", "ends", "zero"], ["part"]),
    node("SequenceInsert", ["s", "part"], ["t"])])
MAPPED = helper.make_graph([node("Mul", ["e", "e"], ["f"])], "each",
                           [info("e", F32, None)], [info("f", F32, None)])
MODELS = {
    "parts joined": build([node("SplitToSequence", ["x", "two"], ["s"]),
                           node("ConcatFromSequence", ["s"], ["y"], axis=1)], (4, 3), two=2),
    "one element": build([node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0),
                          node("SequenceAt", ["s", "last"], ["y"])], last=-1),
    "rows stacked": build([node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0),
                           node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1)]),
    "a loop": build([node("SequenceEmpty", [], ["none"]),
                     node("Loop", ["three", "", "none"], ["s"], body=LOOP),
                     node("ConcatFromSequence", ["s"], ["y"], axis=0)], zero=[0], three=3),
    "a sequence out": build([node("SplitToSequence", ["x", "two"], ["s"]),
                             node("SequenceErase", ["s", "zero"], ["r"]),
                             node("SequenceInsert", ["r", "x", "zero"], ["y"])], (4, 3),
                            [sequence_output()], two=2, zero=0),
    "length": build([node("SplitToSequence", ["x"], ["s"]), node("SequenceLength", ["s"], ["n"]),
                     node("Cast", ["n"], ["y"], to=F32)]),
    "map": build([node("SplitToSequence", ["x", "parts"], ["s"]),
                  node("SequenceMap", ["s"], ["y"], body=MAPPED)], (4, 3), [sequence_output()],
                 parts=[1, 3]),
}


@pytest.mark.parametrize("name", MODELS)
def test_as_onnx_runtime(name: str) -> None:
    same(MODELS[name], {"x": X})


def test_elements_of_no_rank_are_explained() -> None:
    made = model([node("SequenceAt", ["s", "zero"], ["y"])], [], [("y", F32, None)],
                 weights={"zero": np.asarray(0)})
    made.graph.input.append(helper.make_tensor_sequence_value_info("s", F32, None))
    with pytest.raises(TreadleError, match="no known rank"):
        treadle.load(made)


def test_a_position_outside_says_so() -> None:
    made = build([node("SplitToSequence", ["x"], ["s"]), node("SequenceAt", ["s", "far"], ["y"])],
                 far=9)
    with pytest.raises(TreadleError, match="position 9 is outside -4..3"):
        treadle.load(made).compile(device="reference")({"x": X})


def strings(nodes: Nodes, shape: Sequence[int | str], kinds: Sequence[int]) -> onnx.ModelProto:
    return model(nodes, [("x", TensorProto.STRING, shape)],
                 [(f"y{i}", k, None) for i, k in enumerate(kinds)])


TEXT = TensorProto.STRING
TEXTS = {
    "concat": (strings([node("StringConcat", ["x", "x"], ["y0"])], ["n"], [TEXT]), ["a", "é"]),
    "split": (strings([node("StringSplit", ["x"], ["y0", "y1"], delimiter=",", maxsplit=2)],
                      ["n"], [TEXT, I64]), ["a,b,c,d", "", "x"]),
    "normal": (strings([node("StringNormalizer", ["x"], ["y0"], stopwords=["the"], locale="C",
                             case_change_action="UPPER")], ["n"], [TEXT]), ["The", "cat"]),
    "match": (strings([node("RegexFullMatch", ["x"], ["y0"], pattern=r"\d+\.?\d*")], ["n"],
                      [TensorProto.BOOL]), ["12.5", "12a"]),
    "counts": (strings([node("TfIdfVectorizer", ["x"], ["y0"], mode="TF", min_gram_length=1,
                             max_gram_length=2, max_skip_count=1, ngram_counts=[0, 2],
                             ngram_indexes=[0, 1, 2], pool_strings=["a", "b", "a", "b"])], ["n"],
                       [F32]), ["a", "c", "b", "a"]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_strings_as_onnx_runtime(name: str) -> None:
    proto, words = TEXTS[name]
    same(proto, {"x": np.asarray(words, object)})
