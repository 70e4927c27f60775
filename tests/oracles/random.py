"""Philox 4x32-10 in Python integers, and distributions from its words in f64."""

from __future__ import annotations

import math

import numpy as np

from treadle.ir.types import BOOL, F32, F64, I32, DType

MASK = 0xFFFFFFFF


def block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = ((b >> 32) ^ counter[1] ^ key[0], b & MASK,
                   (a >> 32) ^ counter[3] ^ key[1], a & MASK)
        key = ((key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK)
    return counter


def words(key: np.ndarray, n: int, stream: int) -> list[int]:
    k = int(key.reshape(()))
    out: list[int] = []
    for i in range((n + 3) // 4):
        out += block((i & MASK, i >> 32, stream & MASK, stream >> 32), (k & MASK, k >> 32))
    return out[:n]


def units(key: np.ndarray, n: int, stream: int, dtype: DType = F32) -> np.ndarray:
    if dtype is F64:
        w = words(key, 2 * n, stream)
        return np.array([((w[i] >> 5) * 2**26 + (w[i + 1] >> 6)) / 2**53
                         for i in range(0, 2 * n, 2)])
    return np.array([(w >> 8) / 2**24 for w in words(key, n, stream)])


def random_bits(key: np.ndarray, *, shape: tuple[int, ...], stream: int = 0) -> list[np.ndarray]:
    return [np.array(words(key, math.prod(shape), stream), np.uint32).reshape(shape)]


def uniform(key: np.ndarray, *, shape: tuple[int, ...], low: float, high: float, stream: int
            ) -> list[np.ndarray]:
    u = units(key, math.prod(shape), stream)
    return [(low + u * (high - low)).astype(np.float32).reshape(shape)]


def normal(key: np.ndarray, *, shape: tuple[int, ...], dtype: DType = F32, mean: float = 0.0,
           std: float = 1.0, stream: int = 0) -> list[np.ndarray]:
    total = math.prod(shape)
    u = units(key, (total + 1) // 2 * 2, stream, dtype)
    out: list[float] = []
    for a, b in zip(u[::2], u[1::2], strict=True):
        r = math.sqrt(-2 * math.log(1 - a))
        out += [r * math.cos(2 * math.pi * b), r * math.sin(2 * math.pi * b)]
    return [(mean + std * np.array(out[:total])).reshape(shape).astype(dtype.numpy)]


def bernoulli(p: np.ndarray, key: np.ndarray, *, dtype: DType | None = None, stream: int = 0
              ) -> list[np.ndarray]:
    drawn = units(key, p.size, stream).reshape(p.shape) < p
    return [drawn if dtype is BOOL else drawn.astype(p.dtype)]


def multinomial(logits: np.ndarray, key: np.ndarray, *, samples: int, dtype: DType = I32,
                stream: int = 0) -> list[np.ndarray]:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    total = np.cumsum(e / e.sum(-1, keepdims=True), -1)
    u = units(key, len(logits) * samples, stream).reshape(len(logits), samples)
    rows = [np.searchsorted(t, v * t[-1], "right") for t, v in zip(total, u, strict=True)]
    return [np.array(rows).astype(dtype.numpy)]


def dropout(x: np.ndarray, ratio: np.ndarray, key: np.ndarray, *, stream: int = 0
            ) -> list[np.ndarray]:
    kept = units(key, x.size, stream).reshape(x.shape) >= ratio
    return [np.where(kept, x / (1 - ratio), 0).astype(x.dtype), kept]


def sample_rows(logits: np.ndarray, key: np.ndarray, *, temperature: float) -> list[np.ndarray]:
    order = np.argsort(-logits, -1, "stable")
    ranked = np.take_along_axis(logits, order, -1) / temperature
    (drawn,) = multinomial(ranked, key, samples=1)
    return [np.take_along_axis(order, drawn.astype(np.int64), -1)[:, 0]]
