"""The device "mlx" beside the same models written by hand with MLX: `python -m bench.mlx_rows`.

A transformer block, an MLP and a convolutional net, compiled, lazy and eager (by hand with an
`mx.eval` after every operation of MLX), and the cost of a call with 200 parameters, also of a whole
call of an executable from NumPy to NumPy. In all other rows both sides keep their arrays on the
device. Medians with quartiles over alternating blocks; a ratio in brackets is within the spread.
Arguments: the scale of the models, then the modes. Prints JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import mlx.core as mx
import numpy as np
import onnx
from onnx import helper, numpy_helper

import treadle
from bench.mlx_turns import ratio, turns
from treadle.backends.mlx.arrays import to_mlx
from treadle.backends.mlx.backend import Mlx
from treadle.backends.mlx.device import text
from treadle.backends.mlx.owner import owner
from treadle.declare.arrays import Array
from treadle.ir.graph import Builder, Value
from treadle.ir.types import parse_type
from treadle.ops.activations import gelu, relu, silu
from treadle.ops.arithmetic import add
from treadle.ops.attention import attention
from treadle.ops.contract import matmul
from treadle.ops.conv import conv
from treadle.ops.movement import reshape, transpose
from treadle.ops.norm import rms_norm
from treadle.ops.pool import global_average_pool
from treadle.passes.base import Context
from treadle.passes.pipeline import from_config

MODES = ("compiled", "lazy", "eager")
Weights = dict[str, Array]
Args = dict[str, mx.array]


@dataclass(frozen=True)
class Row:
    """A model: its input, its weights, and the ways to write it."""

    name: str
    x: Array
    weights: Weights
    graph: Callable[[Value, Mapping[str, Value]], Value]
    by_hand: Callable[[mx.array, Args], mx.array]
    one_by_one: Callable[[mx.array, Args], mx.array]
    """The same with an evaluation after every operation."""


def now(x: mx.array) -> mx.array:
    """An array, evaluated."""
    mx.eval(x)
    return x


def draw(rng: np.random.Generator, *shape: int, dtype: type = np.float32) -> Array:
    """Weights of variance 1 / fan-in."""
    fan = int(np.prod(shape[:-1])) or 1
    return (rng.standard_normal(shape) / fan**0.5).astype(dtype)


def block(rng: np.random.Generator, scale: int) -> Row:
    """Pre-norm causal attention and SwiGLU in f16."""
    heads, d, s = 2 * scale, 64, 64 * scale
    e, f, half = heads * d, 4 * heads * d, np.float16
    weights = {"g1": np.ones(e, half), "g2": np.ones(e, half),
               **{k: draw(rng, e, e, dtype=half) for k in ("q", "k", "v", "o")},
               "up": draw(rng, e, f, dtype=half), "gate": draw(rng, e, f, dtype=half),
               "down": draw(rng, f, e, dtype=half)}

    def graph(x: Value, w: Mapping[str, Value]) -> Value:
        n = rms_norm(x, w["g1"])
        q, k, v = (transpose(reshape(matmul(n, w[i]), shape=(1, s, heads, d)), perm=(0, 2, 1, 3))
                   for i in "qkv")
        mixed = reshape(transpose(attention(q, k, v, right=0), perm=(0, 2, 1, 3)),
                        shape=(1, s, e))
        x = add(x, matmul(mixed, w["o"]))
        n = rms_norm(x, w["g2"])
        return add(x, matmul(matmul(n, w["up"]) * silu(matmul(n, w["gate"])), w["down"]))

    def by_hand(x: mx.array, w: Args) -> mx.array:
        n = mx.fast.rms_norm(x, w["g1"], 1e-5)
        q, k, v = ((n @ w[i]).reshape(1, s, heads, d).transpose(0, 2, 1, 3) for i in "qkv")
        mixed = mx.fast.scaled_dot_product_attention(q, k, v, scale=d**-0.5, mask="causal")
        x = x + mixed.transpose(0, 2, 1, 3).reshape(1, s, e) @ w["o"]
        n = mx.fast.rms_norm(x, w["g2"], 1e-5)
        gate = n @ w["gate"]
        return x + ((n @ w["up"]) * (gate * mx.sigmoid(gate))) @ w["down"]

    return Row("transformer block, f16", draw(rng, 1, s, e, dtype=half), weights, graph, by_hand,
               partial(block_one_by_one, (1, s, heads, d)))


def block_one_by_one(shape: tuple[int, ...], x: mx.array, w: Args) -> mx.array:
    """The hand-written block with an evaluation after every operation."""
    n = now(mx.fast.rms_norm(x, w["g1"], 1e-5))
    q, k, v = (now(now(now(n @ w[i]).reshape(shape)).transpose(0, 2, 1, 3)) for i in "qkv")
    mixed = now(mx.fast.scaled_dot_product_attention(q, k, v, scale=shape[3]**-0.5,
                                                     mask="causal"))
    mixed = now(now(mixed.transpose(0, 2, 1, 3)).reshape(x.shape))
    x = now(x + now(mixed @ w["o"]))
    n = now(mx.fast.rms_norm(x, w["g2"], 1e-5))
    gate = now(n @ w["gate"])
    silu = now(gate * now(mx.sigmoid(gate)))
    return now(x + now(now(now(n @ w["up"]) * silu) @ w["down"]))


def mlp(rng: np.random.Generator, scale: int) -> Row:
    """Four dense layers with GELU in f32."""
    e, rows = 256 * scale, 64 * scale
    weights = {k: v for i in range(4) for k, v in (
        (f"w{i}", draw(rng, e, e)), (f"b{i}", draw(rng, 1, e)))}

    def graph(x: Value, w: Mapping[str, Value]) -> Value:
        for i in range(4):
            x = gelu(add(matmul(x, w[f"w{i}"]), w[f"b{i}"]))
        return x

    def by_hand(x: mx.array, w: Args) -> mx.array:
        for i in range(4):
            x = x @ w[f"w{i}"] + w[f"b{i}"]
            x = x * (1 + mx.erf(x / 2**0.5)) / 2
        return x

    def one_by_one(x: mx.array, w: Args) -> mx.array:
        for i in range(4):
            x = now(now(x @ w[f"w{i}"]) + w[f"b{i}"])
            x = now(now(x * now(1 + now(mx.erf(now(x / 2**0.5))))) / 2)
        return x

    return Row("MLP with GELU, f32", draw(rng, rows, e), weights, graph, by_hand, one_by_one)


def conv_net(rng: np.random.Generator, scale: int) -> Row:
    """Six 3x3 convolutions with ReLU, a mean and a dense layer in f32."""
    widths, size = [3, *[32 * scale] * 6], 32 * scale
    weights = {k: v for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False))
               for k, v in ((f"w{i}", np.ascontiguousarray(
                   draw(rng, 3, 3, a, b).transpose(3, 2, 0, 1))), (f"b{i}", draw(rng, b)))}
    weights["head"] = draw(rng, widths[-1], 100)

    def graph(x: Value, w: Mapping[str, Value]) -> Value:
        for i in range(6):
            x = relu(conv(x, w[f"w{i}"], bias=w[f"b{i}"], strides=(1 + i % 2, 1 + i % 2),
                          pads=(1, 1, 1, 1)))
        flat = reshape(global_average_pool(x), shape=(x.shape[0], widths[-1]))
        return matmul(flat, w["head"])

    def by_hand(x: mx.array, w: Args) -> mx.array:
        for i in range(6):
            x = mx.conv2d(x, w[f"w{i}"], stride=1 + i % 2, padding=1) + w[f"b{i}"]
            x = mx.maximum(x, 0)
        return mx.mean(x, axis=(1, 2)) @ w["head"]

    def one_by_one(x: mx.array, w: Args) -> mx.array:
        for i in range(6):
            y = now(mx.conv2d(x, w[f"w{i}"], stride=1 + i % 2, padding=1))
            x = now(mx.maximum(now(y + w[f"b{i}"]), 0))
        return now(now(mx.mean(x, axis=(1, 2))) @ w["head"])

    return Row("conv net, f32", draw(rng, 4, 3, size, size), weights, graph, by_hand, one_by_one)


def call_cost(rng: np.random.Generator) -> Row:
    """200 parameters and hardly any work: what a call costs."""
    weights = {f"w{i}": draw(rng, 4) for i in range(200)}

    def graph(x: Value, w: Mapping[str, Value]) -> Value:
        for k in weights:
            x = add(x, w[k])
        return x

    def by_hand(x: mx.array, w: Args) -> mx.array:
        for k in weights:
            x = x + w[k]
        return x

    def one_by_one(x: mx.array, w: Args) -> mx.array:
        for k in weights:
            x = now(x + w[k])
        return x

    return Row("200 parameters", draw(rng, 4), weights, graph, by_hand, one_by_one)


def compiled(row: Row, mode: str) -> Callable[[], object]:
    """A call of the row on the device "mlx", with resident input and output."""
    with Builder(row.name) as b:
        x = b.input("x", parse_type(_type(row.x)))
        w = {k: b.input(k, parse_type(_type(v)), param=True) for k, v in row.weights.items()}
        graph = b.finish(row.graph(x, w))
    backend = Mlx(mode)
    ctx = Context(dict(row.weights), legaliser=backend)
    done = from_config().run(graph, ctx)
    program = backend.compile(done.graph, ctx.params)
    held = program.storage.put(row.x)
    return lambda: program.run([held], {}, kept=(0,))[0]


def _type(a: Array) -> str:
    return f"{'f16' if a.dtype == np.float16 else 'f32'}[{','.join(map(str, a.shape))}]"


def hand_written(row: Row, mode: str) -> Callable[[], object]:
    """A call of the hand-written model, images channels-last."""
    def last(a: Array) -> mx.array:
        return to_mlx(np.ascontiguousarray(np.moveaxis(a, 1, -1)) if a.ndim == 4 else a)

    weights = {k: last(v) for k, v in row.weights.items()}
    x = last(row.x)
    mx.eval(x, weights)
    fn = {"compiled": mx.compile(row.by_hand), "lazy": row.by_hand,
          "eager": row.one_by_one}[mode]

    def call() -> object:
        out = fn(x, weights)
        mx.eval(out)
        return out

    return call


def whole_call(row: Row) -> tuple[Callable[[], object], Callable[[], object]]:
    """The row through an executable, from NumPy to NumPy, and the same by hand."""
    names = list(row.weights)
    steps = [helper.make_node("Add", [f"t{i}" if i else "x", k], [f"t{i + 1}"])
             for i, k in enumerate(names)]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, row.x.shape)
            for n in ("x", f"t{len(names)}")]
    graph = helper.make_graph(steps, "adds", ends[:1], ends[1:], [
        numpy_helper.from_array(v, k) for k, v in row.weights.items()])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)])
    with tempfile.TemporaryDirectory() as place:
        onnx.save(model, f"{place}/adds.onnx")
        exe = treadle.load(f"{place}/adds.onnx").compile("mlx", mode="compiled", freeze=False)
    fn, weights = mx.compile(row.by_hand), {k: to_mlx(v) for k, v in row.weights.items()}
    return lambda: exe(row.x), lambda: np.array(fn(mx.array(row.x), weights))


def side_by_side(ours: Callable[[], object], theirs: Callable[[], object], seconds: float
                 ) -> dict[str, object]:
    """Both in turns, all inside one call of the owner's, as a caller on its thread has it."""
    found = owner().call(turns, {"ours": ours, "theirs": theirs}, seconds)
    a, b = found["ours"], found["theirs"]
    return {"ours_us": str(a), "by_hand_us": str(b), "ratio": ratio(a, b)}


def main() -> None:
    """Measure every row in every mode."""
    scale = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    modes = sys.argv[2:] or MODES
    rng = np.random.default_rng(0)
    for row in (block(rng, scale), mlp(rng, scale), conv_net(rng, scale), call_cost(rng)):
        for mode in modes:
            ours = compiled(row, mode)
            theirs = owner().call(hand_written, row, mode)
            a, b = np.asarray(_numpy(ours())), np.asarray(_numpy(owner().call(theirs)))
            error = float(np.abs(a.astype(np.float64) - b).max() / max(np.abs(b).max(), 1e-9))
            print(json.dumps({"row": row.name, "mode": mode, **side_by_side(ours, theirs, 3.0),
                              "error": f"{error:.1e}"}), flush=True)
    if "compiled" in modes:
        print(json.dumps({"row": "200 parameters, NumPy to NumPy", "mode": "compiled",
                          **side_by_side(*whole_call(call_cost(rng)), 3.0)}), flush=True)
    print(json.dumps({"device": text(), "scale": scale}))


def _numpy(x: object) -> Array:
    return owner().call(np.array, x)


if __name__ == "__main__":
    main()
