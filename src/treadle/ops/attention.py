"""Scaled dot-product attention over [N,H,S,D]."""

from __future__ import annotations

import math
from typing import Literal

from ..declare.kinds import composite
from ..declare.opdef import cast_value, full_value, wide
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import I64, Shape, broadcast, shape_text
from .activations import softcap as cap_scores
from .arithmetic import max_
from .compare import ge, le, logical_and, lt, where
from .contract import matmul, swap_last
from .convert import stop_gradient
from .generate import iota
from .mathfn import exp, rsqrt
from .movement import reshape
from .reduce import any_, reduce_max, sum_
from .scan1d import softmax

ORACLE = "tests.oracles.attention"
QKV = ("f32[2,2,3,4]", "f32[2,2,5,4]", "f32[2,2,5,6]")
GQA = ("f32[2,4,3,4]", "f32[2,2,5,4]", "f32[2,2,5,4]")


def _group(q: Value, k: Value) -> int:
    """How many query heads read one key head."""
    if q.shape[1] == k.shape[1]:
        return 1
    many, few = q.shape[1], k.shape[1]
    if not isinstance(many, int) or not isinstance(few, int) or min(few, many) < 1 or (
            many % few):
        raise OperatorError(f"{many} query heads do not share {few} key heads",
                            hint="the number of query heads is a multiple of that of key heads")
    return many // few


def _check(q: Value, k: Value, v: Value) -> Shape:
    """The shape [N,Hq,S,L] of the scores, if the operands fit."""
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.type.rank != 4 or t.dtype.sort != "float":
            raise OperatorError(f"{name} is {t.type}, a floating [N,H,S,D] was expected",
                                hint="reshape packed [N,S,H*D] operands first")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or k.shape[:3] != v.shape[:3]:
        raise OperatorError(f"q {q.type}, k {k.type} and v {v.type} do not fit",
                            hint="q[N,Hq,S,D], k[N,H,L,D], v[N,H,L,Dv]")
    return (*q.shape[:3], k.shape[2])


def _fold(x: Value, group: int) -> Value:
    """[N,H*G,S,D] as [N,H,G*S,D], so that one product serves all heads of a group."""
    n, h, s, d = x.shape
    return x if group == 1 else reshape(x, shape=(n, h // group, s * group, d))


def _raw_scores(q: Value, k: Value, scores: Shape, scale: float | None) -> Value:
    """scale * q kT in f32 (f64 for f64)."""
    x, d = wide(q), q.shape[3]
    if scale is None:
        by = 1.0 / math.sqrt(max(d, 1)) if isinstance(d, int) else rsqrt(full_value(d, x.dtype))
    else:
        by = scale
    group = _group(q, k)
    s = matmul(_fold(x * by, group), swap_last(cast_value(wide(k), x.dtype)))
    return s if group == 1 else reshape(s, shape=scores)


def _per_batch(x: Value, n: Size, name: str) -> Value:
    """An integer scalar or vector [N], as i64[N,1,1,1]."""
    if x.dtype.sort not in ("int", "uint") or x.shape not in ((), (1,), (n,)):
        raise OperatorError(f"{name} is {x.type}, integers [{n}] were expected")
    x = cast_value(x, I64)
    return x if x.type.rank == 0 else reshape(x, shape=(*x.shape, 1, 1, 1))


def _fitting(x: Value, scores: Shape, name: str) -> Value:
    if x.type.rank != 4 or broadcast([x.shape, scores]) != scores:
        raise OperatorError(f"{name} {x.type} does not broadcast to {shape_text(scores)}",
                            hint=f"{name} has rank 4; every size is 1 or that of the scores")
    return x


def _bounds(window: tuple[int | None, int | None]) -> None:
    for name, bound in zip(("left", "right"), window, strict=True):
        if bound is not None and bound < 0:
            raise OperatorError(f"{name}={bound} is negative", hint="None leaves a side unbounded")


def _visible(scores: Shape, mask: Value | None, offset: Value | None,
             valid_length: Value | None, start: Size, window: tuple[int | None, int | None]
             ) -> Value | None:
    """Which keys each query sees, broadcastable to the scores; None when it sees all."""
    _bounds(window)
    left, right = window
    n, _, rows, columns = scores
    j = iota(shape=(1, 1, 1, columns), axis=3, dtype=I64)
    parts: list[Value] = []
    if left is not None or right is not None:
        p = iota(shape=(1, 1, rows, 1), axis=2, dtype=I64) + full_value(start, I64)
        p = p if offset is None else p + _per_batch(offset, n, "offset")
        parts += [] if left is None else [ge(j, p - left)]
        parts += [] if right is None else [le(j, p + right)]
    if valid_length is not None:
        parts.append(lt(j, _per_batch(valid_length, n, "valid_length")))
    if mask is not None:
        if mask.dtype.sort != "bool":
            raise OperatorError(f"mask is {mask.type}, not bool",
                                hint="an additive mask is the operand bias")
        parts.append(_fitting(mask, scores, "mask"))
    out = None
    for part in parts:
        out = part if out is None else logical_and(out, part)
    return out


def _scored(q: Value, k: Value, scores: Shape, bias: Value | None, scale: float | None,
            softcap: float | None) -> tuple[Value, Value, Value]:
    """Scores as they come, capped, and with the bias."""
    raw = _raw_scores(q, k, scores, scale)
    capped = raw if softcap is None else cap_scores(raw, cap=softcap)
    biased = capped if bias is None else capped + cast_value(
        _fitting(bias, scores, "bias"), raw.dtype)
    return raw, capped, biased


def _soften(s: Value, visible: Value | None, sink: Value | None) -> tuple[Value, Value | None]:
    """The softmax over visible keys, and which rows have one.

    Rows without one get finite scores, so that neither value nor gradient is NaN; what they
    give is replaced by zeros afterwards.
    """
    some = None
    if visible is not None:
        some = any_(visible, axes=(3,), keepdims=True)
        s = where(visible, s, where(some, -math.inf, 0.0))
    if sink is None:
        return softmax(s, axis=-1), some
    if sink.shape != (s.shape[1],):
        raise OperatorError(f"sink is {sink.type}, one score for each of {s.shape[1]} heads was "
                            "expected")
    extra = reshape(cast_value(sink, s.dtype), shape=(1, s.shape[1], 1, 1))
    top = stop_gradient(max_(reduce_max(s, axes=(3,), keepdims=True), extra))
    e = exp(s - top)
    return e / (sum_(e, axes=(3,), keepdims=True) + exp(extra - top)), some


@composite(samples=[
    sample(*QKV, expect=f"{ORACLE}:attention", rtol=1e-5),
    sample(*GQA, scale=1.0, softcap=2.0, right=0, expect=f"{ORACLE}:attention", rtol=1e-5),
    sample(*QKV, mask="bool[2,1,1,5]", bias="f32[1,2,3,5]", left=1, right=1, start=1,
           expect=f"{ORACLE}:attention", rtol=1e-5),
    sample(*GQA, offset="i64[2]", valid_length="i32[2]", right=0, low=0, high=3,
           expect=f"{ORACLE}:attention", rtol=1e-5),
    sample(*GQA, sink="f32[4]", right=0, expect=f"{ORACLE}:attention", rtol=1e-5),
    known([[[[1.0], [1.0]]]], [[[[1.0], [1.0]]]], [[[[3.0], [5.0]]]], right=0, start=-1,
          expect=[[[[[0.0], [3.0]]]]]),
    known(*[arr([[[[200.0] * 64] * 2]], "f16")] * 3, expect=[
        arr([[[[200.0] * 64] * 2]], "f16")])])
def attention(q: Value, k: Value, v: Value, *, mask: Value | None = None,
              bias: Value | None = None, offset: Value | None = None,
              valid_length: Value | None = None, sink: Value | None = None,
              scale: float | None = None, softcap: float | None = None, start: Size = 0,
              left: int | None = None, right: int | None = None) -> Value:
    """softmax(cap(scale q kT) + bias, over visible keys) v.

    q[N,Hq,S,D], k[N,H,L,D], v[N,H,L,Dv]; query head h reads key head h // (Hq / H). scale is
    1 / sqrt(D) by default; softcap c is c tanh(s / c). Query i stands at p = start + offset[n] + i
    and sees key j iff p - left <= j <= p + right (None: unbounded; right=0 is causal), j <
    valid_length[n], and mask (bool) holds. mask and bias have rank 4 and broadcast to [N,Hq,S,L].
    A row that sees no key gives zeros. sink[Hq] is one more score a row, without a value. The
    softmax runs in f32, or f64 for f64 operands.
    """
    scores = _check(q, k, v)
    visible = _visible(scores, mask, offset, valid_length, start, (left, right))
    p, some = _soften(_scored(q, k, scores, bias, scale, softcap)[2], visible, sink)
    values = cast_value(wide(v), p.dtype)
    if valid_length is not None:  # what lies beyond may be NaN, which 0 does not erase
        j = iota(shape=(1, 1, scores[3], 1), axis=2, dtype=I64)
        values = where(lt(j, _per_batch(valid_length, scores[0], "valid_length")), values, 0.0)
    group = _group(q, k)
    out = matmul(_fold(p, group), values)
    out = out if group == 1 else reshape(out, shape=(*scores[:3], v.shape[3]))
    return cast_value(out if some is None else where(some, out, 0.0), q.dtype)


@composite(samples=[
    *(sample(*GQA[:2], stage=s, softcap=2.0, bias="f32[2,1,3,5]", right=0,
             expect=f"{ORACLE}:attention_scores", rtol=1e-5)
      for s in ("raw", "capped", "biased", "probabilities")),
    sample("f16[1,1,2,4]", "f16[1,1,3,4]", stage="probabilities", mask="bool[1,1,2,1]")])
def attention_scores(q: Value, k: Value, *, mask: Value | None = None,
                     bias: Value | None = None, offset: Value | None = None,
                     valid_length: Value | None = None, sink: Value | None = None,
                     scale: float | None = None, softcap: float | None = None, start: Size = 0,
                     left: int | None = None, right: int | None = None,
                     stage: Literal["raw", "capped", "biased", "probabilities"]) -> Value:
    """What attention computes on the way, [N,Hq,S,L] in the dtype of q.

    raw: scale q kT; capped: after softcap; biased: with the bias, and -inf at invisible keys;
    probabilities: after the softmax, zeros in rows that see no key (ONNX Attention's
    qk_matmul_output_mode 0 to 3).
    """
    scores = _check(q, k, k)
    steps = _scored(q, k, scores, bias, scale, softcap)
    if stage in ("raw", "capped"):
        return cast_value(steps[stage == "capped"], q.dtype)
    visible = _visible(scores, mask, offset, valid_length, start, (left, right))
    if stage == "biased":
        shown = steps[2] if visible is None else where(visible, steps[2], -math.inf)
        return cast_value(shown, q.dtype)
    p, some = _soften(steps[2], visible, sink)
    return cast_value(p if some is None else where(some, p, 0.0), q.dtype)
