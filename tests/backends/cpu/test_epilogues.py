"""Elementwise work that products and convolutions do on their results, against the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.conformance.harness import widest
from treadle.backends.cpu.backend import Cpu
from treadle.backends.cpu.program import CpuProgram
from treadle.declare import evaluate
from treadle.declare.arrays import np_dtype
from treadle.ir.dims import evaluate as size
from treadle.ir.graph import Builder, Graph, Value
from treadle.ir.parser import parse_graph
from treadle.ir.printer import print_graph
from treadle.ir.types import F16, F32, parse_type
from treadle.ops.library import REGISTRY as OPS
from treadle.passes.base import Context
from treadle.passes.pipeline import from_config

Fn = Callable[..., Value | Sequence[Value]]


class Case:
    """A graph, the same after the passes, and the report of them; `params` are weights."""

    def __init__(self, fn: Fn, inputs: Sequence[str], params: Sequence[str] = ()) -> None:
        with Builder("case") as b:
            xs = [b.input(f"x{i}", parse_type(t)) for i, t in enumerate(inputs)]
            ws = [b.input(f"w{i}", parse_type(t), param=True) for i, t in enumerate(params)]
            out = fn(*xs, *ws)
            self.graph = b.finish([out] if isinstance(out, Value) else list(out))
        context = Context(legaliser=Cpu())
        self.after: Graph = from_config().run(self.graph, context).graph
        self.report = "\n".join(map(str, context.report))

    def ops(self) -> list[str]:
        """Operators after the passes, those of regions in brackets."""
        return [n.op if n.op != "fused" else "[" + " ".join(
            [x.op for x in n.regions["body"].nodes if x.inputs]) + "]"
            for n in self.after.nodes if n.op not in ("full", "constant")]

    def agrees(self, unit: float = 1e-5, **binding: int) -> None:
        """Values are the reference's, and the same bits for any number of threads."""
        rng = np.random.default_rng(len(self.graph.nodes))

        def draw(v: Value) -> np.ndarray:
            if v.dtype.sort != "float":
                return rng.integers(0, 100, [size(s, binding) for s in v.shape]).astype(
                    np_dtype(v.dtype))
            return rng.normal(size=[size(s, binding) for s in v.shape]).astype(np_dtype(v.dtype))

        arrays = [draw(v) for v in self.graph.inputs]
        params = {v.name: draw(v) for v in self.graph.params}
        want = evaluate.run(self.graph, [*arrays, *params.values()], {}, dict(binding))
        again = parse_graph(print_graph(self.after))
        kept = evaluate.run(again, [*arrays, *(params[v.name] for v in again.params)], {},
                            dict(binding))
        for a, b in zip(kept, want, strict=True):
            np.testing.assert_array_equal(a, b)
        held = {v.name: params[v.name] for v in self.after.params}
        runs = [CpuProgram(self.after, held, threads, poison=True, backend=Cpu()).run(
            arrays, dict(binding)) for threads in (1, 3)]
        for one, three, b in zip(*runs, want, strict=True):
            np.testing.assert_array_equal(one, three)
            scale = np.abs(widest(b)).max(initial=1)
            np.testing.assert_allclose(widest(one), widest(b), rtol=10 * unit, atol=unit * scale)


def bias(x: Value, w: Value, b: Value) -> Value:
    return OPS["matmul"](x, w) + b


def bias_gelu(x: Value, w: Value, b: Value) -> Value:
    return OPS["gelu"](OPS["matmul"](x, w) + b)


def residual(x: Value, r: Value, w: Value, b: Value) -> Value:
    return (OPS["matmul"](x, w) + b) * 0.5 + r


@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 33, 5), (6, 16, 48), (29, 50, 300), (1, 96, 17)])
@pytest.mark.parametrize("fn", [bias, bias_gelu])
def test_products_add_and_activate(fn: Fn, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    case = Case(fn, [f"f32[m,{k}]"], [f"f32[{k},{n}]", f"f32[{n}]"])
    assert len(case.ops()) == 1 and case.ops()[0].startswith("[matmul add")
    case.agrees(m=m)
    Case(fn, [f"f32[{m},{k}]", f"f32[{k},{n}]", f"f32[{n}]"]).agrees()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_products_round_between_operators(dtype: str) -> None:
    """A half product is rounded before the bias is added, as the graph says."""
    case = Case(residual, [f"{dtype}[b,m,40]", f"{dtype}[b,m,21]"],
                [f"{dtype}[40,21]", f"{dtype}[21]"])
    assert case.ops() == ["[matmul add mul add]"]
    case.agrees({"f16": 2e-3, "bf16": 2e-2, "f64": 1e-14}[dtype], b=2, m=9)


def test_results_and_operands_may_have_another_dtype() -> None:
    def fn(x: Value, r: Value, w: Value) -> Value:
        return OPS["cast"](OPS["matmul"](x, w) + OPS["cast"](r, dtype=F32), dtype=F16)

    case = Case(fn, ["f32[m,20]", "bf16[m,19]"], ["f32[20,19]"])
    assert case.ops() == ["[matmul cast add cast]"]
    case.agrees(1e-3, m=13)


@pytest.mark.parametrize("shape", ["f32[b,1,18]", "f32[m,1]", "f32[b,m,18]", "f32[b,m,1]", "f32[]",
                                   "f32[b,1,1]", "f32[1,m,18]"])
def test_operands_broadcast(shape: str) -> None:
    case = Case(lambda x, r, w: OPS["tanh"](OPS["matmul"](x, w)) * r, ["f32[b,m,12]", shape],
                ["f32[12,18]"])
    assert case.ops() == ["[matmul tanh mul]"]
    case.agrees(b=3, m=7)


@pytest.mark.parametrize("shape", ["f32[2,1,5,9]", "f32[3,1,9]", "f32[5,1]", "f32[2,3,5,9]"])
def test_batched_products(shape: str) -> None:
    case = Case(lambda x, y, r: OPS["matmul"](x, y) + r, ["f32[2,3,5,8]", "f32[3,8,9]", shape])
    assert case.ops() == ["[matmul add]"]
    case.agrees()


def test_reshapes_lie_between() -> None:
    def fn(x: Value, r: Value, w: Value, b: Value) -> Value:
        y = OPS["reshape"](OPS["matmul"](x, w), shape=(2, 5, 3, 4))
        return OPS["relu"](y + b) + r

    case = Case(fn, ["f32[10,7]", "f32[2,5,3,4]"], ["f32[7,12]", "f32[3,4]"])
    assert case.ops() == ["[matmul reshape add relu add]"]
    case.agrees()


def test_operands_that_lie_otherwise_are_declined() -> None:
    def fn(x: Value, w: Value, r: Value) -> Value:
        return OPS["matmul"](x, w) + OPS["transpose"](OPS["exp"](r), perm=(1, 0))

    case = Case(fn, ["f32[7,6]", "f32[6,9]", "f32[9,7]"])
    assert "[matmul add]" in case.ops()
    case.agrees()


def test_results_that_others_read_are_declined() -> None:
    def fn(x: Value, w: Value) -> list[Value]:
        y = OPS["matmul"](x, w)
        return [OPS["relu"](y), y]

    case = Case(fn, ["f32[7,6]", "f32[6,9]"])
    assert case.ops() == ["matmul", "relu"]
    assert "its result is read elsewhere too" in case.report
    case.agrees()


def test_several_results_are_declined() -> None:
    def fn(x: Value, w: Value) -> list[Value]:
        y = OPS["exp"](OPS["matmul"](x, w) * 0.1)
        return [y, y + 1.0]

    case = Case(fn, ["f32[7,6]", "f32[6,9]"])
    assert case.ops() == ["matmul", "map"]
    assert "several results" in case.report
    case.agrees()


def test_conditions_are_declined() -> None:
    case = Case(lambda x, w, c: OPS["where"](c, OPS["matmul"](x, w), 0.0),
                ["f32[7,6]", "f32[6,9]", "bool[7,9]"])
    assert case.ops() == ["matmul", "where"]
    assert "bool" in case.report


def test_of_two_products_the_later_goes_on() -> None:
    case = Case(lambda x, v, w: OPS["sigmoid"](OPS["matmul"](x, v)) * OPS["matmul"](x, w),
                ["f32[m,6]"], ["f32[6,9]", "f32[6,9]"])
    assert case.ops() == ["matmul", "[matmul sigmoid mul]"]
    case.agrees(m=11)


ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": OPS["relu"], "hard_swish": OPS["hard_swish"], "silu": OPS["silu"],
    "clip": lambda x: OPS["clip"](x, lo=-0.5, hi=0.25), "gelu": OPS["gelu"]}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("conv", [
    ("f32[2,5,9,11]", "f32[7,5,3,3]", {"strides": (2, 1), "pads": (1, 1, 1, 1)}),
    ("f32[n,16,h,8]", "f32[30,16,1,1]", {}),
    ("f32[2,12,9,h]", "f32[12,1,5,5]", {"groups": 12, "pads": (2, 2, 2, 2)}),
    ("f64[1,8,13]", "f64[12,4,3]", {"groups": 2}),
    ("f32[n,3,h,20]", "f32[16,3,3,3]", {"strides": (2, 2), "pads": (1, 1, 1, 1)})])
def test_convolutions_activate(name: str, conv: tuple[str, str, dict[str, object]]) -> None:
    x, w, attrs = conv
    filters = w.split("[")[1].split(",")[0]
    fn = ACTIVATIONS[name]
    case = Case(lambda x, w, b: fn(OPS["conv"](x, w, bias=b, **attrs)) * 0.5 + 1.0, [x],
                [w, f"{w[:3]}[{filters}]"])
    assert len(case.ops()) == 1 and case.ops()[0].startswith("[conv ")
    case.agrees(n=2, h=10)


@pytest.mark.parametrize("groups", [1, 12])
@pytest.mark.parametrize("shape", ["f32[n,12,7,9]", "f32[n,12,1,1]", "f32[1,12,1,1]",
                                   "f32[n,1,1,1]", "f32[1,1,7,9]"])
def test_convolutions_add_residuals(shape: str, groups: int) -> None:
    case = Case(lambda x, r, w: OPS["relu"](OPS["conv"](
        x, w, groups=groups, pads=(1, 1, 1, 1)) + r), ["f32[n,12,7,9]", shape],
        [f"f32[12,{12 // groups},3,3]"])
    whole = shape == "f32[1,1,7,9]"
    assert case.ops() == (["conv", "map"] if whole else ["[conv add relu]"])
    case.agrees(n=3)


@pytest.mark.parametrize("kernel", [2, 3])
def test_transposed_convolutions_activate(kernel: int) -> None:
    case = Case(lambda x, w, b: OPS["sigmoid"](OPS["conv_transpose"](x, w, bias=b, strides=(2, 2))),
                ["f32[n,5,4,6]"], [f"f32[5,3,{kernel},{kernel}]", "f32[3]"])
    assert case.ops() == ["[conv_transpose sigmoid]"]
    case.agrees(n=2)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("types", [("u8", "i8"), ("i8", "i8"), ("u8", "u8")])
def test_eight_bit_products_end_as_floats(types: tuple[str, str], fixed: bool) -> None:
    """Zero points, the cast, scales by column and a bias are one epilogue."""
    def fn(x: Value, p: Value, w: Value, q: Value, s: Value, b: Value) -> Value:
        total = OPS["matmul_integer"](x, w, a_zero=p, b_zero=q)
        return OPS["relu"](OPS["cast"](total, dtype=F32) * s + b)

    a, b = types
    rest = [f"{b}[40,21]", f"{b}[21]", "f32[21]", "f32[21]"]
    case = Case(fn, [f"{a}[m,40]", f"{a}[]", *([] if fixed else rest)], rest if fixed else [])
    assert case.ops() == ["[matmul_integer cast mul add relu]"]
    case.agrees(1e-6, m=13)


def test_outputs_of_strided_views_are_copied_first() -> None:
    """The residual is laid out otherwise only where it is used, after fusion has decided."""
    def fn(x: Value, r: Value, w: Value) -> Value:
        return OPS["relu"](OPS["conv"](x, w) + OPS["transpose"](r, perm=(0, 1, 3, 2)))

    case = Case(fn, ["f32[2,4,5,5]", "f32[2,6,5,5]"], ["f32[6,4,1,1]"])
    assert case.ops() == ["transpose", "[conv add relu]"]
    case.agrees()
