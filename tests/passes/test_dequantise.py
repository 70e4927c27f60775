"""Large weights are dequantised at compile time, some rows after others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.oracles import quantize as oracle
from treadle.declare.arrays import Array
from treadle.ir.graph import Builder, Graph, Value
from treadle.ir.types import parse_type
from treadle.ops import dequantize_linear, matmul
from treadle.passes import dequantise
from treadle.passes.base import Context
from treadle.passes.constant_fold import ConstantFold
from treadle.passes.dequantise import by_rows

PICK = np.random.default_rng(3)


def graph_of(arrays: Sequence[Array], **attrs: int) -> Graph:
    with Builder("weight") as b:
        names = zip(("w", "s", "z"), arrays, strict=False)
        w, s, *z = [b.input(n, parse_type(f"{_dtype(a)}[{','.join(map(str, a.shape))}]"),
                            param=True) for n, a in names]
        return b.finish(dequantize_linear(w, s, zero=z[0] if z else None, **attrs))


def _dtype(a: Array) -> str:
    return {"float32": "f32", "int8": "i8", "uint8": "u8"}[a.dtype.name]


@pytest.mark.parametrize(("shape", "params", "axis", "block", "zero"), [
    ((7, 40), (7, 2), 1, 32, True), ((70, 6), (3, 6), 0, 32, True), ((7, 40), (40,), 1, 0, True),
    ((7, 40), (7,), 0, 0, False), ((3, 5, 8), (3, 5, 2), 2, 4, True), ((90,), (3,), 0, 32, False),
    ((9, 8), (), 1, 0, True), ((0, 8), (8,), 1, 0, True), ((9, 8), (1,), 0, 0, False)])
def test_rows_have_the_bits_of_the_whole(
        shape: tuple[int, ...], params: tuple[int, ...], axis: int, block: int, zero: bool,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dequantise, "ELEMENTS", 48)
    w = PICK.integers(-128, 128, shape, dtype=np.int8)
    arrays = [w, PICK.random(params).astype(np.float32)]
    arrays += [PICK.integers(-9, 9, params, dtype=np.int8)] if zero else []
    node = graph_of(arrays, axis=axis, block_size=block).nodes[-1]
    (got,) = by_rows(node, arrays)
    want = oracle._weight(*arrays[:2], arrays[2] if zero else None, axis, block)
    np.testing.assert_array_equal(got, want.astype(np.float32))


def test_a_weight_is_folded_whatever_its_size() -> None:
    arrays = {"w": PICK.integers(0, 256, (64, 16), dtype=np.uint8),
              "s": PICK.random((64,)).astype(np.float32)}

    def fn(x: Value, w: Value, s: Value) -> Value:
        return matmul(x, dequantize_linear(w, s, axis=0))

    with Builder("product") as b:
        x = b.input("x", parse_type("f32[m,64]"))
        held = [b.input(n, parse_type(t), param=True) for n, t in (("w", "u8[64,16]"),
                                                                    ("s", "f32[64]"))]
        graph = b.finish(fn(x, *held))
    ctx = Context(dict(arrays))
    done = ConstantFold(limit=16, inline=16).run(graph, ctx)
    assert [n.op for n in done.nodes] == ["matmul"]
    want = arrays["w"].astype(np.float64) * arrays["s"][:, None]
    np.testing.assert_allclose(ctx.params[done.nodes[0].inputs[1].name], want, rtol=1e-6)
