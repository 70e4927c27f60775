"""Linear attention beside ONNX Runtime's kernel and a PyTorch loop: `python -m bench.recurrence`.

Prints milliseconds and GFLOP/s, counted from the recurrence whatever form it is computed in: for
each element of the state and token 4 operations by the rule linear, 5 by gated, 6 by delta and 7 by
gated_delta. Each engine has a process of its own and they take turns, as docs/benchmarks.md says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from treadle.declare.arrays import Array
from treadle.measure.cases import Case
from treadle.measure.comparison import Settings, run_all
from treadle.measure.render import markdown

LENGTHS = {"gated_delta": (1, 128, 2048, 16384), "gated": (1, 128, 2048, 16384),
           "linear": (128, 2048, 16384), "delta": (128, 2048)}
"""Tokens by rule."""
_LONGEST_LOOP = 2048
"""Tokens up to which PyTorch's loop takes less than a second a call."""
OPERANDS = ("query", "key", "value", "past_state", "decay", "beta")
SHAPES = ((16, 128), (4, 256))
"""Heads and the size of each, keys and values alike."""


def inputs(rule: str, heads: int, size: int, tokens: int) -> dict[str, Array]:
    """Operands of one sequence; keys have length 1, decays are small, as in trained models."""
    pick = np.random.default_rng(tokens)

    def normal(*shape: int) -> Array:
        return pick.standard_normal(shape).astype(np.float32)

    key = normal(1, tokens, heads, size)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    wide = (1, tokens, heads * size)
    given = {"query": normal(*wide), "key": key.reshape(wide), "value": normal(*wide),
             "past_state": normal(1, heads, size, size) * np.float32(0.1)}
    if rule.startswith("gated"):
        given["decay"] = -0.1 * np.abs(normal(1, tokens, heads))
    if rule.endswith("delta"):
        given["beta"] = pick.random((1, tokens, heads)).astype(np.float32)
    return given


def case(rule: str, heads: int, size: int, tokens: int) -> Case:
    """One node with its state."""
    given = inputs(rule, heads, size, tokens)
    names = [n if n in given else "" for n in OPERANDS]
    while not names[-1]:
        names.pop()
    node = helper.make_node("LinearAttention", names, ["y", "present_state"],
                            domain="com.microsoft", update_rule=rule, q_num_heads=heads,
                            kv_num_heads=heads)
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node], "recurrence",
        [helper.make_tensor_value_info(n, float32, a.shape) for n, a in given.items()],
        [helper.make_empty_tensor_value_info(n) for n in node.output])
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    name = f"{rule}, {heads} heads of {size}, {tokens} tokens"
    twins = {"torch": "bench.torch_twins:linear_attention"} if tokens <= _LONGEST_LOOP else {}
    return Case(name, model.SerializeToString(), given, "recurrence", twins, relative=1e-3)


def cases() -> list[Case]:
    """Every rule, shape and length."""
    return [case(rule, heads, size, tokens) for rule, lengths in LENGTHS.items()
            for heads, size in SHAPES for tokens in lengths]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    p = argparse.ArgumentParser(prog="python -m bench.recurrence", description=__doc__)
    p.add_argument("--only", default="", help="cases whose name holds this text")
    p.add_argument("--peers", default="onnxruntime,torch")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--seconds", type=float, default=2.0, help="of each engine on each case")
    given = p.parse_args(argv)
    engines = ("treadle:cpu", *(x for x in given.peers.split(",") if x))
    settings = Settings(engines, tuple(int(t) for t in given.threads.split(",")), given.seconds, 2)
    chosen = [c for c in cases() if given.only in c.name]
    report = run_all(chosen, settings, lambda text: print(text, file=sys.stderr, flush=True))
    print(markdown(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
