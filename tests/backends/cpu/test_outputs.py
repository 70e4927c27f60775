"""Outputs that lie in one another: equal at every call, and never one memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

import treadle
from treadle import ops
from treadle.ir.graph import Value

Made = Callable[[Value, Value], tuple[Value, ...]]


def turned(y: Value) -> Value:
    return ops.transpose(y, perm=(1, 0))


def first(y: Value) -> Value:
    return ops.narrow(y, axis=0, start=0, length=1)


def after(past: Value, y: Value) -> Value:
    return ops.concat([past, y], axis=0)


CASES: dict[str, Made] = {
    "a value and its transpose": lambda y, x: (y, turned(y)),
    "a transpose and its value": lambda y, x: (turned(y), y),
    "a value reversed": lambda y, x: (y, ops.flip(y, axes=(0,))),
    "a part": lambda y, x: (y, first(y)),
    "parts alone": lambda y, x: (turned(y), first(y)),
    "a cache that ends in a value": lambda y, x: (y, after(x, y)),
    "a value inside a cache": lambda y, x: (after(x, y), y),
    "nested caches": lambda y, x: (y, after(after(y, x), y)),
    "a value twice and flat": lambda y, x: (y, y, ops.reshape(y, shape=(-1,))),
    "inputs among outputs": lambda y, x: (turned(y), x, turned(x), y),
}


@pytest.mark.parametrize("spec", ["f32[2,3]", "f32[n,m]"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_has_its_own_values(name: str, spec: str) -> None:
    model = treadle.trace(lambda x: CASES[name](ops.neg(x), x), spec)
    exe, oracle = model.compile("cpu"), model.compile("reference")
    for turn in range(3):
        x = np.arange(6, dtype=np.float32).reshape(2, 3) + turn
        found, wanted = exe(x), oracle(x)
        for output, array in wanted.items():
            np.testing.assert_array_equal(found[output], array)
        assert not any(np.shares_memory(a, b) for a, b in combinations(found.values(), 2))
