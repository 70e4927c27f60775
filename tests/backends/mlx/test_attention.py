"""Everything that restricts attention, in any combination, on MLX against sums in f64."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.backends.mlx.running import run_graph
from treadle.declare.arrays import Array, type_of
from treadle.ir.graph import Graph, Value, trace
from treadle.ops.attention import attention

Options = dict[str, Any]


def meant(operands: list[Array], given: Options, attrs: Options) -> Array:
    """softmax(scores over the keys that each query sees) v, zeros where it sees none."""
    q, k, v = (x.astype(np.float64) for x in operands)
    (_, heads, rows, depth), (n, kept, columns, _) = q.shape, k.shape
    k, v = (np.repeat(x, heads // kept, 1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * (attrs["scale"] or 1 / np.sqrt(depth))
    if cap := attrs["softcap"]:
        scores = cap * np.tanh(scores / cap)
    scores = scores + given.get("bias", 0.0)
    offset = np.reshape(given.get("offset", 0), (-1, 1, 1, 1)) + attrs["start"]
    p, j = np.arange(rows)[:, None] + offset, np.arange(columns)
    seen = np.broadcast_to(given.get("mask", True), (n, heads, rows, columns))
    seen = seen & (j >= p - attrs["left"]) & (j <= p + attrs["right"])
    seen = seen & (j < np.reshape(given.get("valid_length", columns), (-1, 1, 1, 1)))
    weights = np.where(seen, np.exp(scores), 0.0)
    total = weights.sum(-1, keepdims=True) + np.exp(
        given["sink"].astype(np.float64).reshape(-1, 1, 1) if "sink" in given else -np.inf)
    return weights / np.where(total == 0, 1, total) @ v


def drawn(seed: int) -> tuple[list[Array], Options, Options]:
    """Operands, those that restrict, and attributes; of each kind some are left out."""
    rng = np.random.default_rng(seed)
    n, kept, group, rows, columns = (int(rng.integers(1, most)) for most in (3, 3, 4, 5, 7))
    kind = np.float16 if seed % 3 == 0 else np.float32

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(kind)

    heads = kept * group
    every: Options = {
        "mask": rng.random((n, 1, rows, columns)) < 0.4, "bias": normal(1, heads, rows, columns),
        "offset": rng.integers(-3, 4, n), "valid_length": rng.integers(0, columns + 1, n),
        "sink": normal(heads)}
    attrs = {"scale": [None, 1.0][seed % 2], "softcap": [None, 1.5][seed // 2 % 2],
             "start": int(rng.integers(-2, 3)), "left": int(rng.integers(0, 9)),
             "right": int(rng.integers(0, 9))}
    depth, wide = (int(rng.integers(1, 9)) for _ in range(2))
    operands = [normal(n, heads, rows, depth), normal(n, kept, columns, depth),
                normal(n, kept, columns, wide)]
    return operands, {k: v for k, v in every.items() if rng.random() < 0.5}, attrs


def attending(arrays: list[Array], names: list[str], attrs: Options) -> Graph:
    def fn(q: Value, k: Value, v: Value, *more: Value) -> Value:
        return attention(q, k, v, **dict(zip(names, more, strict=True)), **attrs)

    return trace(fn, *map(type_of, arrays))


@pytest.mark.parametrize("mode", ["lazy", "compiled"])
def test_restrictions_compose(mode: str) -> None:
    mx.disable_compile()  # on the CPU MLX calls g++ for each kernel
    try:
        for seed in range(24):
            operands, given, attrs = drawn(seed)
            arrays = [*operands, *given.values()]
            found = run_graph(mode, attending(arrays, list(given), attrs), arrays)[0]
            bound = 4e-3 if found.dtype == np.float16 else 2e-5
            np.testing.assert_allclose(found.astype(np.float64), meant(operands, given, attrs),
                                       rtol=bound, atol=bound, err_msg=f"seed {seed}")
    finally:
        mx.enable_compile()


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_keys_beyond_the_valid_length_may_hold_anything(softcap: float | None) -> None:
    operands, lengths = drawn(1)[0], np.array([1])
    q, k, v = (np.ones((1, 2, n, 4), np.float32) * operands[0].flat[0] for n in (2, 3, 3))
    k[:, :, 1:], v[:, :, 1:] = np.nan, np.inf
    arrays = [q, k, v, lengths]
    graph = attending(arrays, ["valid_length"], {"softcap": softcap})
    found = run_graph("lazy", graph, arrays)[0]
    np.testing.assert_allclose(found, np.broadcast_to(v[:, :, :1], q.shape), rtol=1e-6)
