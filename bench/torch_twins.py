"""What a PyTorch user would write for the models of bench/micro.py: eager, in inference mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.declare.arrays import Array

Run = Callable[[], list[Any]]
Arrays = Mapping[str, Array]
Body = Callable[..., Any]


def _run(body: Body, *arrays: Array) -> Run:
    """Call `body` on tensors that share the arrays' memory."""
    import torch

    tensors = [torch.from_numpy(a) for a in arrays]

    def run() -> list[Any]:
        with torch.inference_mode():
            return [body(*tensors).numpy()]

    return run


def _functional() -> Any:  # noqa: ANN401 - torch is not there when types are checked
    from torch.nn import functional

    return functional


def bias_gelu(inputs: Arrays, weights: Arrays) -> Run:
    """Bias and the exact GELU."""
    f = _functional()
    return _run(lambda x, b: f.gelu(x + b), inputs["x"], weights["b"])


def silu(inputs: Arrays, _weights: Arrays) -> Run:
    """x * sigmoid(x)."""
    return _run(_functional().silu, inputs["x"])


def softmax(inputs: Arrays, _weights: Arrays) -> Run:
    """Over the last axis."""
    return _run(lambda x: x.softmax(-1), inputs["x"])


def layer_norm(inputs: Arrays, weights: Arrays) -> Run:
    """Over the last axis."""
    f = _functional()
    return _run(lambda x, w, b: f.layer_norm(x, w.shape, w, b), inputs["x"], weights["w"],
                weights["b"])


def mean(inputs: Arrays, _weights: Arrays) -> Run:
    """Of the rows."""
    return _run(lambda x: x.mean(1), inputs["x"])


def matmul(inputs: Arrays, weights: Arrays) -> Run:
    """`linear`, with the weight as a layer holds it."""
    f = _functional()
    return _run(f.linear, inputs["x"], weights["w"].T.copy())


def conv3x3(inputs: Arrays, weights: Arrays) -> Run:
    """Padded by one."""
    return _conv(inputs, weights, padding=1)


def conv1x1(inputs: Arrays, weights: Arrays) -> Run:
    """A product at every point."""
    return _conv(inputs, weights)


def depthwise(inputs: Arrays, weights: Arrays) -> Run:
    """One filter a channel."""
    return _conv(inputs, weights, padding=1, groups=64)


def _conv(inputs: Arrays, weights: Arrays, **options: int) -> Run:
    f = _functional()
    return _run(lambda x, w, b: f.conv2d(x, w, b, **options), inputs["x"], weights["w"],
                weights["b"])


def max_pool(inputs: Arrays, _weights: Arrays) -> Run:
    """3x3 with stride 2."""
    f = _functional()
    return _run(lambda x: f.max_pool2d(x, 3, 2, 1), inputs["x"])


def attention(inputs: Arrays, _weights: Arrays) -> Run:
    """Scaled dot product attention without a mask."""
    return _run(_functional().scaled_dot_product_attention, inputs["q"], inputs["k"], inputs["v"])


def transpose(inputs: Arrays, _weights: Arrays) -> Run:
    """A copy, as the engines give one."""
    return _run(lambda x: x.permute(0, 2, 1, 3).contiguous(), inputs["x"])


def embedding(inputs: Arrays, weights: Arrays) -> Run:
    """Rows of a table."""
    return _run(_functional().embedding, inputs["i"], weights["t"])


def top_k(inputs: Arrays, _weights: Arrays) -> Run:
    """The 10 largest, in descending order."""
    return _run(lambda x: x.topk(10).values, inputs["x"])
