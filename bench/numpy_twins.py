"""What a NumPy user would write for the models of bench/micro.py; same names as torch_twins.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from treadle.declare.arrays import Array

Run = Callable[[], list[Array]]
Arrays = Mapping[str, Array]


def silu(inputs: Arrays, _weights: Arrays) -> Run:
    """x / (1 + exp(-x))."""
    x = inputs["x"]
    return lambda: [x / (1 + np.exp(-x))]


def softmax(inputs: Arrays, _weights: Arrays) -> Run:
    """Over the last axis."""
    return lambda: [_softmax(inputs["x"])]


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(inputs: Arrays, weights: Arrays) -> Run:
    """Over the last axis, epsilon 1e-5."""
    x, w, b = inputs["x"], weights["w"], weights["b"]

    def run() -> list[Array]:
        d = x - x.mean(-1, keepdims=True)
        return [d / np.sqrt((d * d).mean(-1, keepdims=True) + np.float32(1e-5)) * w + b]

    return run


def mean(inputs: Arrays, _weights: Arrays) -> Run:
    """Of the rows."""
    return lambda: [inputs["x"].mean(1)]


def matmul(inputs: Arrays, weights: Arrays) -> Run:
    """x @ w."""
    x, w = inputs["x"], weights["w"]
    return lambda: [x @ w]


def attention(inputs: Arrays, weights: Arrays) -> Run:
    """Scaled dot product attention without a mask."""
    q, k, v, c = inputs["q"], inputs["k"], inputs["v"], weights["c"]
    return lambda: [_softmax(q @ k.swapaxes(-1, -2) * c) @ v]


def transpose(inputs: Arrays, _weights: Arrays) -> Run:
    """A copy, as the engines give one."""
    return lambda: [inputs["x"].transpose(0, 2, 1, 3).copy()]


def embedding(inputs: Arrays, weights: Arrays) -> Run:
    """Rows of a table."""
    return lambda: [weights["t"][inputs["i"]]]


def top_k(inputs: Arrays, _weights: Arrays) -> Run:
    """The 10 largest, in descending order."""
    x = inputs["x"]

    def run() -> list[Array]:
        found = np.argpartition(x, -10)[:, -10:]
        return [-np.sort(-np.take_along_axis(x, found, -1))]

    return run
