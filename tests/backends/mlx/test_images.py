"""Images whose channels are last inside give what channels-first ones do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.backends.mlx.running import executable, normal, run_graph
from tests.conformance.harness import execute
from treadle.declare.arrays import type_of
from treadle.errors import RunError
from treadle.ir.graph import Value, trace
from treadle.ops.activations import relu
from treadle.ops.arithmetic import add, mul
from treadle.ops.conv import conv, conv_transpose
from treadle.ops.movement import concat, narrow, reshape, transpose
from treadle.ops.norm import layer_norm
from treadle.ops.pad import pad
from treadle.ops.pool import max_pool
from treadle.ops.reduce import reduce_max, sum_

Tail = Callable[[Value, Value], Value]


def first(x: Value, *axes: int) -> Value:
    """The first element of axes."""
    for axis in axes:
        x = narrow(x, axis=axis, start=0, length=1)
    return x


TAILS: dict[str, Tail] = {
    "bias of rank 3": lambda y, x: relu(add(y, reshape(first(x, 0, 3), shape=(4, 6, 1)))),
    "another image": lambda y, x: mul(y, x),
    "joined": lambda y, x: concat([y, x, relu(y)], axis=1),
    "joined along rows": lambda y, x: concat([y, x], axis=2),
    "padded": lambda y, x: pad(y, pads=(0, 1, 2, 0, 0, 0, 1, 3), value=7.0),
    "reflected": lambda y, x: pad(y, pads=(0, 0, 2, 1, 0, 0, 1, 2), mode="reflect"),
    "pooled": lambda y, x: max_pool(y, kernel=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)),
    "summed": lambda y, x: sum_(y, axes=(-1, 1), keepdims=True),
    "largest": lambda y, x: reduce_max(y, axes=(1,)),
    "part of the channels": lambda y, x: relu(narrow(y, axis=1, start=1, length=2)),
    "turned": lambda y, x: transpose(relu(y), perm=(0, 2, 3, 1)),
    "normalised": lambda y, x: layer_norm(y, reshape(first(x, 0, 1, 2), shape=(5,))),
    "convolved again": lambda y, x: conv(y, concat([narrow(
        x, axis=2, start=0, length=3)] * 2, axis=0), pads=(1, 2, 1, 2)),
    "spread": lambda y, x: conv_transpose(y, x, strides=(2, 1))}


@pytest.mark.parametrize("tail", TAILS)
def test_after_a_convolution(tail: str) -> None:
    def net(x: Value, w: Value) -> Value:
        x4 = reshape(x, shape=(4, 1, 6, 5))
        return TAILS[tail](conv(x4, w, pads=(1, 1, 1, 1)), conv(x4, w, pads=(1, 1, 1, 1)))

    arrays = [normal(4, 6, 5), normal(4, 1, 3, 3, seed=1)]
    graph = trace(net, *[type_of(a) for a in arrays])
    want = execute(graph, arrays)
    for a, b in zip(run_graph("lazy", graph, arrays), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_a_window_that_does_not_fit_is_refused(mode: str) -> None:
    """MLX itself gives one where the step is larger than what is missing."""
    exe = executable(lambda x, w: conv(x, w, strides=(4, 4)), "f32[1,1,n,n]", "f32[1,1,5,5]",
                     mode=mode)
    assert exe(normal(1, 1, 5, 5), normal(1, 1, 5, 5)).popitem()[1].shape == (1, 1, 1, 1)
    with pytest.raises(RunError, match="a window of 5 does not fit an axis of 3"):
        exe(normal(1, 1, 3, 3), normal(1, 1, 5, 5))
