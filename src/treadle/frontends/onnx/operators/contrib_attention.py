"""Attention as ONNX Runtime's own operators define it.

Padding masks add `mask_filter_value` instead of hiding keys, so that a row without any visible
key gets what ONNX Runtime gives it.
"""

from __future__ import annotations

from typing import Any

from ....declare.opdef import REGISTRY, cast_value, full_value, wide
from ....errors import Declined
from ....ir.dims import Size, dmax
from ....ir.graph import Value
from ....ir.types import F32, I64
from ....ops.attention import attention
from ....ops.compare import eq, ge, gt, logical_and, lt, where
from ....ops.contract import matmul
from ....ops.extents import zeros
from ....ops.generate import iota
from ....ops.movement import concat, narrow, reshape, transpose, unsqueeze
from ....ops.norm import rms_norm
from ....ops.positions import kv_append, rope
from ....records import dataclass
from ..context import Context
from ..registry import MICROSOFT, importer
from .attention import merge_heads, split_heads
from .contraction import scaled_product

FILTER = -10000.0


@dataclass(frozen=True, slots=True)
class Heads:
    """Operands of attention as [N,H,S,D], with the length of the past in the keys."""

    q: Value
    k: Value
    v: Value
    past: Size = 0


def _positions(total: Size) -> Value:
    return iota(shape=(1, total), axis=1, dtype=I64)


def _shown(mask: Value, batch: Size, total: Size) -> Value:
    """Which keys a padding mask shows, as [N,1,1,T] or [N,1,S,T]."""
    if mask.type.rank == 1:
        ends = cast_value(mask, I64)
        j = _positions(total)
        if mask.shape[0] == batch:
            shown = lt(j, unsqueeze(ends, axes=(1,)))
        elif mask.shape[0] == 2 * batch:
            last, first = (unsqueeze(narrow(ends, axis=0, start=i, length=batch), axes=(1,))
                           for i in (0, batch))
            shown = logical_and(lt(j, last), ge(j, first))
        else:
            raise Declined(f"a mask index {mask.type} for a batch of {batch}",
                           hint="[batch] holds ends, [2 * batch] ends and starts")
    elif mask.type.rank in (2, 3):
        shown = gt(mask, 0)
    else:
        raise Declined(f"a padding mask of rank {mask.type.rank}")
    return unsqueeze(shown, axes=(1, 2) if shown.type.rank == 2 else (1,))


def _bias(h: Heads, mask: Value | None, added: Value | None, filter_value: float) -> Value | None:
    """What is added to the scores."""
    if mask is None:
        return added
    shown = _shown(mask, h.q.shape[0], h.k.shape[2])
    hidden = where(shown, full_value(0.0, F32), full_value(filter_value, F32))
    return hidden if added is None else hidden + wide(added)


def _attend(h: Heads, mask: Value | None, added: Value | None, filter_value: float,
            scale: float | None, unidirectional: int) -> Value:
    out = attention(h.q, h.k, h.v, bias=_bias(h, mask, added, filter_value), scale=scale or None,
                    start=h.past, right=0 if unidirectional else None)
    return merge_heads(out)


def _half(past: Value, index: int) -> Value:
    part = narrow(past, axis=0, start=index, length=1)
    return reshape(part, shape=past.shape[1:])


def _merged(packed: Value, heads: int, widths: tuple[Size, ...], past: Value | None) -> Heads:
    """Heads from a projection that holds q, k and v beside each other, after a stacked past."""
    parts: list[Value] = []
    start: Size = 0
    for width in widths:
        parts.append(split_heads(narrow(packed, axis=2, start=start, length=width), heads))
        start = start + width
    q, k, v = parts
    if past is None:
        return Heads(q, k, v)
    keys, values = (concat([_half(past, i), new], axis=2) for i, new in ((0, k), (1, v)))
    return Heads(q, keys, values, past.shape[3])


def _present(ctx: Context, h: Heads) -> Value | None:
    if not ctx.wants(1):
        return None
    return concat([unsqueeze(h.k, axes=(0,)), unsqueeze(h.v, axes=(0,))], axis=0)


def _refuse(given: dict[str, object]) -> None:
    for what, value in given.items():
        if value is not None and value != 0:
            raise Declined(f"{what} is not supported")


@importer("Attention", domain=MICROSOFT)
def contrib_attention(ctx: Context, x: Value, weights: Value, bias: Value | None,
                      mask: Value | None, past: Value | None, added: Value | None,
                      past_length: Value | None, *, do_rotary: int = 0,
                      mask_filter_value: float = FILTER, num_heads: int,
                      past_present_share_buffer: int = 0,
                      qkv_hidden_sizes: tuple[int, ...] = (), rotary_embedding_dim: int = 0,
                      scale: float | None = None, unidirectional: int = 0) -> object:
    """Self-attention with the projection of q, k and v."""
    _refuse({"a shared past buffer": past_present_share_buffer, "do_rotary": do_rotary,
             "past_sequence_length": past_length, "rotary_embedding_dim": rotary_embedding_dim})
    y = matmul(wide(x), wide(weights))
    packed = cast_value(y if bias is None else y + wide(bias), x.dtype)
    widths: tuple[Size, ...] = qkv_hidden_sizes or (weights.shape[1] // 3,) * 3
    h = _merged(packed, num_heads, widths, past)
    return _attend(h, mask, added, mask_filter_value, scale, unidirectional), _present(ctx, h)


@importer("QAttention", domain=MICROSOFT)
def quantized_attention(ctx: Context, x: Value, weights: Value, bias: Value, x_scale: Value,
                        w_scale: Value, mask: Value | None, x_zero: Value | None,
                        w_zero: Value | None, past: Value | None, *, do_rotary: int = 0,
                        mask_filter_value: float = FILTER, num_heads: int,
                        past_present_share_buffer: int = 0, scale: float | None = None,
                        unidirectional: int = 0) -> object:
    """Self-attention whose projection multiplies 8-bit integers."""
    _refuse({"a shared past buffer": past_present_share_buffer, "do_rotary": do_rotary})
    packed = scaled_product(x, weights, (x_scale, w_scale), (x_zero, w_zero), bias)
    h = _merged(packed, num_heads, (weights.shape[1] // 3,) * 3, past)
    return _attend(h, mask, None, mask_filter_value, scale, unidirectional), _present(ctx, h)


def _picked(packed: Value, index: int) -> Value:
    """One of the tensors stacked in [N,S,H,k,D], as [N,H,S,D]."""
    n, s, h, _, d = packed.shape
    part = narrow(packed, axis=3, start=index, length=1)
    return transpose(reshape(part, shape=(n, s, h, d)), perm=(0, 2, 1, 3))


def _separate(q: Value, k: Value | None, v: Value | None, bias: Value | None, heads: int) -> Heads:
    """Heads from separate or stacked operands, with the bias of each added."""
    if q.type.rank == 5:
        if bias is not None:
            raise Declined("MultiHeadAttention with packed q, k, v and a bias")
        return Heads(_picked(q, 0), _picked(q, 1), _picked(q, 2))
    if k is None or v is None and k.type.rank != 5:
        raise Declined("MultiHeadAttention without keys or values")
    if k.type.rank == 5:
        if bias is not None:
            raise Declined("MultiHeadAttention with packed k, v and a bias")
        return Heads(split_heads(q, heads), _picked(k, 0), _picked(k, 1))
    assert v is not None
    parts, start = [q, k, v], q.shape[2] * 0
    for i, x in enumerate(parts):
        if bias is not None and x.type.rank == 3:
            piece = narrow(bias, axis=0, start=start, length=x.shape[2])
            parts[i] = cast_value(wide(x) + wide(piece), x.dtype)
            start = start + x.shape[2]
    q, k, v = (split_heads(x, heads) for x in parts)
    return Heads(q, k, v)


@importer("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(ctx: Context, q: Value, k: Value | None, v: Value | None,
                         bias: Value | None, mask: Value | None, added: Value | None,
                         past_key: Value | None, past_value: Value | None,
                         past_length: Value | None, beams: Value | None, *,
                         mask_filter_value: float = FILTER, num_heads: int,
                         scale: float | None = None, unidirectional: int = 0) -> object:
    """Attention between projected operands, with a cache."""
    _refuse({"past_sequence_length": past_length, "cache_indirection": beams,
             "output qk": ctx.wants(3) or None})
    h = _separate(q, k, v, bias, num_heads)
    if (past_key is None) != (past_value is None):
        raise Declined("past_key and past_value come together")
    if past_key is not None and past_value is not None:
        h = Heads(h.q, concat([past_key, h.k], axis=2), concat([past_value, h.v], axis=2),
                  past_key.shape[2])
    return _attend(h, mask, added, mask_filter_value, scale, unidirectional), h.k, h.v, None


@importer("RotaryEmbedding", domain=MICROSOFT)
def contrib_rotary(ctx: Context, x: Value, positions: Value, cos: Value, sin: Value, *,
                   interleaved: int = 0, is_packed_batching: int = 0, num_heads: int = 0,
                   rotary_embedding_dim: int = 0, scale: float = 1.0) -> Value:
    """Positions are given for every token, or as the first token's."""
    _refuse({"is_packed_batching": is_packed_batching, "scale": scale - 1.0})
    packed = x.type.rank == 3
    heads = num_heads
    if packed and not heads:
        heads = ctx.known(x.shape[2] // (cos.shape[1] * 2), "the number of heads")
    if positions.type.rank == 1:
        length = x.shape[1] if packed else x.shape[2]
        positions = cast_value(positions, I64) + iota(shape=(length,), axis=0, dtype=I64)
    return rope(x, cos, sin, positions=positions, n_rot=rotary_embedding_dim,
                interleaved=bool(interleaved), heads=heads,
                layout="packed" if packed else "nhsd")


def _grouped(q: Value, k: Value | None, v: Value | None, heads: int, kv_heads: int) -> Heads:
    if k is not None and v is not None:
        return Heads(split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads))
    each = q.shape[2] // (heads + 2 * kv_heads)
    parts = ((0, heads), (heads, kv_heads), (heads + kv_heads, kv_heads))
    x, y, z = (split_heads(narrow(q, axis=2, start=first * each, length=n * each), n)
               for first, n in parts)
    return Heads(x, y, z)


def _cached(past: Value | None, new: Value, at: Value, length: Size) -> Value:
    """The past, lengthened to `length` with zeros, with the new entries written at `at`."""
    if past is None:
        past = zeros(new.type.with_(shape=(*new.shape[:2], length, new.shape[3])))
    elif past.shape[2] != length:
        grown = REGISTRY["pad"](past, pads=(0, 0, 0, 0, 0, 0, length - past.shape[2], 0))
        assert isinstance(grown, Value)
        past = grown
    return kv_append(past, new, at, axis=2)


def _normed(h: Heads, weights: tuple[Value | None, Value | None], eps: tuple[float, float]
            ) -> Heads:
    if weights[0] is None or weights[1] is None:
        return h
    return Heads(rms_norm(h.q, weights[0], eps=eps[0]), rms_norm(h.k, weights[1], eps=eps[1]), h.v)


@importer("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(  # budget: one keyword for each attribute
        ctx: Context, q: Value, k: Value | None, v: Value | None, past_key: Value | None,
        past_value: Value | None, last: Value, total_length: Value, cos: Value | None,
        sin: Value | None, positions: Value | None, added: Value | None, sink: Value | None,
        k_scale: Value | None, v_scale: Value | None, q_norm: Value | None,
        k_norm: Value | None, lengths: Value | None, *, causal: int = 1, do_rotary: int = 0,
        k_norm_epsilon: float | None = None, k_quant_type: str = "NONE",
        kv_cache_bit_width: int = 0, kv_num_heads: int, local_window_size: int = -1,
        num_heads: int, q_norm_epsilon: float | None = None, qk_norm_epsilon: float = 1e-6,
        qk_output: int = 0, rotary_interleaved: int = 0, scale: float | None = None,
        sliding_window_cache: int = 0, smooth_softmax: int = -1, softcap: float = 0.0,
        v_quant_type: str = "NONE") -> object:
    """Grouped attention over a cache; `last` is the length of each sequence, less one.

    A prompt starts at 0, whatever its padding; later tokens come after what is valid.
    """
    _refuse({"a quantised cache": (k_quant_type, v_quant_type) != ("NONE", "NONE"),
             "kv_cache_bit_width": kv_cache_bit_width, "k_scale": k_scale, "v_scale": v_scale,
             "sliding_window_cache": sliding_window_cache, "query_seqlens": lengths,
             "output_qk": qk_output})
    h = _normed(_grouped(q, k, v, num_heads, kv_num_heads), (q_norm, k_norm), (
        q_norm_epsilon or qk_norm_epsilon, k_norm_epsilon or qk_norm_epsilon))
    total, rows = ctx.sizes(total_length, "total")[0], h.q.shape[2]
    valid = cast_value(reshape(last, shape=(h.q.shape[0],)), I64) + 1
    at = where(eq(full_value(total, I64), full_value(rows, I64)), 0,
               valid - full_value(rows, I64))
    if do_rotary and (cos is None or sin is None):
        raise Declined("do_rotary needs cos_cache and sin_cache")
    if do_rotary and cos is not None and sin is not None:
        if positions is None:
            positions = unsqueeze(at, axes=(1,)) + iota(shape=(1, rows), axis=1, dtype=I64)
        turn: dict[str, Any] = {"positions": positions, "interleaved": bool(rotary_interleaved)}
        turn["n_rot"] = cos.shape[1] * 2
        h = Heads(rope(h.q, cos, sin, **turn), rope(h.k, cos, sin, **turn), h.v)
    length = total if past_key is None else dmax(past_key.shape[2], total)
    keys, values = (_cached(p, x, at, length) for p, x in ((past_key, h.k), (past_value, h.v)))
    seen = [x if length == total else narrow(x, axis=2, start=0, length=total)
            for x in (keys, values)]
    if sink is None and smooth_softmax == 1:
        sink = zeros(q.type.with_(shape=(num_heads,)))
    out = attention(h.q, *seen, offset=at, valid_length=valid, bias=added, sink=sink,
                    scale=scale or None, softcap=softcap or None, right=0 if causal else None,
                    left=local_window_size - 1 if local_window_size > 0 else None)
    return merge_heads(out), keys, values, None
