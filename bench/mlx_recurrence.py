"""Linear attention on the device "mlx" beside MLX alone: `python -m bench.mlx_recurrence`.

The gated delta rule in f32, one sequence, arrays resident: microseconds of a call that is waited
for, medians with quartiles, in turns. The loop runs a compiled step of MLX's operations for each
token without waiting in between. For one token there are also: the same step not compiled, MLX's
cheapest compiled call, a kernel of the same operands that does nothing, and 24 such layers in one
compiled call. Prints JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import mlx.core as mx

from bench.mlx_turns import turns
from treadle.backends.mlx.backend import Mlx
from treadle.backends.mlx.device import text
from treadle.backends.mlx.kernels.linear_attention import linear_attention as kernel
from treadle.backends.mlx.owner import owner
from treadle.ir.graph import Builder
from treadle.ir.types import parse_type
from treadle.ops.state_space import linear_attention
from treadle.passes.base import Context
from treadle.passes.pipeline import from_config

SHAPES = ((16, 128), (4, 256))
"""Heads and the size of each."""
LENGTHS = (1, 128, 2048, 16384)
LAYERS = 24
Step: TypeAlias = Callable[..., "list[mx.array]"]
Calls: TypeAlias = "dict[str, Callable[[], object]]"


def operands(heads: int, size: int, tokens: int) -> list[mx.array]:
    """Queries, keys of length 1, values, state, log decays and betas."""
    def normal(*shape: int) -> mx.array:
        return mx.random.normal(shape)

    key = normal(1, tokens, heads, size)
    key = key / mx.linalg.norm(key, axis=-1, keepdims=True)
    wide = (1, tokens, heads * size)
    made = [normal(*wide), mx.reshape(key, wide), normal(*wide), normal(1, heads, size, size) * 0.1,
            mx.abs(normal(1, tokens, heads)) * -0.1, mx.sigmoid(normal(1, tokens, heads))]
    mx.eval(made)
    return made


def step_of(heads: int, size: int) -> Step:
    """One token in MLX's operations."""
    def step(q: mx.array, k: mx.array, v: mx.array, s: mx.array, decay: mx.array, beta: mx.array
             ) -> list[mx.array]:
        q, k, v = (mx.reshape(x, (1, heads, size)) for x in (q, k, v))
        s = s * mx.exp(mx.reshape(decay, (1, heads, 1, 1)))
        found = mx.sum(s * k[..., None], axis=-2)
        change = (v - found) * mx.reshape(beta, (1, heads, 1))
        s = s + k[..., None] * change[..., None, :]
        y = mx.sum(s * (q * size**-0.5)[..., None], axis=-2)
        return [mx.reshape(y, (1, 1, heads * size)), s]

    return step


def ours(given: Sequence[mx.array], heads: int) -> Callable[[], object]:
    """A call of the operator, its outputs kept on the device."""
    with Builder("one") as b:
        names = ("query", "key", "value", "past", "decay", "beta")
        values = [b.input(n, parse_type(f"f32[{','.join(map(str, x.shape))}]"))
                  for n, x in zip(names, given, strict=True)]
        named = dict(zip(names[3:], values[3:], strict=True))
        graph = b.finish(list(linear_attention(*values[:3], **named, rule="gated_delta",
                                               q_heads=heads, kv_heads=heads)))
    backend = Mlx("compiled")
    program = backend.compile(from_config().run(graph, Context({}, legaliser=backend)).graph, {})
    return lambda: program.run(list(given), {}, kept=(0, 1))


def looped(step: Step, given: Sequence[mx.array]) -> Callable[[], object]:
    """The compiled step for one token after another."""
    fn = cast(Step, mx.compile(step))
    q, k, v, past, decay, beta = given
    parts = [[x[:, i:i + 1] for x in (q, k, v, decay, beta)] for i in range(q.shape[1])]
    mx.eval(parts)

    def run() -> None:
        s, y = past, past
        for a, b, c, d, e in parts:
            y, s = fn(a, b, c, s, d, e)
            mx.async_eval(y, s)
        mx.eval(y, s)

    return run


def waited(fn: Any, *given: object) -> Callable[[], object]:  # noqa: ANN401 - any of MLX's functions
    """A call and its evaluation."""
    return lambda: mx.eval(fn(*given))


def empty(given: Sequence[mx.array]) -> Step:
    """A kernel of the same operands that does nothing to speak of."""
    make: Any = mx.fast.metal_kernel if mx.metal.is_available() else mx.fast.cuda_kernel
    nothing = make(name="nothing", input_names=list("qkvsdb"), output_names=["y", "state"],
                   source="if (d[0] > 1.0f) y[0] = q[0];")
    shapes = [given[0].shape, given[3].shape]
    return lambda *xs: nothing(inputs=list(xs), template=[], grid=(128, 1, 1),
                               threadgroup=(128, 1, 1), output_shapes=shapes,
                               output_dtypes=[mx.float32, mx.float32])


def layered(step: Step, given: Sequence[mx.array]) -> Callable[[], object]:
    """One token through many layers, whose states are apart, in one compiled call."""
    _, k, v, past, decay, beta = given

    def run(states: list[mx.array]) -> list[mx.array]:
        y, out = given[0], list[mx.array]()
        for s in states:
            y, s = step(y, k, v, s, decay, beta)
            out.append(s)
        return [y, *out]

    states = [past * (1 + i) for i in range(LAYERS)]
    mx.eval(states)
    return waited(mx.compile(run), states)


def one_token(heads: int, size: int, given: Sequence[mx.array]) -> Calls:
    """What else is measured of one token."""
    def own(*xs: mx.array) -> list[mx.array]:
        return kernel(*xs, q_heads=heads, kv_heads=heads, scale=size**-0.5, window=0)

    step, nothing = step_of(heads, size), empty(given)
    return {"step, not compiled": waited(step, *given),
            "x + 1": waited(mx.compile(lambda x: x + 1), given[4]),
            "empty kernel": waited(mx.compile(nothing), *given),
            "layers of ours": layered(own, given), "layers of steps": layered(step, given),
            "layers of empty kernels": layered(nothing, given)}


def measure(heads: int, size: int, tokens: int) -> dict[str, str]:
    """All calls of one size."""
    given = operands(heads, size, tokens)
    calls: Calls = {"ours": ours(given, heads), "loop": looped(step_of(heads, size), given)}
    if tokens == 1:
        calls.update(one_token(heads, size, given))
    return {k: str(t) for k, t in turns(calls, 3.0 if tokens > 128 else 2.0).items()}


def main() -> None:
    """Measure every shape and length."""
    print(json.dumps({"device": text()}), flush=True)
    for heads, size in SHAPES:
        for tokens in LENGTHS:
            found = owner().call(measure, heads, size, tokens)
            print(json.dumps({"heads": heads, "size": size, "tokens": tokens, **found}), flush=True)


if __name__ == "__main__":
    main()
