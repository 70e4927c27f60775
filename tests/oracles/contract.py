"""Contractions by ONNX Runtime and by f64 NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.oracles.ort import run
from treadle.declare.arrays import Array


def matmul(a: Array, b: Array) -> Array:
    return run("MatMul", [a, b])[0]


def dot_general(a: Array, b: Array, contract_a: Sequence[int], contract_b: Sequence[int],
                batch_a: Sequence[int], batch_b: Sequence[int]) -> Array:
    """By numpy.einsum: equal labels for paired axes."""
    left = [chr(97 + i) for i in range(a.ndim)]
    right = [chr(65 + i) for i in range(b.ndim)]
    for i, j in zip((*contract_a, *batch_a), (*contract_b, *batch_b), strict=True):
        right[j] = left[i]
    free_a = [c for c in left if c not in right]
    free_b = [c for c in right if c not in left]
    out = "".join([*(left[i] for i in batch_a), *free_a, *free_b])
    equation = f"{''.join(left)},{''.join(right)}->{out}"
    return np.einsum(equation, a.astype("f8"), b.astype("f8")).astype(a.dtype)


def einsum(*xs: Array, equation: str) -> Array:
    return run("Einsum", xs, {"equation": equation})[0]


def matmul_integer(a: Array, b: Array, a_zero: Array, b_zero: Array) -> Array:
    return run("MatMulInteger", [a, b, a_zero, b_zero])[0]


def matmul_integer_exact(a: Array, b: Array, a_zero: Array) -> Array:
    """ONNX Runtime has no zero points per row; these are Python integers."""
    left = a.astype(object) - a_zero.astype(object)[:, None]
    return np.dot(left, b.astype(object)).astype(np.int32)
