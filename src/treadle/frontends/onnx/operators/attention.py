"""Attention and rotary positions of the standard."""

from __future__ import annotations

from typing import Any, Literal

from ....declare.opdef import REGISTRY, cast_value, full_value
from ....errors import Declined, OperatorError
from ....ir.dims import Size
from ....ir.graph import Value
from ....ir.types import BOOL, DTYPES, I64
from ....ops.attention import attention, attention_scores
from ....ops.compare import gt
from ....ops.movement import concat, reshape, transpose
from ....ops.positions import rope
from ..context import Context
from ..reading import dtype_of
from ..registry import importer

Stage = Literal["raw", "capped", "biased", "probabilities"]
STAGES: tuple[Stage, ...] = ("raw", "capped", "biased", "probabilities")
NEGATIVE = float("-inf")


def split_heads(x: Value, heads: int) -> Value:
    """Packed [N,S,H*D] as [N,H,S,D]; rank 4 is left as it is."""
    if x.type.rank == 4:
        return x
    if x.type.rank != 3 or heads < 1:
        raise OperatorError(f"{x.type} holds no {heads} heads",
                            hint="the operand has rank 4, or rank 3 and a number of heads")
    n, s, width = x.shape
    if isinstance(width, int) and width % heads:
        raise OperatorError(f"{heads} heads do not divide the last axis of {x.type}")
    return transpose(reshape(x, shape=(n, s, heads, width // heads)), perm=(0, 2, 1, 3))


def merge_heads(x: Value) -> Value:
    """[N,H,S,D] as packed [N,S,H*D]."""
    n, h, s, d = x.shape
    return reshape(transpose(x, perm=(0, 2, 1, 3)), shape=(n, s, h * d))


def right_aligned(x: Value) -> Value:
    """`x` with rank 4, ones in front."""
    return x if x.type.rank == 4 else reshape(x, shape=(*[1] * (4 - x.type.rank), *x.shape))


def _masks(mask: Value | None, keys: Size) -> dict[str, Value]:
    """The operands `mask` and `bias` that an ONNX mask stands for.

    A short mask hides the keys beyond it. -inf in an additive mask hides a key too, so that a
    row without any other gives zeros.
    """
    if mask is None:
        return {}
    mask = right_aligned(mask)
    missing = keys - mask.shape[3]
    if isinstance(missing, int) and missing > 0:
        fill = full_value(0, BOOL) if mask.dtype is BOOL else full_value(NEGATIVE, mask.dtype)
        padded = REGISTRY["pad"](mask, fill=fill, pads=(0, 0, 0, 0, 0, 0, 0, missing))
        assert isinstance(padded, Value)
        mask = padded
    if mask.dtype is BOOL:
        return {"mask": mask}
    return {"mask": gt(mask, NEGATIVE), "bias": mask}


def _softmax_operands(q: Value, k: Value, v: Value, precision: int | None
                      ) -> tuple[Value, Value, Value]:
    """Operands for a softmax in `precision`: f64 is computed as such, f32 covers all narrower."""
    if precision is None:
        return q, k, v
    dtype = dtype_of(precision, "softmax_precision")
    if dtype.sort != "float":
        raise Declined(f"softmax_precision={precision} is no floating type")
    if dtype is not DTYPES["f64"] or q.dtype is dtype:
        return q, k, v
    return cast_value(q, dtype), cast_value(k, dtype), cast_value(v, dtype)


def _window(causal: int, left: int, right: int) -> dict[str, int | None]:
    if left < -1 or right < -1:
        raise Declined(f"windows of {left} and {right}; -1 is unbounded")
    last = None if right < 0 else right
    return {"left": None if left < 0 else left, "right": 0 if causal else last}


def _joined(past: Value | None, new: Value) -> Value:
    return new if past is None else concat([past, new], axis=2)


@importer("Attention", since=23)
def attention_(ctx: Context, q: Value, k: Value, v: Value, mask: Value | None,
               past_key: Value | None, past_value: Value | None, lengths: Value | None, *,
               is_causal: int = 0, kv_num_heads: int = 0, q_num_heads: int = 0,
               left_window_size: int = -1, right_window_size: int = -1,
               qk_matmul_output_mode: int = 0, scale: float | None = None, softcap: float = 0.0,
               softmax_precision: int | None = None) -> object:
    """Scaled dot-product attention with its cache; query i stands at the end of what is valid."""
    packed, kind = q.type.rank == 3, q.dtype
    q4, k4, v4 = (split_heads(q, q_num_heads), split_heads(k, kv_num_heads),
                  split_heads(v, kv_num_heads))
    keys, values = _joined(past_key, k4), _joined(past_value, v4)
    operands = _masks(mask, keys.shape[2])
    window = _window(is_causal, left_window_size, right_window_size)
    if lengths is not None:
        operands["valid_length"] = lengths
        if window["left"] is not None or window["right"] is not None:
            operands["offset"] = cast_value(lengths, I64) - full_value(q4.shape[2], I64)
    attrs: dict[str, Any] = {
        **operands, **window, "scale": scale, "softcap": softcap or None,
        "start": 0 if past_key is None else past_key.shape[2]}
    x, y, z = _softmax_operands(q4, keys, values, softmax_precision)
    out = cast_value(attention(x, y, z, **attrs), kind)
    scores = None
    if ctx.wants(3):
        if not 0 <= qk_matmul_output_mode < len(STAGES):
            raise Declined(f"Attention with qk_matmul_output_mode={qk_matmul_output_mode}")
        stage = STAGES[qk_matmul_output_mode]
        scores = cast_value(attention_scores(x, y, stage=stage, **attrs), kind)
    return merge_heads(out) if packed else out, keys, values, scores


@importer("RotaryEmbedding", since=23)
def rotary_embedding(ctx: Context, x: Value, cos: Value, sin: Value, positions: Value | None, *,
                     interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0
                     ) -> Value:
    """Rank 3 is packed heads, rank 4 is [N,H,S,D]."""
    return rope(x, cos, sin, positions=positions, n_rot=rotary_embedding_dim,
                interleaved=bool(interleaved), heads=num_heads,
                layout="packed" if x.type.rank == 3 else "nhsd")


__all__ = ["merge_heads", "right_aligned", "split_heads"]
