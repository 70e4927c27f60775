"""Static types of operator calls; pyright checks this file, nothing runs it."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import assert_type

import numpy as np

from treadle import ops
from treadle.declare.arrays import Array
from treadle.declare.scalar import Scalar
from treadle.ir.graph import Value
from treadle.ir.types import F32
from treadle.ops.activations import gelu
from treadle.ops.arithmetic import add
from treadle.ops.compare import where
from treadle.ops.movement import concat
from treadle.ops.reduce import sum_


def family_files(x: Value, a: Array, s: Scalar) -> None:
    """Operators imported from their family: operands give the type, attributes are checked."""
    assert_type(gelu(x), Value)
    assert_type(gelu(a), Array)
    assert_type(gelu(np.ones(3)), Array)
    assert_type(gelu(s), Scalar)
    assert_type(add(x, 2.0) * x, Value)
    assert_type(where(x, x, 1.0), Value)
    assert_type(concat([x, x], axis=0), Value)
    assert_type(sum_(x, axes=(0,)), Value)
    sum_(x, axis=0)  # pyright: ignore[reportCallIssue]
    sum_(x)  # pyright: ignore[reportCallIssue]
    add(x)  # pyright: ignore[reportCallIssue]
    add(x, a)  # pyright: ignore[reportArgumentType]


def values(x: Value, a: Array) -> None:
    """The namespace also knows optional operands, outputs and regions."""
    assert_type(ops.gelu(x), Value)
    assert_type(ops.topk(x, k=2), tuple[Value, Value])
    assert_type(ops.topk(a, k=2), tuple[Array, Array])
    assert_type(ops.where(x, x, 1.0), Value)
    assert_type(ops.attention(x, x, x, mask=x), Value)
    assert_type(ops.conv(x, x, bias=x, strides=[2, 2]), Value)
    assert_type(ops.full(value=1.0, shape=(2,), dtype=F32), Value)
    assert_type(ops.if_(x, then=lambda: x, orelse=lambda: x), Value | tuple[Value, ...])
    ops.attention(x, x, x, mask=a)  # pyright: ignore[reportArgumentType]
    ops.softcap(x, cup=3.0)  # pyright: ignore[reportCallIssue]
    ops.softcap(x, cap="3")  # pyright: ignore[reportArgumentType]
    ops.resize(x, sizes=(2,), mode="cubist")  # pyright: ignore[reportArgumentType]


def scalars(s: Scalar) -> None:
    """Scalars inline elementwise operators and meet no others."""
    assert_type(ops.gelu(s), Scalar)
    assert_type(ops.max_(s, 0.0), Scalar)
    ops.sum_(s, axes=(0,))  # pyright: ignore[reportArgumentType]
    ops.concat([s], axis=0)  # pyright: ignore[reportArgumentType]
