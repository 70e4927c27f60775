"""Kernels of state spaces: their text runs on the CPU, thread by thread; elsewhere bodies run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mlx.core as mx
import numpy as np
import pytest

from tests.backends.mlx.lockstep import Lockstep
from tests.backends.mlx.running import lazily, program
from tests.backends.mlx.test_conformance import agree
from tests.conformance.harness import CASES, Array, Case
from tests.oracles import state_space as oracle
from treadle.backends.mlx import recurrence
from treadle.backends.mlx.backend import Mlx
from treadle.backends.mlx.kernels import causal_conv, linear_attention, selective_scan
from treadle.backends.mlx.kernels.template import Target, Template
from treadle.ir.graph import Builder, Graph
from treadle.ir.types import parse_type
from treadle.ops.state_space import linear_attention as attention

KERNELS = (causal_conv, linear_attention, selective_scan)


def on_lockstep(patch: pytest.MonkeyPatch, target: Target) -> Lockstep:
    """As if there were a GPU of that kind."""
    launch = Lockstep(target)
    patch.setattr(recurrence, "on_gpu", lambda: True)
    for module in KERNELS:
        patch.setattr(module, "launch", launch)
    return launch


OURS = [c for c in CASES if c.op.name in ("causal_conv_with_state", "selective_scan")]


@pytest.mark.parametrize(("at", "case"), list(enumerate(OURS)), ids=[c.id for c in OURS])
def test_samples(at: int, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both renderings in turn; those of linear attention have sizes of their own below."""
    on_lockstep(monkeypatch, ("cuda", "metal")[at % 2])
    agree(case, lazily(case.graph, case.arrays))


def graph_of(arrays: dict[str, Array], **attrs: object) -> Graph:
    """A node of linear attention on inputs of the arrays' types."""
    with Builder("one") as b:
        given = {k: b.input(k, parse_type(_type(a))) for k, a in arrays.items()}
        operands = [given.pop(k) for k in ("query", "key", "value")]
        return b.finish(attention(*operands, **given, **attrs))


def _type(a: Array) -> str:
    return f"{'f16' if a.dtype == np.float16 else 'f32'}[{','.join(map(str, a.shape))}]"


def attention_inputs(n: int, t: int, heads: tuple[int, int, int], dk: int, dv: int,
                     decay: int, beta: int) -> dict[str, Array]:
    """Keys of length 1 and small decays, as in trained models; gates of these widths."""
    q, k, h = heads
    pick = np.random.default_rng(t)
    key = pick.standard_normal((n, t, k, dk))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    made = {"query": pick.standard_normal((n, t, q * dk)), "key": key.reshape(n, t, k * dk),
            "value": pick.standard_normal((n, t, h * dv))}
    if decay:
        made["decay"] = -0.2 * pick.random((n, t, decay))
    if beta:
        made["beta"] = pick.random((n, t, beta))
    return made


CASES_OF_ATTENTION: list[tuple[Target, int, tuple[int, int, int], int, int, int, int, int, str]] = [
    ("cuda", 37, (4, 1, 2), 40, 20, 2, 1, 3, "f4"),  # several chunks, a last block half empty
    ("metal", 19, (1, 1, 2), 24, 35, 48, 2, 0, "f4"),  # decays by key, more states than queries
    ("metal", 3, (1, 1, 1), 512, 4, 1, 1, 0, "f2"),  # a whole warp a column
    ("cuda", 2, (2, 2, 2), 3, 4, 0, 0, 4, "f4"),  # linear; fewer tokens than the window
    ("metal", 1, (2, 1, 2), 8, 4, 2, 0, 0, "f4"),  # gated, one token
    ("cuda", 9, (2, 1, 2), 8, 4, 0, 2, 0, "f4")]  # delta
RULES = ("linear", "gated", "delta", "gated_delta")


@pytest.mark.parametrize(("target", "t", "heads", "dk", "dv", "decay", "beta", "window", "kind"),
                         CASES_OF_ATTENTION)
def test_linear_attention(target: Target, t: int, heads: tuple[int, int, int], dk: int, dv: int,
                          decay: int, beta: int, window: int, kind: str,
                          monkeypatch: pytest.MonkeyPatch) -> None:
    launch = on_lockstep(monkeypatch, target)
    arrays = attention_inputs(2 if dk < 512 else 1, t, heads, dk, dv, decay, beta)
    past = np.random.default_rng(0).standard_normal(
        (*[window] * bool(window), arrays["query"].shape[0], heads[2], dk, dv))
    arrays = {k: a.astype(kind) for k, a in {**arrays, "past": past * 0.1}.items()}
    attrs = {"rule": RULES[(decay > 0) + 2 * (beta > 0)], "q_heads": heads[0], "kv_heads": heads[2],
             "state_window": window}
    got = lazily(graph_of(arrays, **attrs), list(arrays.values()))
    assert launch.seen == ["treadle_linear_attention"]
    near = 1e-5 if kind == "f4" else 2e-3
    for have, want in zip(got, oracle.linear_attention(**arrays, **attrs), strict=True):
        np.testing.assert_allclose(have, want, rtol=near, atol=near)


def refusal(*, dk: int, queries: int = 1) -> str:
    """Why linear attention of this size has no kernel of its own."""
    arrays = attention_inputs(1, 2, (queries, 1, 1), dk, 4, 1, 1)
    graph = graph_of({k: a.astype("f4") for k, a in arrays.items()}, rule="gated_delta",
                     q_heads=queries, kv_heads=1)
    return Mlx().claim(graph.nodes[-1]).reason


def test_what_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrence, "on_gpu", lambda: True)
    assert refusal(dk=512, queries=11) == ""
    assert "12 query heads of 512" in refusal(dk=512, queries=12)
    assert "heads of 516; its kernel holds 512" in refusal(dk=516)


def test_without_a_gpu_bodies_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrence, "on_gpu", lambda: False)
    assert refusal(dk=8) == "its kernel needs a GPU"
    arrays = {k: a.astype("f4") for k, a in attention_inputs(1, 2, (1, 1, 1), 8, 4, 1, 1).items()}
    made = program(graph_of(arrays, rule="gated_delta", q_heads=1, kv_heads=1), "lazy")
    assert "linear_attention" not in {n.op for n in made.graph.walk()}


def test_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups cover every column; staged tokens fit in the shared memory of either target."""
    seen = list[tuple[str, dict[str, int], int, int]]()

    def launch(template: Template, inputs: Sequence[mx.array], params: Mapping[str, int],
               groups: int, threads: int, shapes: Sequence[Sequence[int]],
               dtypes: Sequence[mx.Dtype]) -> list[mx.array]:
        seen.append((template.name, dict(params), groups, threads))
        return [mx.zeros(s, d) for s, d in zip(shapes, dtypes, strict=True)]

    monkeypatch.setattr(linear_attention, "launch", launch)
    for dk, dv, group in [(128, 128, 1), (256, 256, 1), (512, 512, 10), (4, 1, 32), (96, 80, 2)]:
        q, k = mx.zeros((2, 3, group * dk)), mx.zeros((2, 3, dk))
        gate = mx.zeros((2, 3, dk if group < 10 else 1))
        linear_attention.linear_attention(q, k, mx.zeros((2, 3, dv)), None, gate, None,
                                          q_heads=group, kv_heads=1, scale=1.0, window=0)
        _, p, groups, threads = seen[-1]
        columns = threads // p["LANES"]
        assert groups == 2 * -(-dv // columns) and threads % 32 == 0
        assert p["PARTS"] * p["LANES"] * 4 >= dk
        vectors = 1 + group + (p["DECAY"] == 2)
        staged = p["CHUNK"] * (vectors * p["PARTS"] * p["LANES"] * 4 + columns + 2)
        assert 4 * staged <= 32 << 10
