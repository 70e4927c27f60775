"""Random numbers from a counter: the same key, stream and shape give the same bits everywhere.

The generator is Philox 4x32 with 10 rounds (J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel
Random Numbers: As Easy as 1, 2, 3", SC 2011). Element i of a tensor, in row-major order, is word
i % 4 of the block of counter (i // 4, stream), 64 bits each, low word first. `key` is one integer
of up to 64 bits; operators that share a key need different streams.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from ..declare import m
from ..declare.kinds import OpManyN, composite, elementwise
from ..declare.opdef import cast_value, full_value, wide
from ..declare.scalar import Scalar
from ..declare.schema import arr, known
from ..errors import OperatorError
from ..ir.dims import Size, cdiv
from ..ir.graph import Value
from ..ir.types import BOOL, DTYPES, F32, F64, I32, I64, DType, count
from .compare import ge, le, lt, where
from .gather import gather_elements
from .generate import range_
from .mathfn import cos, log, sin, sqrt
from .movement import concat, expand, narrow, reshape, squeeze
from .reduce import sum_
from .scan1d import argmax, cumsum, softmax, topk

U32, U64 = DTYPES["u32"], DTYPES["u64"]
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
ORACLE = "tests.oracles.random:"
PI_WORDS = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)
"""The digits of pi that Random123 publishes a known answer for."""


def _words(*words: int) -> list[object]:
    return [arr(w, "u32") for w in words]


def _product(a: Scalar, factor: int) -> tuple[Scalar, Scalar]:
    """The high and low halves of a 32 x 32 bit product."""
    full = m.cast(a, U64) * factor
    return m.cast(full >> 32, U32), m.cast(full, U32)


@elementwise(samples=[
    known(*_words(0, 0, 0, 0, 0, 0),
          expect=_words(0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    known(*_words(*(0xFFFFFFFF,) * 6),
          expect=_words(0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    known(*_words(*PI_WORDS),
          expect=_words(0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1))])
def philox(c0: Scalar, c1: Scalar, c2: Scalar, c3: Scalar, k0: Scalar, k1: Scalar
           ) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """The four u32 words of the block of a counter (c0..c3) under a key (k0, k1), all u32."""
    if c0.dtype is not U32:
        raise OperatorError(f"the words of the counter are {c0.dtype}, not u32")
    for i in range(ROUNDS):
        a, b = (k + (i * w & 0xFFFFFFFF) for k, w in zip((k0, k1), WEYL, strict=True))
        (h0, l0), (h1, l1) = _product(c0, MULTIPLIERS[0]), _product(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = h1 ^ c1 ^ a, l1, h0 ^ c3 ^ b, l0
    return c0, c1, c2, c3


def _key(key: Value) -> tuple[Value, Value]:
    """The two words of a key."""
    if key.dtype.sort not in ("int", "uint") or key.shape not in ((), (1,)):
        raise OperatorError(f"the key must be one integer, got {key.type}")
    whole = cast_value(reshape(key, shape=()), U64)
    return cast_value(whole, U32), cast_value(whole >> 32, U32)


@composite(samples=[
    known(arr(0, "u64"), shape=(2, 2),
          expect=[arr([[0x6627E8D5, 0xE169C58D], [0xBC57AC4C, 0x9B00DBD8]], "u32")]),
    known(arr(0x299F31D0A4093822, "u64"), shape=(7,), stream=0x0370734413198A2E,
          expect=ORACLE + "random_bits"),
    known(arr(7, "u32"), shape=(0, 3), expect=[arr(np.zeros((0, 3)), "u32")])])
def random_bits(key: Value, *, shape: tuple[Size, ...], stream: int = 0) -> Value:
    """Uniform u32 words of a shape."""
    if not 0 <= stream < 2**64:
        raise OperatorError(f"the stream {stream} is not a 64-bit number")
    total = count(shape)
    rows = cdiv(total, 4)
    at = range_(start=0, step=1, length=rows, dtype=U64)
    counter = (cast_value(at, U32), cast_value(at >> 32, U32),
               full_value(stream & 0xFFFFFFFF, U32), full_value(stream >> 32, U32))
    words = cast(OpManyN, philox)(*counter, *_key(key))
    block = concat([reshape(w, shape=(rows, 1)) for w in words], axis=1)
    line = narrow(reshape(block, shape=(rows * 4,)), axis=0, start=0, length=total)
    return reshape(line, shape=shape)


def _unit(key: Value, shape: tuple[Size, ...], dtype: DType, stream: int) -> Value:
    """Multiples of 2^-p in [0, 1), where p is the precision of `dtype`, in its wide dtype."""
    if dtype is F64:
        words = random_bits(key, shape=(*shape, 2), stream=stream)
        high, low = [squeeze(narrow(words, axis=-1, start=i, length=1), axes=(-1,))
                     for i in range(2)]
        return (cast_value(high >> 5, F64) * 2.0**26 + cast_value(low >> 6, F64)) * 2.0**-53
    if (digits := {"f32": 24, "f16": 11, "bf16": 8}.get(dtype.name)) is None:
        raise OperatorError(f"random numbers of {dtype}", hint="draw f32 and cast")
    bits = random_bits(key, shape=shape, stream=stream)
    return cast_value(bits >> (32 - digits), F32) * 2.0**-digits


@composite(samples=[
    known(arr(0, "u64"), shape=(2,), expect=[[0x6627E8 / 2**24, 0xE169C5 / 2**24]]),
    known(arr(0, "u64"), shape=(1,), dtype="bf16", expect=[arr([0x66 / 2**8], "bf16")]),
    known(arr(0, "u64"), shape=(1,), dtype="f64",
          expect=[arr([((0x6627E8D5 >> 5) * 2**26 + (0xE169C58D >> 6)) / 2**53], "f64")]),
    known(arr(9, "i64"), shape=(3, 3), low=-2.0, high=6.0, stream=4, expect=ORACLE + "uniform",
          rtol=1e-6)])
def uniform(key: Value, *, shape: tuple[Size, ...], dtype: DType = F32, low: float = 0.0,
            high: float = 1.0, stream: int = 0) -> Value:
    """Uniform numbers low + u (high - low), u a multiple of 2^-24 in [0, 1).

    u is the leading bits of one word for f32 (2^-11 for f16, 2^-8 for bf16), of two for f64.
    """
    u = _unit(key, shape, dtype, stream)
    return cast_value(u if (low, high) == (0.0, 1.0) else u * (high - low) + low, dtype)


@composite(samples=[
    known(arr(5, "u64"), shape=(3, 3), mean=1.0, std=2.0, stream=1, expect=ORACLE + "normal",
          rtol=1e-5),
    known(arr(5, "u64"), shape=(3,), dtype="f64", expect=ORACLE + "normal", rtol=1e-12)])
def normal(key: Value, *, shape: tuple[Size, ...], dtype: DType = F32, mean: float = 0.0,
           std: float = 1.0, stream: int = 0) -> Value:
    """Normal numbers by the Box-Muller transform; elements 2 i and 2 i + 1 share two uniforms.

    With those, u and v: r = sqrt(-2 log(1 - u)), then r cos(2 pi v) and r sin(2 pi v).
    """
    total = count(shape)
    rows, inner = cdiv(total, 2), F64 if dtype is F64 else F32
    pair = uniform(key, shape=(rows, 2), dtype=inner, stream=stream)
    u, v = [narrow(pair, axis=1, start=i, length=1) for i in range(2)]
    radius, angle = sqrt(log(1.0 - u) * -2.0), v * (2.0 * math.pi)
    both = concat([radius * cos(angle), radius * sin(angle)], axis=1)
    line = narrow(reshape(both, shape=(rows * 2,)), axis=0, start=0, length=total)
    return cast_value(reshape(line, shape=shape) * std + mean, dtype)


@composite(samples=[
    known([[0.1, 0.5], [0.9, 1.0]], arr(3, "u64"), expect=ORACLE + "bernoulli"),
    known([0.0, 1.0], arr(3, "u64"), dtype="bool", expect=[[False, True]])])
def bernoulli(p: Value, key: Value, *, dtype: DType | None = None, stream: int = 0) -> Value:
    """1 with probability p, else 0; in the dtype of p unless another is given (ONNX Bernoulli)."""
    u = uniform(key, shape=p.shape, stream=stream)
    return cast_value(lt(u, cast_value(p, F32)), dtype or p.dtype)


@composite(samples=[
    known([[0.0, 1.0, -1.0], [5.0, 0.0, 0.0]], arr(3, "u64"), samples=6,
          expect=ORACLE + "multinomial"),
    known([-1e30, 0.0], arr(3, "u64"), samples=3, expect=[arr([1, 1, 1], "i32")])])
def multinomial(logits: Value, key: Value, *, samples: Size, dtype: DType = I32, stream: int = 0
                ) -> Value:
    """`samples` independent draws from each row of logits[.., V], as [.., samples] indices.

    logits are unnormalised log-probabilities. A draw is the number of cumulative probabilities
    that are at most u times the total (ONNX Multinomial).
    """
    if logits.type.rank < 1:
        raise OperatorError("logits need an axis of classes")
    lead, classes = logits.shape[:-1], logits.shape[-1]
    total = cumsum(softmax(wide(logits), axis=-1), axis=-1)
    last = narrow(total, axis=-1, start=classes - 1, length=1)
    u = uniform(key, shape=(*lead, samples), dtype=total.dtype, stream=stream)
    level = reshape(u * expand(last, shape=u.shape), shape=(*lead, samples, 1))
    below = le(reshape(total, shape=(*lead, 1, classes)), level)
    return cast_value(sum_(cast_value(below, I64), axes=(-1,)), dtype)


@composite(samples=[
    known([1.0, -2.0, 3.0, 4.0], 0.5, arr(3, "u64"), expect=ORACLE + "dropout"),
    known([1.0, -2.0], 0.0, arr(3, "u64"), expect=[[1.0, -2.0], [True, True]])])
def dropout(x: Value, ratio: Value, key: Value, *, stream: int = 0) -> tuple[Value, Value]:
    """x with each element zeroed with probability `ratio`, the rest over 1 - ratio; and the mask.

    ratio is a scalar; the bool mask is true where x was kept (ONNX Dropout in training mode).
    """
    share = cast_value(ratio, wide(x).dtype)
    kept = ge(uniform(key, shape=x.shape, stream=stream), cast_value(ratio, F32))
    scaled = where(kept, wide(x) / (1.0 - share), 0.0)
    return cast_value(scaled, x.dtype), cast_value(kept, BOOL)


@composite(samples=[
    known([[0.0, 3.0, 1.0]], arr(3, "u64"), temperature=0.0, expect=[[1]]),
    known([[0.0, 3.0, 1.0], [9.0, 0.0, 0.0]], arr(3, "u64"), top_k=1, expect=[[1, 0]]),
    known([[0.0, 3.0, 1.0], [2.0, 0.0, 0.0]], arr(3, "u64"), top_p=0.5, expect=[[1, 0]]),
    known([[0.0, 3.0, 1.0], [2.0, 0.0, 0.0]], arr(3, "u64"), temperature=1.5,
          expect=ORACLE + "sample_rows")])
def sample(logits: Value, key: Value, *, temperature: float = 1.0, top_k: int = 0,
           top_p: float = 1.0, stream: int = 0) -> Value:
    """One index drawn from each row of logits[.., V], as i64[..].

    In this order: logits over `temperature` (0: the maximum wins); the `top_k` largest (0: all);
    of these in decreasing order, all whose predecessors have a total probability below `top_p`;
    one draw from what is left, renormalised.
    """
    if temperature == 0:
        return argmax(logits, axis=-1)
    classes = logits.shape[-1]
    kept = min(top_k, classes) if top_k and isinstance(classes, int) else top_k or classes
    values, at = topk(wide(logits) / temperature, k=kept, axis=-1)
    if top_p < 1:
        before = cumsum(softmax(values, axis=-1), axis=-1, exclusive=True)
        values = where(lt(before, max(top_p, 1e-30)), values, -math.inf)
    drawn = multinomial(values, key, samples=1, dtype=I64, stream=stream)
    return squeeze(gather_elements(at, drawn, axis=-1), axes=(-1,))
