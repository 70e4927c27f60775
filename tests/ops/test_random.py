"""Random numbers: the oracle's own vectors, and that the draws have the right distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats

from tests.oracles import random as oracle
from treadle.ops.library import REGISTRY

OPS: Any = REGISTRY
KEY = np.asarray(2026, np.uint64)


def test_the_oracle_gives_the_published_vectors() -> None:
    """Random123's kat_vectors for philox4x32-10."""
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert oracle.block((0, 0, 0, 0), (0, 0)) == (
        0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert oracle.block(pi, (0xA4093822, 0x299F31D0)) == (
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_a_longer_draw_begins_with_the_shorter_one() -> None:
    bits = OPS["random_bits"](KEY, shape=(103,))
    np.testing.assert_array_equal(OPS["random_bits"](KEY, shape=(3, 10)).reshape(-1), bits[:30])
    assert not np.array_equal(OPS["random_bits"](KEY, shape=(103,), stream=1), bits)


def test_distributions() -> None:
    uniform = OPS["uniform"](KEY, shape=(20000,), low=2.0, high=4.0)
    assert scipy.stats.kstest(uniform, "uniform", (2.0, 2.0)).pvalue > 1e-3
    normal = OPS["normal"](KEY, shape=(20000,), mean=1.0, std=3.0)
    assert scipy.stats.kstest(normal, "norm", (1.0, 3.0)).pvalue > 1e-3
    p = np.full(20000, 0.3, np.float32)
    ones = OPS["bernoulli"](p, KEY).sum()
    assert scipy.stats.binomtest(int(ones), p.size, 0.3).pvalue > 1e-3


def test_categorical_draws() -> None:
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    drawn = OPS["multinomial"](np.log(weights).astype(np.float32), KEY, samples=20000)
    counts = np.bincount(drawn, minlength=4)
    assert scipy.stats.chisquare(counts, weights * 20000).pvalue > 1e-3


def test_sampling_keeps_to_the_nucleus() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]] * 4000, np.float32))
    for attrs, allowed in (({"top_p": 0.6}, {0, 1}), ({"top_k": 3}, {0, 1, 2}),
                           ({"top_k": 3, "top_p": 0.1}, {0}), ({}, {0, 1, 2, 3})):
        drawn = OPS["sample"](logits, KEY, **attrs)
        assert set(drawn.tolist()) == allowed, attrs
