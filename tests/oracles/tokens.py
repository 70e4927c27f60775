"""Decoding helpers by ONNX Runtime."""

from __future__ import annotations

import numpy as np

from . import ort

DOMAIN = "com.microsoft"


def ngram_repeat_block(ids: np.ndarray, scores: np.ndarray, *, size: int) -> list[np.ndarray]:
    return ort.run("NGramRepeatBlock", [ids, scores], {"ngram_size": size}, domain=DOMAIN)


def bifurcation_detector(source: np.ndarray, current: np.ndarray, start: np.ndarray, *,
                         predicted: np.ndarray | None = None, low: int, high: int,
                         fresh: str = "") -> list[np.ndarray]:
    return ort.run("BifurcationDetector", [source, current, start, predicted],
                   {"min_ngram_size": low, "max_ngram_size": high}, outputs=2, domain=DOMAIN)
