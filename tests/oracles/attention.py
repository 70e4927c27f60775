"""Attention, positions and transformer blocks, one number at a time in f64."""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from tests.oracles.ort import run
from treadle.declare.arrays import Array


def _sees(p: int, j: int, left: int | None, right: int | None) -> bool:
    return (left is None or j >= p - left) and (right is None or j <= p + right)


def _at(x: Array | None, shape: tuple[int, ...]) -> Array | None:
    return None if x is None else np.broadcast_to(x, shape)


def _rows(q: Array, k: Array, mask: Array | None = None, bias: Array | None = None,
          offset: Array | None = None, valid_length: Array | None = None,
          sink: Array | None = None, scale: float | None = None, softcap: float | None = None,
          start: int = 0, left: int | None = None, right: int | None = None
          ) -> dict[str, Array]:
    """Scores at every stage, [N,Hq,S,L] in f64."""
    n, heads, rows, d = q.shape
    group, columns = heads // k.shape[1], k.shape[2]
    shape = (n, heads, rows, columns)
    out = {s: np.zeros(shape) for s in ("raw", "capped", "biased", "probabilities")}
    seen, added = _at(mask, shape), _at(bias, shape)
    for b, h, i in np.ndindex(n, heads, rows):
        at = start + i + (0 if offset is None else int(offset[b]))
        visible = []
        for j in range(columns):
            dot = sum(float(q[b, h, i, c]) * float(k[b, h // group, j, c]) for c in range(d))
            s = dot * (1 / math.sqrt(d) if scale is None else scale)
            out["raw"][b, h, i, j] = s
            s = s if softcap is None else softcap * math.tanh(s / softcap)
            out["capped"][b, h, i, j] = s
            s += 0.0 if added is None else float(added[b, h, i, j])
            ok = (_sees(at, j, left, right) and (seen is None or bool(seen[b, h, i, j]))
                  and (valid_length is None or j < valid_length[b]))
            visible += [j] if ok else []
            out["biased"][b, h, i, j] = s if ok else -math.inf
        if visible:
            extra = 0.0 if sink is None else math.exp(float(sink[h]))
            weights = {j: math.exp(out["biased"][b, h, i, j]) for j in visible}
            for j in visible:
                out["probabilities"][b, h, i, j] = weights[j] / (sum(weights.values()) + extra)
    return out


def attention(q: Array, k: Array, v: Array, **options: object) -> Array:
    p = _rows(q, k, **options)["probabilities"]  # type: ignore[arg-type]
    values = np.repeat(v.astype("f8"), q.shape[1] // k.shape[1], 1)
    return np.einsum("bhij,bhjd->bhid", p, values).astype(q.dtype)


def attention_scores(q: Array, k: Array, stage: str, **options: object) -> Array:
    return _rows(q, k, **options)[stage].astype(q.dtype)  # type: ignore[arg-type]


def rope(x: Array, cos: Array, sin: Array, positions: Array | None = None, n_rot: int = 0,
         interleaved: bool = False, layout: str = "nhsd", heads: int = 0) -> Array:
    """By ONNX Runtime's RotaryEmbedding, with explicit positions."""
    if cos.ndim == 2 and positions is None:
        positions = np.tile(np.arange(x.shape[1 if layout == "packed" else 2]), (x.shape[0], 1))
    packed = {"num_heads": heads} if layout == "packed" else {}
    return run("RotaryEmbedding", [x, cos, sin, positions],
               {"rotary_embedding_dim": n_rot, "interleaved": int(interleaved), **packed},
               opset=23)[0]


def _heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def attention_block(x: Array, w_qkv: Array, w_out: Array, heads: int, kv_heads: int = 0,
                    b_qkv: Array | None = None, b_out: Array | None = None,
                    cos: Array | None = None, sin: Array | None = None, **options: object
                    ) -> Array:
    kv = kv_heads or heads
    packed = x.astype("f8") @ w_qkv + (0 if b_qkv is None else b_qkv)
    d = packed.shape[2] // (heads + 2 * kv)
    q, k, v = np.split(packed, [heads * d, (heads + kv) * d], 2)
    q, k, v = _heads(q, heads), _heads(k, kv), _heads(v, kv)
    if cos is not None and sin is not None:
        q, k = (rope(t.astype("f4"), cos, sin) for t in (q, k))
    y = attention(q, k, v, **options)
    flat = y.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    return (flat @ w_out + (0 if b_out is None else b_out)).astype(x.dtype)


def _layer_norm(x: Array, gamma: Array, beta: Array | None) -> Array:
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gamma
    return y if beta is None else y + beta


def transformer_layer(x: Array, w_qkv: Array, w_out: Array, gamma1: Array, w1: Array, w2: Array,
                      gamma2: Array, heads: int, b1: Array | None = None,
                      b2: Array | None = None, beta1: Array | None = None,
                      beta2: Array | None = None, activation: str = "gelu", **options: object
                      ) -> Array:
    d = x.astype("f8")
    h = _layer_norm(d + attention_block(d, w_qkv, w_out, heads, **options), gamma1, beta1)  # type: ignore[arg-type]
    inner = h @ w1 + (0 if b1 is None else b1)
    inner = inner * scipy.special.ndtr(inner) if activation == "gelu" else np.maximum(inner, 0)
    y = _layer_norm(h + inner @ w2 + (0 if b2 is None else b2), gamma2, beta2)
    return y.astype(x.dtype)
