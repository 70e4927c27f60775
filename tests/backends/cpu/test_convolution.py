"""Native convolution and pooling against ONNX Runtime and the operators' own bodies in f64."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import treadle
from tests.oracles import conv as oracle
from tests.oracles import pool as pools
from treadle.backends.cpu.assembly import HostStep
from treadle.backends.cpu.claims import claim
from treadle.backends.cpu.program import CpuProgram
from treadle.codegen.llvm.runtime import shared_pool
from treadle.ir.dims import Size, sym
from treadle.ir.graph import Builder, Graph
from treadle.ir.types import F16, F32, F64, DType, TensorType
from treadle.ops.library import REGISTRY
from treadle.runtime.executable import Executable

Arrays = list[np.ndarray]
Attrs = dict[str, Any]


def graph(op: str, types: Sequence[TensorType], attrs: Attrs, params: int) -> Graph:
    """One operator; the last `params` operands are parameters, a third operand is the bias."""
    with Builder("one", lambda _: False) as b:
        values = [b.input(f"x{i}", t, param=i >= len(types) - params)
                  for i, t in enumerate(types)]
        more = {"bias": values[2]} if len(values) > 2 else {}
        return b.finish(REGISTRY[op](*values[:2], **more, **attrs))


def open_types(arrays: Arrays, dtype: DType) -> tuple[list[TensorType], dict[str, int]]:
    """Types whose first operand has symbols for batch and space, and their binding."""
    x = arrays[0]
    names = ["b", *[f"s{i}" for i in range(x.ndim - 2)]]
    sizes = (x.shape[0], *x.shape[2:])
    shape: tuple[Size, ...] = (sym("b"), x.shape[1], *[sym(n) for n in names[1:]])
    rest = [TensorType(a.shape, dtype) for a in arrays[1:]]
    return [TensorType(shape, dtype), *rest], dict(zip(names, sizes, strict=True))


def native(op: str, arrays: Arrays, attrs: Attrs, *, symbolic: bool = False, params: bool = True
           ) -> np.ndarray:
    """What the kernels give, the same on one thread and on two, without a host step."""
    dtype = F64 if arrays[0].dtype == np.float64 else F32
    types, binding = open_types(arrays, dtype) if symbolic else (
        [TensorType(a.shape, dtype) for a in arrays], {})
    held = len(arrays) - 1 if params else 0
    g = graph(op, types, attrs, held)
    split = len(arrays) - held
    named = {f"x{i}": a for i, a in enumerate(arrays) if i >= split}
    program = CpuProgram(g, named, 1)
    none_on_host(program)
    one = program.run(arrays[:split], dict(binding))[0].copy()
    program.pool = shared_pool(2)
    np.testing.assert_array_equal(program.run(arrays[:split], dict(binding))[0], one)
    return one


def none_on_host(program: CpuProgram) -> None:
    """No step runs as a NumPy body."""
    for stage in program.whole.stages:
        assert not [s for s in stage.steps if isinstance(s, HostStep)]


def random_arrays(seed: int, *shapes: tuple[int, ...], dtype: str = "f4") -> Arrays:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s).astype(dtype) for s in shapes]


def close(got: np.ndarray, wanted: np.ndarray, limit: float = 2e-5) -> None:
    """The same shape, and differences small beside the largest element."""
    assert got.shape == wanted.shape
    if wanted.size:
        scale = max(1.0, float(np.abs(wanted).max()))
        assert float(np.abs(got - wanted).max()) <= limit * scale


CASES: list[tuple[tuple[int, ...], tuple[int, ...], Attrs]] = [
    ((1, 3, 33, 31), (16, 3, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((2, 8, 20, 20), (7, 8, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 24, 9, 11), (96, 24, 1, 1), {}),
    ((1, 24, 9, 11), (12, 24, 1, 1), {}),
    ((1, 40, 7, 7), (33, 40, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 70, 3, 3), (13, 70, 3, 3), {"pads": (2, 0, 1, 3)}),
    ((1, 6, 17, 19), (8, 3, 3, 5), {"groups": 2, "dilations": (2, 1), "pads": (2, 0, 1, 7)}),
    ((1, 6, 17, 45), (6, 1, 3, 3), {"groups": 6, "pads": (1, 1, 1, 1)}),
    ((1, 6, 17, 45), (12, 1, 5, 5), {"groups": 6, "strides": (2, 2), "pads": (2, 2, 2, 2)}),
    ((1, 4, 10, 90), (4, 1, 2, 13), {"groups": 4, "strides": (1, 3), "dilations": (1, 2),
                                     "pads": (1, 9, 0, 12)}),
    ((2, 1, 576), (258, 1, 256), {"strides": (64,)}),
    ((2, 5, 40), (6, 5, 3), {"strides": (3,), "pads": (4, 0)}),
    ((1, 2, 5, 7, 6), (3, 2, 2, 3, 2), {"strides": (1, 2, 1), "pads": (0, 1, 1, 1, 0, 1)}),
    ((0, 3, 8, 8), (4, 3, 3, 3), {}),
    ((3, 20, 1, 1), (37, 20, 1, 1), {}),
    ((2, 5, 3, 4), (9, 5, 3, 4), {}),
    ((2, 5, 3, 4), (9, 5, 3, 4), {"pads": (1, 0, 0, 0), "strides": (5, 5)}),
    ((1, 3, 4, 4), (4, 3, 3, 3), {"pads": (9, 9, 9, 9)})]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("x", "w", "attrs"), CASES)
def test_convolution_agrees_with_onnxruntime(x: tuple[int, ...], w: tuple[int, ...],
                                             attrs: Attrs, bias: bool) -> None:
    arrays = random_arrays(1, x, w, *([(w[0],)] if bias else []))
    wanted, = oracle.conv(*arrays[:2], bias=arrays[2] if bias else None, **attrs)
    close(native("conv", arrays, attrs), wanted)
    close(native("conv", arrays, attrs, symbolic=True, params=not bias), wanted)


TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], Attrs]] = [
    ((1, 8, 10, 12), (8, 6, 2, 2), {"strides": (2, 2)}),
    ((2, 8, 6, 5), (8, 3, 3, 4), {"strides": (2, 3), "pads": (1, 0, 0, 2), "groups": 2}),
    ((1, 3, 9), (3, 5, 4), {"strides": (3,), "dilations": (2,), "output_padding": (2,)}),
    ((1, 3, 9), (3, 5, 1), {"strides": (3,)}),
    ((1, 2, 3, 4, 3), (2, 3, 2, 2, 2), {"strides": (2, 1, 2), "pads": (1, 0, 0, 0, 1, 1)}),
    ((1, 5, 8, 8), (5, 4, 3, 3), {"dilations": (2, 1), "pads": (1, 1, 1, 1)})]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("x", "w", "attrs"), TRANSPOSED)
def test_transposed_convolution_agrees_with_onnxruntime(
        x: tuple[int, ...], w: tuple[int, ...], attrs: Attrs, bias: bool) -> None:
    filters = w[1] * attrs.get("groups", 1)
    arrays = random_arrays(2, x, w, *([(filters,)] if bias else []))
    wanted, = oracle.conv_transpose(*arrays[:2], bias=arrays[2] if bias else None, **attrs)
    close(native("conv_transpose", arrays, attrs), wanted)
    close(native("conv_transpose", arrays, attrs, symbolic=True, params=not bias), wanted)


POOLS: list[tuple[str, tuple[int, ...], Attrs]] = [
    ("max_pool", (2, 3, 33, 70), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ("max_pool", (1, 2, 7, 9), {"kernel": (3, 2), "strides": (2, 2), "ceil_mode": True}),
    ("sum_pool", (1, 2, 15, 41), {"kernel": (5, 3), "strides": (1, 3), "pads": (2, 1, 0, 1)}),
    ("sum_pool", (1, 2, 40), {"kernel": (12,), "dilations": (2,), "pads": (3, 0)}),
    ("average_pool", (1, 2, 9, 11), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1),
                                     "ceil_mode": True}),
    ("average_pool", (1, 2, 9, 11), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1),
                                     "ceil_mode": True, "count_include_pad": True}),
    ("max_pool", (0, 2, 9, 11), {"kernel": (2, 2)})]


@pytest.mark.parametrize(("op", "shape", "attrs"), POOLS)
def test_pools_agree_with_onnxruntime(op: str, shape: tuple[int, ...], attrs: Attrs) -> None:
    x, = random_arrays(3, shape)
    wanted, = getattr(pools, op)(x, **attrs)
    exe = treadle.trace(lambda v: REGISTRY[op](v, **attrs), TensorType(shape, F32)).compile("cpu")
    assert isinstance(exe, Executable) and isinstance(exe._program, CpuProgram)  # noqa: SLF001
    none_on_host(exe._program)  # noqa: SLF001
    close(next(iter(exe(x).values())), wanted)


@pytest.mark.parametrize("op", ["max_pool", "min_pool"])
def test_extremes_keep_nan_and_infinity(op: str) -> None:
    x, = random_arrays(4, (1, 1, 6, 50))
    x[0, 0, 2, 9], x[0, 0, 4, 0], x[0, 0, 1, 33] = np.nan, np.nan, np.inf
    attrs: Attrs = {"kernel": (3, 3), "pads": (1, 1, 1, 1)}
    got = native(op, [x], attrs, params=False)
    np.testing.assert_array_equal(got, REGISTRY[op](x, **attrs))


def sweep(seed: int) -> tuple[str, Arrays, Attrs] | None:
    """Random sizes and attributes, or None where the windows do not fit."""
    r = random.Random(seed)
    n, groups = r.choice([1, 2, 2, 3]), r.choice([1, 1, 2, 3])
    inner, filters = r.choice([1, 1, 2, 8, 19, 70]), r.choice([1, 5, 6, 7, 16, 40])
    kernel = [r.choice([1, 1, 2, 3, 5]) for _ in range(n)]
    steps, gaps = ([r.choice([1, 1, 2, 3]) for _ in range(n)] for _ in range(2))
    space = [r.randint(1, 30 if n < 3 else 9) for _ in range(n)]
    pads = [r.randint(-1, 4) for _ in range(2 * n)]
    if any(s + pads[i] + pads[n + i] < (kernel[i] - 1) * gaps[i] + 1
           for i, s in enumerate(space)):
        return None
    dtype = r.choice(["f4", "f4", "f8"])
    arrays = random_arrays(seed, (r.choice([1, 2]), inner * groups, *space),
                           (filters * groups, inner, *kernel), dtype=dtype)
    return "convolution", arrays, {"strides": tuple(steps), "dilations": tuple(gaps),
                                   "pads": tuple(pads), "groups": groups}


@pytest.mark.parametrize("seed", [s for s in range(32) if sweep(s)])
def test_random_attributes(seed: int) -> None:
    found = sweep(seed)
    assert found is not None
    op, arrays, attrs = found
    wanted = REGISTRY[op](*[a.astype(np.float64) for a in arrays], **attrs)
    close(native(op, arrays, attrs, symbolic=bool(seed % 2), params=bool(seed % 3)), wanted)


def test_symbolic_pads_and_new_bindings() -> None:
    n, p = sym("n"), sym("p")
    x, w = TensorType((1, 3, n), F32), TensorType((5, 3, 4), F32)
    attrs: Attrs = {"pads": (p, 2), "strides": (2,)}
    program = CpuProgram(graph("convolution", [x, w], attrs, 1),
                         {"x1": random_arrays(5, (5, 3, 4))[0]}, 2)
    for size, pad in ((9, 0), (40, 3), (2, 1)):
        a, = random_arrays(size, (1, 3, size))
        wanted = REGISTRY["convolution"](a, program.held[program.graph.params[0]],
                                         pads=(pad, 2), strides=(2,))
        close(program.run([a], {"n": size, "p": pad})[0], wanted)


def test_replaced_filters_are_packed_again() -> None:
    x, v, w = random_arrays(6, (1, 8, 9, 9), (20, 8, 3, 3), (20, 8, 3, 3))
    types = [TensorType(a.shape, F32) for a in (x, v)]
    program = CpuProgram(graph("convolution", types, {}, 1), {"x1": v}, 1)
    program.set_param("x1", w)
    close(program.run([x], {})[0], oracle.conv(x, w)[0])


def test_views_of_images_are_read_in_place_or_copied() -> None:
    x, w = random_arrays(7, (1, 12, 14, 8), (5, 8, 3, 3))
    transpose, slice_, conv = (REGISTRY[n] for n in ("transpose", "slice", "conv"))
    with Builder("views", lambda _: False) as b:
        a = b.input("x", TensorType(x.shape, F32))
        turned = transpose(a, perm=(0, 3, 1, 2))
        part = slice_(turned, starts=(1,), ends=(10,), steps=(1,), axes=(2,))
        g = b.finish(conv(part, b.input("w", TensorType(w.shape, F32), param=True)))
    got = CpuProgram(g, {"w": w}, 2).run([x], {})[0]
    close(got, oracle.conv(np.ascontiguousarray(x.transpose(0, 3, 1, 2)[:, :, 1:10]), w)[0])


@pytest.mark.parametrize(("op", "types"), [
    ("convolution", [(1, 2, 8), (2, 2, 3)]), ("transposed_convolution", [(1, 2, 8), (2, 2, 3)])])
def test_halves_are_declined_with_a_reason(op: str, types: list[tuple[int, ...]]) -> None:
    g = graph(op, [TensorType(t, F16) for t in types], {}, 0)
    found = claim(g.nodes[-1])
    assert found.how == "host" and "f16" in found.reason
