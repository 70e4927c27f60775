"""Sparse initializers, made dense when the model is read."""

from __future__ import annotations

import math

import numpy as np

from ...declare.arrays import Array
from ...errors import ImportFailure
from .context import State
from .protocol import onnx
from .reading import ELEMENT_LIMIT, tensor_array

DENSE_LIMIT = 2**26
"""Most elements a sparse tensor may have when it is made dense."""


def dense(proto: onnx.SparseTensorProto, state: State, name: str) -> Array:
    """The dense array of a COO tensor with linear or coordinate indices."""
    where = f"{state.file}: sparse tensor '{name}'"
    shape = tuple(proto.dims)
    total = math.prod(shape)
    if any(n < 0 for n in shape) or total > min(DENSE_LIMIT, ELEMENT_LIMIT):
        raise ImportFailure(f"{where}: impossible or too large dimensions {list(shape)}")
    values = tensor_array(proto.values, state.beside, where)
    indices = tensor_array(proto.indices, state.beside, where).astype(np.int64)
    if indices.ndim == 2 and indices.shape[1] == len(shape):
        strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]
        indices = indices @ np.asarray(strides, np.int64)
    if indices.shape != values.shape or (indices.size and (
            indices.min() < 0 or indices.max() >= total)):
        raise ImportFailure(f"{where}: its indices do not fit {list(shape)}")
    out = np.zeros(total, values.dtype)
    out[indices] = values
    return out.reshape(shape)
