"""The attention kernel against the operator's body in f64 and ONNX Runtime's Attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnxruntime
import pytest

import treadle
from treadle.backends.cpu.attention.kernel import emit_attention
from treadle.backends.cpu.attention.spec import Attention, Operand
from treadle.codegen.llvm.jit import compile_object
from treadle.codegen.llvm.kernel import export
from treadle.codegen.llvm.target import AVX512, NEON, Target
from treadle.codegen.llvm.text import BF16, F32, I8, Module
from treadle.ir.graph import Value
from treadle.ops.attention import attention
from treadle.ops.movement import transpose
from treadle.runtime.executable import Executable

Arrays = dict[str, np.ndarray]
NP = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
OPERANDS = {"mask": "bool[m0,m1,m2,m3]", "offset": "i64[n]", "valid_length": "i32[n]"}


def traced(dtype: str, heads: tuple[int, int], sizes: tuple[int, int], names: Sequence[str],
           fixed: dict[str, str], **attrs: Any) -> treadle.Model:  # noqa: ANN401
    """Attention over symbolic batch and lengths."""
    hq, h = heads
    d, dv = sizes
    types = [f"{dtype}[n,{hq},s,{d}]", f"{dtype}[n,{h},l,{d}]", f"{dtype}[n,{h},l,{dv}]"]
    types += [fixed[name] for name in names]

    def fn(q: Value, k: Value, v: Value, *more: Value) -> Value:
        return attention(q, k, v, **dict(zip(names, more, strict=True)), **attrs)

    return treadle.trace(fn, *types)


def draw(dtype: str, n: int, heads: tuple[int, int], sizes: tuple[int, int], s: int, length: int,
         seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed + s)
    shapes = ((n, heads[0], s, sizes[0]), (n, heads[1], length, sizes[0]),
              (n, heads[1], length, sizes[1]))
    return [rng.normal(size=x).astype(NP[dtype]) for x in shapes]


def native(model: treadle.Model, threads: int | None = None) -> Executable:
    exe = model.compile("cpu", threads=threads)
    assert isinstance(exe, Executable)
    assert [r.op for r in exe.explain().rows] == ["attention"]
    return exe


def one(out: dict[str, np.ndarray]) -> np.ndarray:
    return next(iter(out.values()))


def compare(model: treadle.Model, wide: treadle.Model, inputs: list[np.ndarray], tol: float
            ) -> None:
    got = one(native(model)(*inputs))
    doubles = [x.astype(np.float64) if x.dtype.kind in "fV" else x for x in inputs]
    want = one(wide.compile("reference")(*doubles))
    assert got.dtype == inputs[0].dtype
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tol, atol=tol)


LENGTHS = [(1, 1), (5, 7), (3, 300), (200, 130), (1, 129), (0, 4), (2, 0)]
TOLERANCE = {"f32": 3e-6, "f64": 1e-13, "f16": 2e-3, "bf16": 1.6e-2}


@pytest.mark.parametrize(("dtype", "heads", "sizes"), [("f32", (2, 2), (8, 8)), *(
    (dtype, (6, 2), (20, 37)) for dtype in TOLERANCE)])
def test_plain(dtype: str, heads: tuple[int, int], sizes: tuple[int, int]) -> None:
    models = [traced(d, heads, sizes, [], {}) for d in (dtype, "f64")]
    for s, length in LENGTHS:
        compare(models[0], models[1], draw(dtype, 2, heads, sizes, s, length), TOLERANCE[dtype])


CASES: list[dict[str, Any]] = [
    {"right": 0}, {"right": 0, "start": 40}, {"right": 0, "start": -30}, {"left": 20, "right": 3},
    {"left": 0, "right": 0, "start": 2}, {"scale": 0.3, "softcap": 2.0, "right": 5},
    {"left": 150}]


@pytest.mark.parametrize("attrs", CASES, ids=str)
def test_windows_scales_and_caps(attrs: dict[str, Any]) -> None:
    heads, sizes = (4, 2), (16, 24)
    models = [traced(d, heads, sizes, [], {}, **attrs) for d in ("f32", "f64")]
    for s, length in LENGTHS:
        compare(models[0], models[1], draw("f32", 2, heads, sizes, s, length), 3e-6)


ALL = ("mask", "bias", "offset", "valid_length", "sink")


@pytest.mark.parametrize(("names", "spread"), [
    (("mask",), "1111"), (("bias",), "0011"), (("mask",), "0101"), (("offset",), "1111"),
    (("valid_length",), "1111"), (("sink",), "1111"), (ALL, "1010"), (ALL, "0000"), (ALL, "1111")])
def test_operands(names: tuple[str, ...], spread: str) -> None:
    """Operands that broadcast in any way; rows that see nothing give zeros."""
    heads, sizes, rng = (4, 2), (8, 8), np.random.default_rng(8)
    full = ("n", "4", "s", "l")
    shape = ",".join([x if on == "1" else "1" for x, on in zip(full, spread, strict=True)])
    attrs = {"right": 1, "left": 90} if "offset" in names else {}
    fixed = {**OPERANDS, "mask": f"bool[{shape}]", "bias": "", "sink": ""}
    models = [traced(d, heads, sizes, names, fixed | {
        "bias": f"{d}[{shape}]", "sink": f"{d}[4]"}, **attrs) for d in ("f32", "f64")]
    for s, length in ((5, 7), (70, 150), (1, 33)):
        sizes_of = [n if on == "1" else 1 for n, on in zip((2, 4, s, length), spread, strict=True)]
        more = {"mask": rng.random(sizes_of) < 0.3,
                "bias": rng.normal(size=sizes_of).astype(np.float32),
                "offset": np.array([length // 2, -3]),
                "valid_length": np.array([length // 3, 0], np.int32),
                "sink": rng.normal(size=4).astype(np.float32)}
        compare(models[0], models[1], [*draw("f32", 2, heads, sizes, s, length), *(
            more[name] for name in names)], 3e-6)


def test_scores_that_are_not_finite() -> None:
    """As the body: NaN and +inf spoil their row, a row of -inf is NaN, what is invisible is not."""
    heads, sizes = (1, 1), (4, 4)
    fixed = {"bias": "f32[1,1,s,l]", "mask": "bool[1,1,s,l]"}
    model = traced("f32", heads, sizes, ["bias", "mask"], fixed)
    q, k, v = draw("f32", 1, heads, sizes, 6, 150)
    bias, mask = np.zeros((1, 1, 6, 150), np.float32), np.ones((1, 1, 6, 150), np.bool_)
    bias[0, 0, 0, 140], bias[0, 0, 1, 3], bias[0, 0, 2] = np.nan, np.inf, -np.inf
    bias[0, 0, 3, 5], mask[0, 0, 3, 5] = np.nan, False
    bias[0, 0, 4, :149], mask[0, 0, 5] = -np.inf, False
    got = one(native(model)(q, k, v, bias, mask))[0, 0]
    want = one(model.compile("reference")(q, k, v, bias, mask))[0, 0]
    assert np.isnan(got[:3]).all()
    np.testing.assert_array_equal(got[5], 0)
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=3e-6)


def test_what_lies_beyond_a_cache_may_be_anything() -> None:
    model = traced("f32", (2, 1), (8, 8), ["valid_length"], {"valid_length": "i32[n]"})
    q, k, v = draw("f32", 2, (2, 1), (8, 8), 3, 200)
    valid = np.array([17, 131], np.int32)
    want = one(native(model)(q, k, v, valid))
    for x in (k, v):
        x[0, :, 17:], x[1, :, 131:] = np.nan, np.inf
    np.testing.assert_array_equal(one(native(model)(q, k, v, valid)), want)


@pytest.mark.parametrize("perm", [(0, 2, 1, 3), (0, 1, 3, 2), (2, 0, 1, 3)])
def test_operands_are_read_where_they_lie(perm: tuple[int, ...]) -> None:
    shapes = {(0, 2, 1, 3): ("n,s,2,16", "n,l,2,16"), (0, 1, 3, 2): ("n,2,16,s", "n,2,16,l"),
              (2, 0, 1, 3): ("2,s,n,16", "2,l,n,16")}[perm]

    def fn(q: Value, k: Value, v: Value) -> Value:
        return attention(*(transpose(x, perm=perm) for x in (q, k, v)), right=20)

    sizes = {"n": 2, "s": 30, "l": 140, "2": 2, "16": 16}
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=[sizes[x] for x in shapes[i].split(",")]) for i in (0, 1, 1)]
    out = {d: one(treadle.trace(fn, *(f"{d}[{shapes[i]}]" for i in (0, 1, 1))).compile(device)(*(
        a.astype(NP[d]) for a in arrays))) for d, device in (("f32", "cpu"), ("f64", "reference"))}
    np.testing.assert_allclose(out["f32"], out["f64"], rtol=3e-6, atol=3e-6)


def test_the_bits_do_not_depend_on_threads() -> None:
    model = traced("f32", (4, 2), (32, 32), [], {}, right=0)
    inputs = draw("f32", 2, (4, 2), (32, 32), 300, 300)
    first = one(native(model, 1)(*inputs))
    for threads in (2, 3, 4):
        exe = native(model, threads)
        for _ in range(3):
            assert one(exe(*inputs)).tobytes() == first.tobytes()


def test_onnx_runtime_agrees() -> None:
    """ONNX's Attention of opset 23: causal, grouped heads, additive mask, softcap, scale."""
    def tensor(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    for attrs, mask in (({"is_causal": 1}, False), ({"scale": 0.2, "softcap": 3.0}, True)):
        names = ["q", "k", "v", *(["mask"] if mask else [])]
        node = onnx.helper.make_node("Attention", names, ["y"], **attrs)
        infos = [tensor("q", 2, 4, 9, 16), tensor("k", 2, 2, 9, 16), tensor("v", 2, 2, 9, 24)]
        infos += [tensor("mask", 9, 9)] if mask else []
        graph = onnx.helper.make_graph([node], "g", infos, [tensor("y", 2, 4, 9, 24)])
        model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[
            onnx.helper.make_opsetid("", 23)])
        rng = np.random.default_rng(1)
        feeds = {i.name: rng.normal(size=[d.dim_value for d in i.type.tensor_type.shape.dim]
                                    ).astype(np.float32) for i in infos}
        peer = onnxruntime.InferenceSession(model.SerializeToString(), providers=[
            "CPUExecutionProvider"])
        exe = treadle.load(model).compile("cpu")
        assert "attention" in [r.op for r in exe.explain().rows]
        np.testing.assert_allclose(exe(**feeds)["y"], peer.run(None, feeds)[0], rtol=2e-5,
                                   atol=2e-6)


@pytest.mark.parametrize("on", [AVX512, NEON], ids=lambda t: t.cpu)
def test_other_processors_have_a_kernel(on: Target) -> None:
    def tensor(name: str) -> Operand:
        return Operand(name, BF16, ("a", "b", "c", 1))

    more = (Operand("mask", I8, ("a", 0, "b", 1)), Operand("bias", BF16, (0, 0, "b", 1)))
    spec = Attention(tensor("q"), tensor("k"), tensor("v"), tensor("y"), more, F32, "n", "h", 2,
                     "s", "l", 20, 37, False, 0.3, None, 0, 5, 0)
    module = Module(on)
    export(module, [emit_attention(module, spec, None, "attention")])
    assert compile_object(module.text(), on)
