"""The repeated blocks of transformers."""

from __future__ import annotations

from typing import Literal

from ..declare.kinds import composite
from ..declare.opdef import cast_value, wide
from ..declare.schema import sample
from ..errors import OperatorError
from ..ir.graph import Value
from .attention import attention
from .contract import matmul
from .fused import matmul_bias_act, residual_layer_norm
from .movement import narrow, reshape, transpose
from .positions import rope


def _dense(x: Value, w: Value, bias: Value | None) -> Value:
    y = matmul(wide(x), wide(w))
    return cast_value(y if bias is None else y + wide(bias), x.dtype)


def _heads(packed: Value, first: int, heads: int, each: int) -> Value:
    """Heads first..first+heads of a packed [N,S,..] as [N,heads,S,each]."""
    n, s, _ = packed.shape
    part = narrow(packed, axis=2, start=first * each, length=heads * each)
    return transpose(reshape(part, shape=(n, s, heads, each)), perm=(0, 2, 1, 3))


@composite(samples=[
    sample("f32[2,3,4]", "f32[4,12]", "f32[4,4]", b_qkv="f32[12]", b_out="f32[4]", heads=2,
           expect="tests.oracles.attention:attention_block", rtol=1e-4),
    sample("f32[2,3,4]", "f32[4,8]", "f32[4,4]", cos="f32[3,1]", sin="f32[3,1]", heads=2,
           kv_heads=1, right=0, expect="tests.oracles.attention:attention_block", rtol=1e-4),
    sample("f16[1,3,4]", "f16[4,12]", "f16[4,4]", mask="bool[1,1,1,3]", heads=2)])
def attention_block(x: Value, w_qkv: Value, w_out: Value, *, b_qkv: Value | None = None,
                    b_out: Value | None = None, cos: Value | None = None,
                    sin: Value | None = None, positions: Value | None = None,
                    mask: Value | None = None, bias: Value | None = None, heads: int,
                    kv_heads: int = 0, scale: float | None = None, softcap: float | None = None,
                    left: int | None = None, right: int | None = None, n_rot: int = 0,
                    interleaved: bool = False) -> Value:
    """Self-attention of x[N,S,E] with its projections; rotary when cos and sin are given.

    w_qkv[E,(heads + 2 kv_heads) D] projects to packed q, k and v heads, w_out[heads D,F] back;
    kv_heads=0 means heads. The other operands and attributes are those of attention and rope.
    """
    if w_qkv.type.rank != 2:
        raise OperatorError(f"w_qkv is {w_qkv.type}, [E,(heads + 2 kv_heads) D] was expected")
    kv = kv_heads or heads
    total, width = heads + 2 * kv, w_qkv.shape[1]
    if x.type.rank != 3 or not isinstance(width, int) or heads < 1 or width % total:
        raise OperatorError(f"{width} columns of w_qkv do not hold {heads} + 2 * {kv} heads",
                            hint="x is [N,S,E] and w_qkv [E,(heads + 2 kv_heads) D]")
    if (cos is None) != (sin is None):
        raise OperatorError("cos and sin come together")
    d, packed = width // total, _dense(x, w_qkv, b_qkv)
    q, k, v = (_heads(packed, *part, d) for part in ((0, heads), (heads, kv), (heads + kv, kv)))
    if cos is not None and sin is not None:
        q, k = (rope(t, cos, sin, positions=positions, n_rot=n_rot, interleaved=interleaved)
                for t in (q, k))
    y = attention(q, k, v, mask=mask, bias=bias, scale=scale, softcap=softcap, left=left,
                  right=right)
    flat = reshape(transpose(y, perm=(0, 2, 1, 3)), shape=(*x.shape[:2], heads * d))
    return _dense(flat, w_out, b_out)


@composite(samples=[
    sample("f32[2,3,4]", "f32[4,12]", "f32[4,4]", "f32[4]", "f32[4,6]", "f32[6,4]", "f32[4]",
           b_qkv="f32[12]", b_out="f32[4]", beta1="f32[4]", b1="f32[6]", b2="f32[4]",
           beta2="f32[4]", heads=2, expect="tests.oracles.attention:transformer_layer", rtol=1e-4),
    sample("f32[2,3,4]", "f32[4,12]", "f32[4,4]", "f32[4]", "f32[4,6]", "f32[6,4]", "f32[4]",
           mask="bool[2,1,1,3]", heads=1, activation="relu",
           expect="tests.oracles.attention:transformer_layer", rtol=1e-4)])
def transformer_layer(x: Value, w_qkv: Value, w_out: Value, gamma1: Value, w1: Value, w2: Value,
                      gamma2: Value, *, b_qkv: Value | None = None, b_out: Value | None = None,
                      beta1: Value | None = None, b1: Value | None = None,
                      b2: Value | None = None, beta2: Value | None = None,
                      mask: Value | None = None, bias: Value | None = None, heads: int,
                      eps: float = 1e-5,
                      activation: Literal["none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid",
                                          "tanh"] = "gelu") -> Value:
    """A post-norm encoder layer (1706.03762): h = LN(x + attention(x)), LN(h + ffn(h)).

    x[N,S,E]; w_qkv and w_out as in attention_block; ffn(h) = activation(h w1 + b1) w2 + b2.
    """
    seen = attention_block(x, w_qkv, w_out, b_qkv=b_qkv, b_out=b_out, mask=mask, bias=bias,
                           heads=heads)
    h = residual_layer_norm(x, seen, gamma1, beta=beta1, eps=eps)[0]
    inner = matmul_bias_act(h, w1, bias=b1, activation=activation)
    return residual_layer_norm(h, matmul_bias_act(inner, w2, bias=b2), gamma2, beta=beta2,
                               eps=eps)[0]
