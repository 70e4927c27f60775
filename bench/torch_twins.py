"""What a PyTorch user would write for bench/micro.py and bench/recurrence.py: eager, inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.declare.arrays import Array

Run = Callable[[], list[Any]]
Arrays = Mapping[str, Array]
Body = Callable[..., Any]


def _run(body: Body, *arrays: Array) -> Run:
    """Call `body` on tensors that share the arrays' memory."""
    return _run_all(lambda *tensors: [body(*tensors)], *arrays)


def _run_all(body: Callable[..., list[Any]], *arrays: Array) -> Run:
    """The same for a body of several outputs."""
    import torch

    tensors = [torch.from_numpy(a) for a in arrays]

    def run() -> list[Any]:
        with torch.inference_mode():
            return [out.numpy() for out in body(*tensors)]

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


def linear_attention(inputs: Arrays, _weights: Arrays) -> Run:
    """A loop over tokens, by any rule, on one state in place; past_state[N,H,dk,dv]."""
    gates = [n for n in ("decay", "beta") if n in inputs]
    return _run_all(lambda q, k, v, past, *rest: _token_loop(q, k, v, past, **dict(zip(
        gates, rest, strict=True))), *(inputs[n] for n in (
            "query", "key", "value", "past_state", *gates)))


def _token_loop(query: Any, key: Any, value: Any, past: Any, decay: Any = None,  # noqa: ANN401
                beta: Any = None) -> list[Any]:  # noqa: ANN401
    import torch

    n, heads, dk, dv = past.shape
    tokens, many = query.shape[1], n * heads

    def by_token(x: Any, *sizes: int) -> Any:  # noqa: ANN401
        return x.view(n, tokens, heads, -1).transpose(0, 1).reshape(tokens, many, *sizes)

    q, k, v = by_token(query * dk**-0.5, 1, dk), by_token(key, 1, dk), by_token(value, 1, dv)
    keep = None if decay is None else by_token(decay.exp(), 1, 1)
    rate = None if beta is None else by_token(beta, 1, 1)
    state, rows = past.reshape(many, dk, dv).clone(), torch.empty(tokens, many, 1, dv)
    for t in range(tokens):
        if keep is not None:
            state.mul_(keep[t])
        change = v[t] if rate is None else rate[t] * torch.baddbmm(v[t], k[t], state, alpha=-1)
        state.addcmul_(k[t].mT, change)
        torch.bmm(q[t], state, out=rows[t])
    y = rows.view(tokens, n, heads * dv).transpose(0, 1).contiguous()
    return [y, state.view(past.shape)]
