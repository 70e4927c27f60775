"""The pipeline: phases, hooks, frozen parameters, decomposition, reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tests.passes.running import run_both
from treadle.config import Config
from treadle.declare import evaluate
from treadle.declare.arrays import Array
from treadle.errors import ConfigError, VerifyError
from treadle.ir.graph import Builder, Graph, Node, Value, trace
from treadle.ir.parser import parse_graph
from treadle.ir.types import parse_type
from treadle.ops.library import REGISTRY as OPS
from treadle.passes import pipeline
from treadle.passes.algebraic import Algebraic
from treadle.passes.base import Context, Data, Pass
from treadle.passes.constant_fold import ConstantFold
from treadle.passes.pipeline import PASSES, Phase, Pipeline, describe, from_config, seconds_by_pass


def build(params: dict[str, str], **inputs: str) -> tuple[Builder, dict[str, Value]]:
    b = Builder("model")
    leaves = {n: b.input(n, parse_type(t)) for n, t in inputs.items()}
    leaves |= {n: b.input(n, parse_type(t), param=True) for n, t in params.items()}
    return b, leaves


def model(n: int = 300) -> tuple[Graph, dict[str, Array]]:
    """x @ transpose(w) * scale + bias, scale being a frozen 1."""
    b, v = build({"w": f"f32[{n},4]", "scale": "f32[]", "bias": f"f32[{n}]"}, x="f32[m,4]")
    with b, b.at("model.py:1"):
        y = OPS["matmul"](v["x"], OPS["transpose"](v["w"], perm=(1, 0)))
        out = OPS["add"](OPS["mul"](y, v["scale"]), v["bias"])
        graph = b.finish([out], ["logits"])  # type: ignore[list-item]
    rng = np.random.default_rng(0)
    data = {"w": rng.normal(size=(n, 4)).astype("f4"), "scale": np.float32(1).reshape(()),
            "bias": rng.normal(size=n).astype("f4")}
    return graph, data


def arrays(graph: Graph, data: dict[str, Data], x: Array) -> Sequence[Array]:
    return [x, *[data[v.name] for v in graph.params]]  # type: ignore[list-item]


def test_frozen_parameters_fold_into_parameters() -> None:
    graph, data = model()
    ctx = Context(dict(data))
    out = Pipeline(verify=True).run(graph, ctx).graph
    assert [n.op for n in out.nodes] == ["matmul", "add"]
    assert [v.name for v in out.params] == ["bias", "w.transpose"]
    assert ctx.params.keys() == {"bias", "w.transpose"} and data.keys() == {"w", "scale", "bias"}
    assert out.output_names == ("logits",) and out.nodes[0].loc == "model.py:1"
    x = np.ones((2, 4), "f4")
    before = evaluate.run(graph, arrays(graph, data, x), {}, {})[0]
    after = evaluate.run(out, arrays(out, ctx.params, x), {}, {})[0]
    np.testing.assert_array_equal(before, after)


def test_parameters_without_data_stay() -> None:
    graph, _ = model()
    out = Pipeline(verify=True).run(graph).graph
    assert [v.name for v in out.params] == ["w", "scale", "bias"]
    assert [n.op for n in out.nodes] == ["transpose", "matmul", "mul", "add"]


def test_equal_parameters_are_shared() -> None:
    b, v = build({"a": "f32[300]", "b": "f32[300]", "c": "f32[300]"}, x="f32[300]")
    with b:
        graph = b.finish(v["x"] + v["a"] * v["b"] - v["c"])
    same = np.arange(300, dtype="f4")
    ctx = Context({"a": same, "b": same.copy(), "c": same + 1})
    result = Pipeline((Phase(("dedupe_params",)),), verify=True).run(graph, ctx)
    assert [p.name for p in result.graph.params] == ["a", "c"] and ctx.params.keys() == {"a", "c"}
    assert "dedupe_params: parameters shared x1" in map(str, ctx.report)


def test_a_fold_that_grows_too_much_is_reported_and_left() -> None:
    b, v = build({"w": "f32[1,300]"}, x="f32[]")
    with b, b.at("here"):
        big = OPS["exp"](OPS["expand"](v["w"], shape=(2000, 300)))
        graph = b.finish(OPS["mul"](OPS["sum"](big, axes=(0, 1)), v["x"]))  # type: ignore[arg-type]
    ctx = Context({"w": np.ones((1, 300), "f4") * np.arange(300, dtype="f4")})
    out = ConstantFold().run(graph, ctx)
    assert out is graph
    assert [str(e) for e in ctx.report if e.stopped] == [
        "constant_fold: not done: expand(f32[1,300]) at here: "
        "a result of 2400000 bytes x1"]


def test_a_node_that_fails_stays_for_the_run() -> None:
    def fn(x: Value) -> Value:
        at = OPS["constant"](value=np.array([5, 7]))
        return OPS["gather"](OPS["constant"](value=np.array([1.0, 2.0], "f4")), at) + x  # type: ignore[operator]

    ctx = Context()
    graph = trace(fn, parse_type("f32[2]"))
    assert ConstantFold().run(graph, ctx) is graph
    assert "out of range" in str(ctx.report[0]) or "outside" in str(ctx.report[0])


class Only:
    """A backend with lowerings for some operators."""

    def __init__(self, *ops: str) -> None:
        self.ops = ops

    def declines(self, node: Node) -> str:
        """Everything that is not listed."""
        return "" if node.op in self.ops else f"no kernel for {node.op}"


def test_only_declined_composites_are_opened() -> None:
    graph = trace(lambda x: OPS["softmax"](OPS["log_softmax"](x), axis=-1),
                  parse_type("f32[n,4]"))
    ctx = Context(legaliser=Only("softmax"))
    out = Pipeline(verify=True).run(graph, ctx).graph
    ops = [n.op for n in out.walk()]
    assert "softmax" in ops and "log_softmax" not in ops
    assert any("log_softmax opened: no kernel for log_softmax" in str(e) for e in ctx.report)
    x = np.random.default_rng(1).normal(size=(3, 4)).astype("f4")
    np.testing.assert_array_equal(*run_both(graph, out, [x]))


def test_composites_in_regions_are_opened() -> None:
    graph = trace(lambda x: OPS["if"](OPS["gt"](OPS["sum"](x, axes=(0,)), 0.0),
                                      then=lambda: (OPS["softmax"](x, axis=-1),),
                                      orelse=lambda: (x,)), parse_type("f32[4]"))
    out = Pipeline(verify=True).run(graph, Context(legaliser=Only())).graph
    assert "softmax" not in [n.op for n in out.walk()]


def test_nothing_to_do_gives_the_same_graph() -> None:
    graph = trace(lambda x, y: OPS["exp"](x) * y, *map(parse_type, ("f32[n]", "f32[n]")))
    result = Pipeline().run(graph)
    assert result.graph is graph and not any(r.changed for r in result.records)
    once = (*pipeline.SIMPLIFY, *pipeline.RAISE, *pipeline.WEIGHTS)
    assert len(result.records) == len(once) + 6, "the settled phase ran again"


def test_print_and_stop_and_observe() -> None:
    graph = trace(lambda x: -(-(x * 1.0)), parse_type("f32[n]"))  # noqa: B002
    seen: list[str] = []
    p = Pipeline(print_after=("algebraic",), stop_after="algebraic",
                 observe=lambda record, _: seen.append(record.name))
    result = p.run(graph)
    assert result.stopped == "algebraic" and seen[-1] == "algebraic" == result.records[-1].name
    assert parse_graph(result.records[-1].text).outputs
    assert not result.records[0].text
    assert seconds_by_pass(result.records).keys() == set(seen)


def test_dump_writes_the_graph_after_every_change(tmp_path: Path) -> None:
    graph = trace(lambda x: x * 1.0, parse_type("f32[n]"))
    from_config(Config(dump=tmp_path)).run(graph)
    files = sorted(f.name for f in (tmp_path / "passes").iterdir())
    assert files == ["04_algebraic.ir", "06_dce.ir"]
    assert parse_graph((tmp_path / "passes" / files[-1]).read_text()).nodes == []


@dataclass(frozen=True, slots=True)
class Breaking(Pass):
    """Drops the first node whatever needs it."""

    name: ClassVar[str] = "dce"

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Break the graph."""
        return Graph(graph.name, graph.inputs, graph.params, graph.nodes[1:], graph.outputs)


def test_verification_names_the_pass() -> None:
    graph = trace(lambda x: OPS["exp"](x + x), parse_type("f32[n]"))
    with pytest.raises(VerifyError, match="after dce: "):
        Pipeline(options={"dce": Breaking()}, verify=True).run(graph)
    assert from_config(Config(verify=True)).verify


def test_options_and_unknown_names() -> None:
    graph = trace(lambda x: x + 0.0, parse_type("f32[n]"))
    assert Pipeline().run(graph).graph.nodes
    options = {"algebraic": Algebraic(domain="finite")}
    assert not Pipeline(options=options, verify=True).run(graph).graph.nodes
    options = {"algebraic": Algebraic(domain="fast", without=("add_zero_float",))}
    assert Pipeline(options=options).run(graph).graph.nodes
    with pytest.raises(ConfigError, match="there is no pass 'unrol'"):
        Pipeline(stop_after="unrol")


def test_descriptions() -> None:
    listed = describe()
    assert [d.name for d in listed] == list(PASSES)
    assert all(d.summary and d.phases for d in listed)
    assert dict(listed[2].options) == {"limit": 1 << 20, "inline": 1024}
    for name, kind in PASSES.items():
        assert kind.__module__ == f"treadle.passes.{name}"


def test_long_chains_do_not_exhaust_the_stack() -> None:
    def fn(x: Value) -> Value:
        for _ in range(3000):
            x = OPS["exp"](x)  # type: ignore[assignment]
        return OPS["argmax"](x, axis=0)  # type: ignore[return-value]

    graph = trace(fn, parse_type("f32[4]"))
    assert len(Pipeline().run(graph).graph.nodes) == 3001


def test_a_region_reads_a_folded_parameter() -> None:
    b, v = build({"w": "f32[300,4]"}, x="f32[4]")
    with b:
        positive = OPS["gt"](OPS["sum"](v["x"], axes=(0,)), 0.0)
        out = OPS["if"](positive, then=lambda: (
            OPS["matmul"](v["x"], OPS["transpose"](v["w"], perm=(1, 0))),),
            orelse=lambda: (OPS["sum"](v["w"], axes=(1,)),))
        graph = b.finish(out)  # type: ignore[arg-type]
    data = {"w": np.random.default_rng(5).normal(size=(300, 4)).astype("f4")}
    ctx = Context(dict(data))
    after = Pipeline(verify=True).run(graph, ctx).graph
    assert [p.name for p in after.params] == ["w.transpose", "w.sum"]
    for x in (np.ones(4, "f4"), -np.ones(4, "f4")):
        a = evaluate.run(graph, arrays(graph, data, x), {}, {})[0]
        again = evaluate.run(after, arrays(after, ctx.params, x), {}, {})[0]
        np.testing.assert_allclose(again, a, rtol=1e-4)  # BLAS orders its sums by the strides


def test_inputs_are_left_alone_and_random_graphs_keep_their_meaning() -> None:
    rng = np.random.default_rng(11)
    names = ["add", "sub", "mul", "max", "min", "neg", "abs", "exp", "where", "transpose"]
    for _ in range(20):
        graph = _random(rng, names)
        text = str(graph)
        out = Pipeline(verify=True).run(graph).graph
        assert str(graph) == text
        operands = [rng.normal(size=(3, 3)).astype("f4") for _ in graph.inputs]
        for a, b in zip(*run_both(graph, out, operands), strict=True):
            np.testing.assert_array_equal(a, b)


def _random(rng: np.random.Generator, names: Sequence[str]) -> Graph:
    def fn(x: Value, y: Value) -> list[Value]:
        pool: list[Value] = [x, y]
        for _ in range(25):
            a, b = (pool[int(i)] for i in rng.integers(0, len(pool), 2))
            name = str(rng.choice(names))
            k = float(rng.choice([0.0, -0.0, 1.0, -1.0, 2.0]))
            if name in ("neg", "abs", "exp"):
                made = OPS[name](a)
            elif name == "transpose":
                made = OPS[name](a, perm=(1, 0))
            elif name == "where":
                made = OPS[name](OPS["gt"](a, b), a, b)
            else:
                made = OPS[name](a, b if rng.random() < 0.5 else k)
            pool.append(made)  # type: ignore[arg-type]
        return pool[-3:]

    return trace(fn, parse_type("f32[3,3]"), parse_type("f32[3,3]"))
