"""Quantised weights on MLX: products, look-ups, parameters, and the kernel for rows as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import ml_dtypes
import mlx.core as mx
import numpy as np
import onnxruntime
import pytest

import treadle
from tests.backends.mlx.lockstep import Lockstep
from tests.backends.mlx.running import normal
from tests.onnx.ort import Run
from tests.oracles import quantize as oracle
from treadle.backends.mlx import quantized
from treadle.backends.mlx.backend import Mlx
from treadle.backends.mlx.kernels import quantized_row
from treadle.backends.mlx.kernels.template import Target
from treadle.backends.mlx.owner import owner
from treadle.declare.arrays import Array, np_dtype
from treadle.ir.graph import Builder, Graph, Value
from treadle.ir.types import DTYPES, parse_type
from treadle.ops import (
    dequantize_linear,
    gather,
    grouped_matmul,
    matmul,
    quantized_gather,
    quantized_grouped_matmul,
    quantized_matmul,
    transpose,
)
from treadle.runtime.executable import Executable
from treadle.runtime.model import Built, Model

Params = dict[str, Array]
PICK = np.random.default_rng(5)


def weight(dtype: str, *shape: int) -> Array:
    """Integers over the whole range of a dtype."""
    kind = DTYPES[dtype]
    low = -(2 ** (kind.bits - 1)) if kind.sort == "int" else 0
    return PICK.integers(low, low + 2**kind.bits, shape).astype(np_dtype(kind))


def scales(*shape: int, dtype: str = "f4") -> Array:
    return (PICK.random(shape) / 50 + 0.01).astype(dtype)


def text(a: Array) -> str:
    """The type of an array as written."""
    names = {np_dtype(d): n for n, d in DTYPES.items() if d.sort in ("int", "uint", "float")}
    return f"{names[a.dtype]}[{','.join(map(str, a.shape))}]"


def model(fn: Callable[..., Value], inputs: Params, params: Params) -> Model:
    """A function of named values as a model with parameters."""
    with Builder("q") as b:
        given = {k: b.input(k, parse_type(text(a))) for k, a in inputs.items()}
        held = {k: b.input(k, parse_type(text(a)), param=True) for k, a in params.items()}
        graph = b.finish(fn(**given, **held))
    return Model("q", Built(graph, params))


def run(fn: Callable[..., Value], inputs: Params, params: Params, **options: object
        ) -> tuple[Array, Executable]:
    """The output on MLX, lazily, and what ran."""
    exe = model(fn, inputs, params).compile("mlx", mode="lazy", **options)
    return next(iter(exe(**inputs).values())), exe


def ops(graph: Graph) -> set[str]:
    return {n.op for n in graph.walk() if n.op not in ("constant", "full")}


def near(got: Array, want: Array, tolerance: float) -> None:
    want = want.astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0,
                               atol=tolerance * np.abs(want).max())


LAYOUTS = {
    "4 bits, groups of 32": ("u4", (24, 128), (24, 4), "u4", 1, 32, True, "f4"),
    "4 bits, f16": ("u4", (24, 128), (24, 2), None, 1, 64, True, "f2"),
    "4 bits, f16, zero points": ("u4", (24, 128), (24, 2), "u4", 1, 64, True, "f2"),
    "signed, one block of 256 a row": ("i4", (8, 256), (8, 1), "i4", 1, 256, True, "f4"),
    "by column": ("i8", (64, 24), (24,), "i8", 1, 0, False, "f4"),
    "blocks of a weight [K,N]": ("u4", (96, 8), (3, 8), "u4", 0, 32, False, "f4"),
    "2 bits by row": ("u2", (24, 64), (24,), None, 0, 0, True, "f4"),
    "one scale": ("u8", (24, 64), (), "u8", 1, 0, True, "f4")}


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("case", LAYOUTS)
def test_products(case: str, rows: int) -> None:
    dtype, shape, blocks, zero, axis, size, transposed, kind = LAYOUTS[case]
    params = {"w": weight(dtype, *shape), "s": scales(*blocks, dtype=kind)}
    params |= {"z": weight(zero, *blocks)} if zero else {}
    x = normal(rows, shape[1 if transposed else 0]).astype(kind)

    def fn(x: Value, w: Value, s: Value, z: Value | None = None) -> Value:
        real = dequantize_linear(w, s, zero=z, axis=axis, block_size=size)
        return matmul(x, transpose(real, perm=(1, 0)) if transposed else real)

    got, exe = run(fn, {"x": x}, params)
    want = oracle.quantized_matmul(x, params["w"], params["s"], params.get("z"), None, axis, size,
                                   transposed)
    near(got, want, 1e-5 if kind == "f4" else 2e-3)
    assert ops(exe.graph) == {"quantized_matmul"}


def test_biases_that_are_no_floats_stay_zero_points() -> None:
    """-zero * scale of f16 scales fits in f32, of f32 scales it need not."""
    z = np.full((2, 1), 7, np.uint8)
    for scale, want in ((0.1, None), (0.5, np.float32)):
        found = quantized.biases(np.full((2, 1), scale, np.float32), z)
        assert (found if found is None else found.dtype) == want
    wide = quantized.biases(np.full((2, 1), 0.1, np.float16), z)
    assert wide is not None
    assert wide.dtype == np.float32


@pytest.mark.parametrize(("kind", "bits", "block", "zero"), [
    ("f4", 4, 32, True), ("f2", 4, 64, True), ("f4", 8, 128, False), ("f4", 2, 32, False)])
def test_matmul_nbits(kind: str, bits: int, block: int, zero: bool, tmp_path: Path) -> None:
    n, k = 40, 256
    operands: dict[str, Array | None] = {
        "a": normal(3, k).astype(kind), "s": scales(n * k // block, dtype=kind),
        "b": PICK.integers(0, 256, (n, k // block, block * bits // 8), dtype=np.uint8)}
    operands = {"a": operands["a"], "b": operands["b"], "s": operands["s"], "z": None, "g": None,
                "bias": normal(n, seed=4).astype(kind)}
    if zero:
        operands["z"] = PICK.integers(0, 256, n * -(-k // block * bits // 8), dtype=np.uint8)
    made = Run("MatMulNBits", operands, weights=[*"bsz", "bias"] if zero else ["b", "s", "bias"],
               attrs={"K": k, "N": n, "bits": bits, "block_size": block}).model()
    file = tmp_path / "m.onnx"
    file.write_bytes(made.SerializeToString())
    exe = treadle.load(str(file)).compile("mlx", mode="lazy")
    (got,) = exe(a=operands["a"]).values()
    peer = onnxruntime.InferenceSession(made.SerializeToString(),
                                        providers=["CPUExecutionProvider"])
    (want,) = peer.run(None, {"a": operands["a"]})
    near(got, want, 1e-5 if kind == "f4" else 3e-3)
    assert ops(exe.graph) == {"quantized_matmul"}
    (row,) = [r for r in exe.explain().rows if r.op == "quantized_matmul"]
    assert f"{bits} bits, groups of {block}" in row.kernel


def test_what_is_dequantised_says_why() -> None:
    def fn(x: Value, w: Value, s: Value) -> Value:
        return matmul(x, dequantize_linear(w, s, axis=0, block_size=16))

    params = {"w": weight("u4", 64, 8), "s": scales(4, 8)}
    got, exe = run(fn, {"x": normal(2, 64)}, params)
    near(got, oracle.quantized_matmul(normal(2, 64), params["w"], params["s"], None, None, 0, 16,
                                      False), 1e-5)
    assert ops(exe.graph) == {"matmul"}
    assert "blocks of 16: MLX has groups of 32, 64 and 128" in str(exe.explain())


def test_look_ups_take_rows_and_share_their_table() -> None:
    """An embedding and the head tied to it read one packed table."""
    table = {"w": weight("u4", 50, 64), "s": scales(50, 2), "z": weight("u4", 50, 2)}
    ids = np.array([[3, -1, 7]], np.int64)

    def fn(ids: Value, w: Value, s: Value, z: Value) -> Value:
        real = dequantize_linear(w, s, zero=z, axis=1, block_size=32)
        return matmul(gather(real, ids, axis=0), transpose(real, perm=(1, 0)))

    got, exe = run(fn, {"ids": ids}, table)
    rows = oracle.quantized_gather(table["w"], table["s"], ids, table["z"], 1, 32)
    near(got, oracle.quantized_matmul(rows, *table.values(), None, 1, 32), 1e-5)
    assert ops(exe.graph) == {"quantized_gather", "quantized_matmul"}
    assert len(exe._program._packed) == 1

    def rows_alone(ids: Value, w: Value, s: Value, z: Value) -> Value:
        w, s, z = (gather(v, ids, axis=0) for v in (w, s, z))
        return dequantize_linear(w, s, zero=z, axis=2, block_size=32)

    got, exe = run(rows_alone, {"ids": ids}, table)
    np.testing.assert_array_equal(got, rows)
    assert ops(exe.graph) == {"quantized_gather"}
    with pytest.raises(treadle.errors.RunError, match="index 50 is out of range"):
        exe(ids=np.array([[0, 1, 50]]))


@pytest.mark.parametrize("zero", [None, "u4"])
@pytest.mark.parametrize("rows", [2, 9])
def test_experts(rows: int, zero: str | None) -> None:
    params = {"w": weight("u4", 3, 8, 64), "s": scales(3, 8, 2)}
    params |= {"z": weight(zero, 3, 8, 2)} if zero else {}
    inputs = {"x": normal(rows, 64), "at": np.arange(rows, dtype=np.int32) % 3}

    def fn(x: Value, at: Value, w: Value, s: Value, z: Value | None = None) -> Value:
        real = dequantize_linear(w, s, zero=z, axis=2, block_size=32)
        return grouped_matmul(x, transpose(real, perm=(0, 2, 1)), at)

    got, exe = run(fn, inputs, params)
    near(got, oracle.quantized_grouped_matmul(inputs["x"], params["w"], params["s"], inputs["at"],
                                              params.get("z", np.float64(0) * params["s"]), 2, 32),
         1e-5)
    assert ops(exe.graph) == {"quantized_grouped_matmul"}
    with pytest.raises(treadle.errors.RunError, match="expert = 3 is outside 0..2"):
        exe(x=inputs["x"], at=inputs["at"] + 2)


def test_parameters_are_repacked() -> None:
    """set_param, share_params and clone, in a trace as well."""
    def fn(x: Value, w: Value, s: Value) -> Value:
        return matmul(x, dequantize_linear(w, s, axis=0, block_size=32))

    first = {"w": weight("u4", 64, 8), "s": scales(2, 8)}
    other = {"w": weight("u4", 64, 8), "s": scales(2, 8)}
    x = normal(2, 64)

    def want(params: Params) -> Array:
        return oracle.quantized_matmul(x, params["w"], params["s"], None, None, 0, 32, False)

    mx.disable_compile()
    try:
        made = model(fn, {"x": x}, first)
        a = made.compile("mlx", mode="compiled", freeze=False)
        b = made.compile("mlx", mode="lazy", freeze=False)
        assert ops(a.graph) == {"quantized_matmul"}
        near(next(iter(a(x).values())), want(first), 1e-5)
        copy = a.clone()
        a.set_params(other)
        b.share_params(a)
        for exe, params in ((a, other), (b, other), (copy, first)):
            near(next(iter(exe(x).values())), want(params), 1e-5)
        a.set_param("s", first["s"])
        near(next(iter(a(x).values())), want({**other, "s": first["s"]}), 1e-5)
    finally:
        mx.enable_compile()


def test_no_weight_is_expanded() -> None:
    n, k = 512, 1024
    params = {"w": weight("u4", n, k), "s": scales(n, k // 32)}

    def fn(x: Value, w: Value, s: Value) -> Value:
        return matmul(x, transpose(dequantize_linear(w, s, axis=1, block_size=32), perm=(1, 0)))

    owner().call(mx.clear_cache)
    before = owner().call(mx.get_active_memory)
    owner().call(mx.reset_peak_memory)
    _, exe = run(fn, {"x": normal(1, k)}, params)
    assert owner().call(mx.get_peak_memory) - before < n * k
    assert sum(a.nbytes for a in exe._program.params.values()) < 2 * n * k


def test_weights_that_a_run_brings_are_dequantised_there() -> None:
    """The operators themselves, on inputs."""
    x, w, s, z = normal(2, 64), weight("u4", 3, 8, 64), scales(3, 8, 2), weight("u4", 3, 8, 2)
    at, ids = np.array([2, 0], np.int32), np.array([1, 7], np.int64)

    def fn(x: Value, w: Value, s: Value, z: Value, at: Value, ids: Value) -> tuple[Value, ...]:
        flat = [gather(v, at, axis=0) for v in (w, s, z)]
        return (quantized_grouped_matmul(x, w, s, at, zero=z, axis=2, block_size=32),
                quantized_matmul(x, gather(w, 1, axis=0), gather(s, 1, axis=0), block_size=32),
                quantized_gather(gather(flat[0], 0, axis=0), gather(flat[1], 0, axis=0), ids,
                                 block_size=32))

    arrays = {"x": x, "w": w, "s": s, "z": z, "at": at, "ids": ids}
    exe = model(fn, arrays, {}).compile("mlx", mode="lazy")  # type: ignore[arg-type]
    got = list(exe(**arrays).values())
    near(got[0], oracle.quantized_grouped_matmul(x, w, s, at, z, 2, 32), 1e-5)
    near(got[1], oracle.quantized_matmul(x, w[1], s[1], None, None, 1, 32), 1e-5)
    near(got[2], oracle.quantized_gather(w[2], s[2], ids, None, 1, 32), 1e-6)


@pytest.mark.parametrize(("target", "dtype", "kind", "zero", "experts"), [
    ("cuda", "u4", "f2", None, 0), ("metal", "u4", "f4", "u4", 0), ("metal", "u8", "f2", "u8", 0),
    ("cuda", "i2", "f4", None, 0), ("cuda", "u4", "f4", "u4", 3)])
def test_the_kernel_for_rows(target: Target, dtype: str, kind: str, zero: str | None, experts: int,
                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Both renderings as C++, thread by thread, as the compiler chooses them on a GPU."""
    launch = Lockstep(target)
    monkeypatch.setattr(quantized, "on_gpu", lambda: True)
    monkeypatch.setattr(quantized_row, "launch", launch)
    lead, rows = (experts,) if experts else (), 3 if experts else 1
    n, k = 11, 160
    w, s = weight(dtype, *lead, n, k), scales(*lead, n, k // 32, dtype=kind)
    x, bias = normal(rows, k).astype(kind), normal(n, seed=3).astype(kind)
    z = weight(zero, *s.shape) if zero else np.zeros_like(s)
    at = np.array([2, 0, 2], np.int32)
    params = {"w": w, "s": s, **({"z": z} if zero else {}), **({} if experts else {"bias": bias})}

    def fn(x: Value, w: Value, s: Value, z: Value | None = None, bias: Value | None = None,
           at: Value | None = None) -> Value:
        if at is not None:
            return quantized_grouped_matmul(x, w, s, at, zero=z, axis=2, block_size=32)
        return quantized_matmul(x, w, s, zero=z, bias=bias, block_size=32)

    got, exe = run(fn, {"x": x, **({"at": at} if experts else {})}, params)
    assert launch.seen == ["treadle_quantized_row"]
    want = oracle.quantized_grouped_matmul(x, w, s, at, z, 2, 32) if experts else (
        oracle.quantized_matmul(x, w, s, z, bias, 1, 32))
    near(got, want, 1e-5 if kind == "f4" else 1e-3)
    assert "quantized_row, " in str(exe.explain())


def test_products_of_one_operand_are_joined_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """q, k and v become one product; another layout stays apart."""
    monkeypatch.setattr(Mlx, "joins", lambda self, node: not self.declines(node))
    params = {f"{k}{i}": a for i, n in enumerate((8, 24, 16)) for k, a in (
        ("w", weight("u4", n, 64)), ("s", scales(n, 2)), ("z", weight("u4", n, 2)))}
    params |= {"w3": weight("u4", 8, 64), "s3": scales(8, 1)}
    x = normal(3, 64)

    def fn(x: Value, **p: Value) -> tuple[Value, ...]:
        return (*[quantized_matmul(x, p[f"w{i}"], p[f"s{i}"], zero=p[f"z{i}"], block_size=32)
                  for i in range(3)], quantized_matmul(x, p["w3"], p["s3"], block_size=64))

    exe = model(fn, {"x": x}, params).compile("mlx", mode="lazy")  # type: ignore[arg-type]
    assert [n.op for n in exe.graph.nodes].count("quantized_matmul") == 2
    for i, got in enumerate(exe(x=x).values()):
        near(got, oracle.quantized_matmul(x, params[f"w{i}"], params[f"s{i}"],
                                          params.get(f"z{i}"), None, 1, 32 if i < 3 else 64), 1e-5)


def names(exes: Sequence[Executable]) -> list[set[str]]:
    return [ops(e.graph) for e in exes]


def test_other_devices_dequantise_frozen_weights_as_before() -> None:
    def fn(x: Value, w: Value, s: Value) -> Value:
        return matmul(x, dequantize_linear(w, s, axis=0, block_size=32))

    params = {"w": weight("i4", 64, 8), "s": scales(2, 8).astype(ml_dtypes.bfloat16)}
    made = model(fn, {"x": normal(2, 64).astype(ml_dtypes.bfloat16)}, params)
    assert names([made.compile(d) for d in ("cpu", "reference")]) == [{"matmul"}] * 2
