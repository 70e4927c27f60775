"""Quantised products on the device "mlx" beside MLX's own: `python -m bench.mlx_quantized 1 128`.

For each shape, graphs of 8 and of 24 products with weights of their own, which no cache holds. A
call is timed from the call to its answer with all arrays on the device; what 16 more products cost
is the time of one on the device. By hand the same with `mx.quantized_matmul` in `mx.compile`. Both
take turns; medians with quartiles. Prints JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import mlx.core as mx
import numpy as np

from bench.mlx_turns import ratio, turns
from treadle.backends.mlx.backend import Mlx
from treadle.backends.mlx.device import text
from treadle.backends.mlx.owner import owner
from treadle.backends.mlx.program import MlxStorage
from treadle.backends.mlx.quantized import packed
from treadle.declare.arrays import Array, np_dtype
from treadle.ir.graph import Builder, Value
from treadle.ir.types import DTYPES, parse_type
from treadle.ops.contract import matmul
from treadle.ops.movement import transpose
from treadle.ops.quantize import dequantize_linear
from treadle.passes.base import Context
from treadle.passes.pipeline import from_config

SHAPES = ((14336, 4096, 64), (4096, 14336, 32), (4096, 4096, 64))
FEW, MANY = 8, 24
Call: TypeAlias = Callable[[mx.array], Sequence[mx.array]]


@dataclass(frozen=True)
class Case:
    """Weights [n,k] in groups, in f16."""

    n: int
    k: int
    group: int

    @property
    def nbytes(self) -> int:
        """Bytes of a weight with its scales and biases in f16."""
        return self.n * self.k // 2 + self.n * self.k // self.group * 4

    def draw(self) -> tuple[Array, Array]:
        """A weight with its scales."""
        rng = np.random.default_rng(0)
        w = rng.integers(0, 16, (self.n, self.k), dtype=np.uint8).astype(np_dtype(DTYPES["u4"]))
        return w, rng.random((self.n, self.k // self.group)).astype(np.float16) / np.float16(64)


def ours(case: Case, count: int, w: Array, s: Array) -> Call:
    """A call of `count` products on the device "mlx"."""
    blocks = case.k // case.group
    params = {"z": np.full((case.n, blocks), 8, np.uint8).astype(w.dtype)}
    with Builder("products") as b:
        given, out = b.input("x", parse_type(f"f16[m,{case.k}]")), list[Value]()
        z = b.input("z", parse_type(f"u4[{case.n},{blocks}]"), param=True)
        for i in range(count):
            q = b.input(f"w{i}", parse_type(f"u4[{case.n},{case.k}]"), param=True)
            by = b.input(f"s{i}", parse_type(f"f16[{case.n},{blocks}]"), param=True)
            params |= {f"w{i}": w, f"s{i}": s}
            real = dequantize_linear(q, by, zero=z, axis=1, block_size=case.group)
            out.append(matmul(given, transpose(real, perm=(1, 0))))
        graph = b.finish(out)
    backend = Mlx("compiled")
    steps = from_config(stop_after="raise_quantized")  # parameters with equal bytes stay apart
    program = backend.compile(steps.run(graph, Context({}, legaliser=backend)).graph, params)

    def call(x: mx.array) -> Sequence[mx.array]:
        return program.run([x], {"m": x.shape[0]}, kept=range(count))

    return call


def theirs(case: Case, count: int, w: Array, s: Array) -> Call:
    """The same by `mx.quantized_matmul`."""
    words = packed(w.astype(np.uint8), 4)
    weights = [(mx.array(words), mx.array(s), mx.array(-8 * s)) for _ in range(count)]
    mx.eval(weights)

    def products(x: mx.array, weights: Sequence[Sequence[mx.array]]) -> list[mx.array]:
        return [mx.quantized_matmul(x, *w, True, case.group, 4) for w in weights]

    fn = mx.compile(products)

    def call(x: mx.array) -> Sequence[mx.array]:
        made = fn(x, weights)
        mx.eval(made)
        return made

    return call


def measure(case: Case, rows: Sequence[int], seconds: float) -> Iterator[dict[str, object]]:
    """Calls and products of both, and how far apart their answers are, at each count of rows."""
    w, s = case.draw()
    makes = [ours(case, n, w, s) for n in (FEW, MANY)]
    makes += [partial(owner().call, owner().call(theirs, case, n, w, s)) for n in (FEW, MANY)]
    for m in rows:
        x = np.random.default_rng(m).standard_normal((m, case.k)).astype(np.float16)
        given = MlxStorage().put(x)
        calls = [partial(c, given) for c in makes]
        a, b = (owner().call(np.array, c()[0]).astype(np.float64) for c in calls[::2])
        found = list(turns({str(i): c for i, c in enumerate(calls)}, seconds).values())
        medians = [t.median / 1e6 for t in found]
        each = [(many - few) / (MANY - FEW) for few, many in (medians[:2], medians[2:])]
        yield {"n": case.n, "k": case.k, "group": case.group, "rows": m,
               "ours_us": [str(t) for t in found[:2]], "by_hand_us": [str(t) for t in found[2:]],
               "ratio": [ratio(*found[::2]), ratio(*found[1::2])],
               "product_us": [round(t * 1e6, 2) for t in each],
               "GB/s": [round(case.nbytes / t / 1e9) for t in each],
               "apart": f"{np.abs(a - b).max() / np.abs(b).max():.1e}"}


def main() -> None:
    """Measure every shape at the rows given, by default 1 and 128."""
    rows = [int(r) for r in sys.argv[1:]] or [1, 128]
    for n, k, group in SHAPES:
        for found in measure(Case(n, k, group), rows, 1.0):
            print(json.dumps(found), flush=True)
    print(json.dumps({"device": text()}))


if __name__ == "__main__":
    main()
