"""Strings by ONNX Runtime."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from treadle.ir.types import DType

from . import ort


def string_split(x: np.ndarray, *, delimiter: str = "", maxsplit: int | None = None,
                 fresh: str = "") -> list[np.ndarray]:
    return ort.run("StringSplit", [x], {"delimiter": delimiter, "maxsplit": maxsplit}, outputs=2,
                   opset=20)


def to_string(x: np.ndarray) -> list[np.ndarray]:
    return ort.run("Cast", [x], {"to": TensorProto.STRING})


def parse_number(x: np.ndarray, *, dtype: DType) -> list[np.ndarray]:
    assert dtype.name == "f32"
    return ort.run("Cast", [x], {"to": TensorProto.FLOAT})


def tfidf(x: np.ndarray, *, mode: str, pool: np.ndarray, ngram_counts: tuple[int, ...],
          ngram_indexes: tuple[int, ...], weights: tuple[float, ...], min_length: int,
          max_length: int, max_skip: int) -> list[np.ndarray]:
    attrs = {"mode": mode, "pool_int64s": pool.tolist(), "ngram_counts": ngram_counts,
             "ngram_indexes": ngram_indexes, "weights": weights, "min_gram_length": min_length,
             "max_gram_length": max_length, "max_skip_count": max_skip}
    return ort.run("TfIdfVectorizer", [x], attrs, opset=9)
