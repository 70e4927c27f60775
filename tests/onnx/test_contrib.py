"""Operators of com.microsoft give what ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

import treadle
from tests.onnx.ort import Run, check

RNG = np.random.default_rng(3)


def f32(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


def i32(data: object) -> np.ndarray:
    return np.asarray(data, np.int32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def s8(*shape: int) -> np.ndarray:
    """Seven bits: with eight, ONNX Runtime's sums saturate on processors without VNNI."""
    return RNG.integers(-63, 64, shape).astype(np.int8)


def scalar(x: float, dtype: type = np.float32) -> np.ndarray:
    return np.asarray(x, dtype)


X = {"x": f32(2, 3, 8)}
CONTRACTIONS = {
    "FusedMatMul": Run("FusedMatMul", {"a": f32(2, 4, 3), "b": f32(2, 5, 4)},
                       attrs={"alpha": 0.5, "transA": 1, "transB": 1}),
    "FusedMatMul batch": Run("FusedMatMul", {"a": f32(3, 2, 4), "b": f32(2, 4, 5)},
                             attrs={"transBatchA": 1}),
    "TransposeMatMul": Run("TransposeMatMul", {"a": f32(2, 3, 4), "b": f32(2, 5, 4)},
                           attrs={"transB": 1, "alpha": 2.0}),
    "FusedGemm": Run("FusedGemm", {"a": f32(3, 4), "b": f32(4, 5), "c": f32(5)},
                     attrs={"activation": "LeakyRelu", "activation_alpha": 0.3, "beta": 2.0}),
    "Inverse": Run("Inverse", {"x": f32(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)}),
    "MatMulIntegerToFloat": Run("MatMulIntegerToFloat", {
        "a": u8(2, 3, 8), "b": s8(8, 4), "as": scalar(0.1), "bs": f32(4, low=0.1),
        "az": scalar(7, np.uint8), "bz": s8(4), "bias": f32(4)}, weights=["b", "bs", "bz"]),
    "DynamicQuantizeMatMul": Run("DynamicQuantizeMatMul", {
        "a": f32(2, 3, 8), "b": s8(8, 4), "bs": scalar(0.02), "bz": None, "bias": f32(4)},
        weights=["b", "bs"], rtol=1e-4),
}
NORMS = {
    "SkipLayerNormalization": Run("SkipLayerNormalization", {
        **X, "skip": f32(2, 3, 8), "g": f32(8), "b": f32(8), "bias": f32(8)}),
    "SkipLayerNormalization broadcast": Run("SkipLayerNormalization", {
        **X, "skip": f32(1, 3, 8), "g": f32(8)}, attrs={"epsilon": 1e-3}),
    "SkipSimplifiedLayerNormalization": Run("SkipSimplifiedLayerNormalization", {
        **X, "skip": f32(2, 3, 8), "g": f32(8), "bias": f32(8)}),
    "EmbedLayerNormalization": Run("EmbedLayerNormalization", {
        "ids": i32([[1, 2, 0], [3, 0, 0]]), "segments": i32([[0, 0, 1], [0, 1, 1]]),
        "words": f32(5, 8), "positions": f32(6, 8), "table": f32(2, 8), "g": f32(8), "b": f32(8),
        "mask": i32([[1, 1, 1], [1, 1, 0]])}, outputs=2,
        weights=["words", "positions", "table", "g", "b"]),
    "EmbedLayerNormalization without segments": Run("EmbedLayerNormalization", {
        "ids": i32([[1, 2, 0]]), "segments": None, "words": f32(5, 8), "positions": f32(6, 8),
        "table": None, "g": f32(8), "b": f32(8), "mask": None, "places": i32([[2, 0, 5]])},
        outputs=3, weights=["words", "positions", "g", "b"]),
    "SimplifiedLayerNormalization": Run("SimplifiedLayerNormalization", {**X, "g": f32(8)},
                                        domain="", attrs={"axis": -1, "epsilon": 1e-3}),
}
PAST = f32(2, 2, 2, 4, 4)
ATTENTION_IN = {**X, "w": f32(8, 24), "b": f32(24)}
QKV = {"q": f32(2, 3, 8), "k": f32(2, 5, 8), "v": f32(2, 5, 8)}
CACHE = (f32(2, 2, 4, 4), f32(2, 2, 4, 4))
ROTARY = (f32(16, 2), f32(16, 2))
GQA_PROMPT = {"q": f32(2, 3, 64), "k": f32(2, 3, 32), "v": f32(2, 3, 32)}
GQA_STEP = {"q": f32(2, 1, 64), "k": f32(2, 1, 32), "v": f32(2, 1, 32)}
GQA_CACHE = (f32(2, 2, 4, 16), f32(2, 2, 4, 16))
TURN = (f32(16, 8), f32(16, 8))


def attention(operands: Mapping[str, np.ndarray | None], outputs: int = 1, **attrs: object) -> Run:
    return Run("Attention", {**ATTENTION_IN, **operands}, outputs, {"num_heads": 2, **attrs})


def mha(operands: Mapping[str, np.ndarray | None], outputs: int = 1, **attrs: object) -> Run:
    return Run("MultiHeadAttention", operands, outputs, {"num_heads": 2, **attrs})


def gqa(base: Mapping[str, np.ndarray | None], past: tuple[np.ndarray, np.ndarray] | None,
        last: Sequence[int], total: int, *rest: np.ndarray | None, **attrs: object) -> Run:
    names = ("cos", "sin", "positions", "added", "sink")
    operands = {**base, "pk": past[0] if past else None, "pv": past[1] if past else None,
                "last": i32(last), "total": i32([total]),
                **dict(zip(names, rest, strict=False))}
    return Run("GroupQueryAttention", operands, 3,
               {"num_heads": 4, "kv_num_heads": 2, **attrs})


ATTENTIONS = {
    "Attention": attention({}),
    "Attention causal": attention({}, unidirectional=1, scale=0.3),
    "Attention lengths": attention({"mask": i32([2, 3])}),
    "Attention raw mask": attention({"mask": i32([[1, 1, 0], [1, 0, 0]])}),
    "Attention mask 3D": attention({"mask": i32(np.tril(np.ones((2, 3, 3))))}),
    "Attention ends and starts": attention({"mask": i32([3, 3, 1, 0])}),
    "Attention all hidden": attention({"mask": i32([[0, 0, 0], [1, 1, 1]])}),
    "Attention past": attention({"mask": None, "past": PAST}, 2, unidirectional=1),
    "Attention bias": attention({"mask": None, "past": None, "added": f32(1, 2, 3, 3)}),
    "Attention sizes": Run("Attention", {**X, "w": f32(8, 20), "b": f32(20)},
                           attrs={"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}),
    "QAttention": Run("QAttention", {
        "x": u8(2, 3, 8), "w": s8(8, 24), "b": f32(24), "xs": scalar(0.01), "ws": scalar(0.01),
        "mask": i32([2, 3]), "xz": scalar(120, np.uint8), "wz": scalar(0, np.int8)},
        attrs={"num_heads": 2}, weights=["w", "ws", "wz"], rtol=1e-4),
    "MHA": mha(QKV),
    "MHA bias and mask": mha({**QKV, "b": f32(24), "mask": i32([[1, 1, 1, 0, 0], [1] * 5])}),
    "MHA causal": mha({**QKV, "k": f32(2, 3, 8), "v": f32(2, 3, 8)}, unidirectional=1),
    "MHA added": mha({**QKV, "b": None, "mask": None, "added": f32(2, 1, 3, 5)}),
    "MHA cache": mha({**QKV, "k": f32(2, 3, 8), "v": f32(2, 3, 8), "b": None, "mask": None,
                      "added": None, "pk": CACHE[0], "pv": CACHE[1]}, 3),
    "MHA cross": mha({"q": f32(2, 3, 8), "k": f32(2, 2, 5, 4), "v": f32(2, 2, 5, 4)}),
    "RotaryEmbedding": Run("RotaryEmbedding", {
        **X, "at": np.array([[0, 1, 2], [3, 4, 5]]), "cos": ROTARY[0], "sin": ROTARY[1]},
        weights=["cos", "sin"]),
    "RotaryEmbedding offset": Run("RotaryEmbedding", {
        "x": f32(2, 2, 3, 4), "at": np.array([2]), "cos": ROTARY[0], "sin": ROTARY[1]},
        attrs={"interleaved": 1}, weights=["cos", "sin"]),
    "RotaryEmbedding part": Run("RotaryEmbedding", {
        **X, "at": np.array([1]), "cos": f32(16, 1), "sin": f32(16, 1)},
        attrs={"num_heads": 2, "rotary_embedding_dim": 2}),
    "GQA prompt": gqa(GQA_PROMPT, None, [2, 2], 3),
    "GQA padded prompt": gqa(GQA_PROMPT, None, [2, 2], 3, *TURN, do_rotary=1),
    "GQA step": gqa(GQA_STEP, GQA_CACHE, [4, 4], 5, *TURN, do_rotary=1),
    # what the present holds beyond a sequence's length is not specified
    "GQA uneven step": replace(gqa(GQA_STEP, GQA_CACHE, [4, 2], 5, *TURN, do_rotary=1,
                                   rotary_interleaved=1), compared=1),
    "GQA window": gqa(GQA_STEP, GQA_CACHE, [4, 4], 5, local_window_size=2, softcap=2.0),
    "GQA prompt window": gqa(GQA_PROMPT, None, [2, 2], 3, local_window_size=2, scale=0.2),
    "GQA smooth": gqa(GQA_PROMPT, None, [2, 2], 3, smooth_softmax=1),
    "GQA packed": gqa({"q": f32(2, 3, 128), "k": None, "v": None}, None, [2, 2], 3),
    "GQA sink": gqa(GQA_PROMPT, None, [2, 2], 3, None, None, None, None, f32(4)),
    "GQA added": gqa(GQA_STEP, GQA_CACHE, [4, 4], 5, None, None, None, f32(1, 4, 1, 5)),
}
S, Z = scalar(0.05), scalar(128, np.uint8)


def quantised(op: str, operands: Mapping[str, np.ndarray | None], weights: Sequence[str] = (),
              **attrs: object) -> Run:
    return Run(op, operands, attrs=attrs, weights=weights, steps=1)


ONE = {"x": u8(2, 3, 4, 5), "xs": S, "xz": Z}
OUT = {"ys": scalar(0.04), "yz": scalar(100, np.uint8)}
QUANTISED = {
    "QLinearAdd": quantised("QLinearAdd", {
        "a": u8(2, 3), "as": S, "az": Z, "b": u8(3), "bs": scalar(0.02), "bz": Z, **OUT}),
    "QLinearMul": quantised("QLinearMul", {
        "a": u8(2, 3), "as": S, "az": Z, "b": u8(2, 3), "bs": S, "bz": Z, **OUT}),
    "QLinearSigmoid": quantised("QLinearSigmoid", {
        **ONE, "ys": scalar(1 / 256), "yz": scalar(0, np.uint8)}),
    "QLinearLeakyRelu": quantised("QLinearLeakyRelu", {**ONE, **OUT}, alpha=0.2),
    "QLinearSoftmax": quantised("QLinearSoftmax", {
        **ONE, "ys": scalar(1 / 256), "yz": scalar(0, np.uint8)},
        weights=["xs", "xz", "ys", "yz"], axis=-1, opset=13),
    "QLinearSoftmax of opset 11": quantised("QLinearSoftmax", {
        **ONE, "ys": scalar(1 / 256), "yz": scalar(0, np.uint8)},
        weights=["xs", "xz", "ys", "yz"], axis=2, opset=11),
    "QLinearAveragePool": quantised("QLinearAveragePool", {**ONE, **OUT}, kernel_shape=[2, 2],
                                    strides=[1, 2], pads=[1, 0, 0, 1]),
    "QLinearAveragePool channels last": quantised(
        "QLinearAveragePool", {**ONE, **OUT}, kernel_shape=[2, 2], channels_last=1),
    "QLinearGlobalAveragePool": quantised("QLinearGlobalAveragePool", {**ONE, **OUT}),
    "QLinearConcat": quantised("QLinearConcat", {
        **OUT, "a": u8(2, 3), "as": S, "az": Z, "b": u8(2, 1), "bs": scalar(0.02), "bz": Z},
        weights=["ys", "yz", "as", "az", "bs", "bz"], axis=1),
    "QLinearWhere": quantised("QLinearWhere", {
        "c": np.array([True, False, True]), "a": u8(2, 3), "as": S, "az": Z, "b": u8(2, 3),
        "bs": scalar(0.02), "bz": Z, **OUT}),
    "QuantizeLinear": quantised("QuantizeLinear", {"x": f32(2, 3), "s": S, "z": Z}),
}


def nbits(bits: int, k: int, block: int, zero: str, bias: bool = False) -> Run:
    n, blocks = 5, -(-k // block)
    operands: dict[str, np.ndarray | None] = {
        "a": f32(3, k), "b": u8(n, blocks, block * bits // 8), "s": f32(n * blocks, low=0.1)}
    if zero == "packed":
        operands["z"] = u8(n * -(-blocks * bits // 8))
    elif zero == "float":
        operands["z"] = f32(n * blocks, low=3, high=9)
    if bias:
        operands |= {"z": operands.get("z"), "g": None, "bias": f32(n)}
    held = [x for x in ("b", "s", "z", "bias") if operands.get(x) is not None]
    return Run("MatMulNBits", operands, weights=held, rtol=1e-4, atol=1e-4, attrs={
        "K": k, "N": n, "bits": bits, "block_size": block})


def blocks(bits: int, zero: bool, indices: np.ndarray) -> Run:
    operands = {"data": u8(6, 32 * bits // 8), "at": indices, "s": f32(6, 2, low=0.1)}
    if zero:
        operands["z"] = u8(6, -(-2 * bits // 8))
    return Run("GatherBlockQuantized", operands, weights=["data", "s", "z"][:2 + zero], attrs={
        "bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1})


WEIGHTS = {
    "MatMulNBits 4": nbits(4, 32, 16, ""), "MatMulNBits 4 tail": nbits(4, 40, 16, "packed"),
    "MatMulNBits 8": nbits(8, 32, 16, "packed"), "MatMulNBits 8 default": nbits(8, 32, 16, ""),
    "MatMulNBits 4 float zeros": nbits(4, 32, 16, "float"),
    "MatMulNBits 4 bias": nbits(4, 32, 16, "packed", True),
    "GatherBlockQuantized 4": blocks(4, False, np.array([[1, 5], [0, 3]])),
    "GatherBlockQuantized 4 zeros": blocks(4, True, np.array([2, 2])),
    "GatherBlockQuantized 8": blocks(8, True, np.array([4])),
}
LSTM = {
    "DynamicQuantizeLSTM": Run("DynamicQuantizeLSTM", {
        "x": f32(4, 1, 3), "w": s8(1, 3, 20), "r": s8(1, 5, 20), "b": f32(1, 40), "lens": None,
        "h": None, "c": None, "p": None, "ws": f32(1, 20, low=0.005, high=0.01),
        "wz": np.zeros((1, 20), np.int8), "rs": f32(1, 20, low=0.005, high=0.01),
        "rz": np.zeros((1, 20), np.int8)}, 3, {"hidden_size": 5},
        weights=["w", "r", "ws", "wz", "rs", "rz"]),
}
OTHERS = {
    "Trilu": Run("Trilu", {"x": f32(2, 3, 4), "k": np.array(1)}, attrs={"upper": 0},
                 weights=["k"]),
    "Unique": Run("Unique", {"x": np.array([2, 1, 1, 3, 4, 3], np.float32)}, 3),
}
ALL = {**OTHERS, **WEIGHTS, **LSTM, **CONTRACTIONS, **NORMS, **ATTENTIONS, **QUANTISED}


@pytest.mark.parametrize("name", ALL)
def test_as_onnxruntime(name: str) -> None:
    check(ALL[name])


@pytest.mark.parametrize("stacked", ["all", "keys"])
def test_stacked_operands_mean_what_separate_ones_do(stacked: str) -> None:
    parts = [f32(2, 3, 8) for _ in range(3)]
    split = [p.reshape(2, 3, 2, 4) for p in parts]
    if stacked == "all":
        operands = {"q": np.stack(split, 3)}
    else:
        operands = {"q": parts[0], "k": np.stack(split[1:], 3)}
    separate = mha(dict(zip("qkv", parts, strict=True)))
    one, other = (treadle.load(r.model()).compile(device="reference")(r.feeds())["y0"]
                  for r in (separate, mha(operands)))
    np.testing.assert_array_equal(one, other)
