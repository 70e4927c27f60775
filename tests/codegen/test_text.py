"""The text builder, against NumPy and Python's own arithmetic."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from treadle.codegen.llvm import jit, target
from treadle.codegen.llvm.text import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    Function,
    Module,
    Type,
    Value,
)

HOST = target.host()


def run(body: Callable[[Function, Value, Value], None], *arrays: np.ndarray) -> None:
    """Build `body(function, pointer, pointer)` and call it on two arrays."""
    module = Module(HOST)
    f = module.function("f", VOID, [("a", PTR), ("b", PTR)], linkage="")
    body(f, *f.args)
    f.give()
    call = jit.build(module.text(), HOST).function("f", None, ctypes.c_void_p, ctypes.c_void_p)
    call(*(array.ctypes.data for array in arrays))


@pytest.mark.parametrize(("kind", "dtype"), [
    (F16, np.float16), (BF16, ml_dtypes.bfloat16), (F32, np.float32), (F64, np.float64)])
@pytest.mark.parametrize("value", [0.1, -0.0, 1e-41, 65519.0, 65520.0, 3.4e38, 1e300, np.inf])
def test_float_constants_round_as_numpy_does(kind: Type, dtype: type, value: float) -> None:
    out = np.zeros(1, dtype)
    run(lambda f, a, _: f.store(f.constant(kind, value), a), out, out)
    with np.errstate(over="ignore"):
        want = np.array([np.float32(value) if kind == BF16 else value]).astype(dtype)
    assert out.tobytes() == want.tobytes()


def test_nan_constants() -> None:
    out = np.zeros(2, np.uint16)

    def body(f: Function, a: Value, _: Value) -> None:
        f.store(f.constant(F16, float("nan")), a, 0)
        f.store(f.constant(BF16, float("nan")), a, 1)

    run(body, out, out)
    assert np.isnan(out[:1].view(np.float16)).all()
    assert np.isnan(out[1:].view(ml_dtypes.bfloat16)).all()


@pytest.mark.parametrize("on", [target.AVX2, target.AVX512, target.NEON], ids=lambda t: t.cpu)
@pytest.mark.parametrize("wide", [F32, F64])
def test_bfloat_of_another_block_needs_no_library(on: target.Target, wide: Type) -> None:
    """LLVM folds an extension that is rounded back, and calls a routine for what it then keeps."""
    module = Module(on)
    f = module.function("f", VOID, [("a", PTR), ("b", PTR)], linkage="")
    a, b = f.args
    x = f.convert(f.load(BF16, a), wide)
    with f.loop(0, f.load(I64, b)) as at:
        f.store(f.constant(BF16, 0), b, at.index)
    f.store(f.convert(x, BF16), b, 7)
    f.give()
    assert "bf2" not in jit.assembly(module.text(), on)


@pytest.mark.parametrize(("kind", "value"), [(I8, 256), (I8, -129), (I1, 2), (I32, 0.5), (PTR, 1)])
def test_constants_that_do_not_fit_are_refused(kind: Type, value: float) -> None:
    with pytest.raises(ValueError, match="constant|fit"):
        kind.constant(value)


def test_integer_operators_are_signed_and_truncate() -> None:
    x, out = np.array([-7], np.int64), np.zeros(6, np.int64)

    def body(f: Function, a: Value, b: Value) -> None:
        v = f.load(I64, a)
        for j, r in enumerate([v // 2, v % 2, v >> 1, 5 - v, -v, ~v]):
            f.store(r, b, j)

    run(body, x, out)
    assert out.tolist() == [-3, -1, -4, 12, 7, 6]


def test_multiply_and_add_stay_separate_unless_fused_explicitly() -> None:
    x = np.array([1 + 2**-12, -1.0], np.float32)
    out = np.zeros(2, np.float32)

    def body(f: Function, a: Value, b: Value) -> None:
        v, c = f.load(F32, a), f.load(F32, a, 1)
        f.store(v * v + c, b, 0)
        f.store(f.fma(v, v, c), b, 1)

    run(body, x, out)
    assert out[0] == np.float32(x[0] * x[0]) + x[1]
    assert out[1] == np.float32(float(x[0]) * float(x[0]) - 1.0)
    assert out[0] != out[1]


def test_a_nan_gives_the_second_operand_of_minimum_and_maximum() -> None:
    x = np.array([np.nan, 3.0], np.float32)
    out = np.zeros(4, np.float32)

    def body(f: Function, a: Value, b: Value) -> None:
        p, q = f.load(F32, a), f.load(F32, a, 1)
        for j, r in enumerate([f.maximum(p, q), f.maximum(q, p), f.minimum(p, q),
                               f.minimum(q, p)]):
            f.store(r, b, j)

    run(body, x, out)
    np.testing.assert_array_equal(out, [3.0, np.nan, 3.0, np.nan])


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 64, 77])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_a_loop_with_a_masked_tail_sums_and_touches_nothing_beyond(count: int, lanes: int) -> None:
    x = np.arange(1, count + 1, dtype=np.int32)
    out = np.full(count + 2, -1, np.int32)
    kind = I32.vector(lanes)

    def body(f: Function, a: Value, b: Value) -> None:
        n = f.constant(I64, count)
        with f.loop(0, n, lanes, [f.constant(kind, 0)]) as loop:
            if lanes == 1:
                v = f.load(kind, a, loop.index)
                f.store(v * 2, b, loop.index)
            else:
                mask = f.tail_mask(n - loop.index, lanes)
                v = f.masked_load(kind, f.address(a, loop.index, I32), mask)
                f.masked_store(v * 2, f.address(b, loop.index, I32), mask)
            loop.carry(loop.values[0] + v)
        f.store(f.reduce(loop.results[0], lambda p, q: p + q), b, count)

    run(body, x, out)
    assert out[:count].tolist() == (2 * x).tolist()
    assert out[count:].tolist() == [x.sum(), -1]


def test_gather_scatter_and_shuffles() -> None:
    x, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    kind = F32.vector(4)

    def body(f: Function, a: Value, b: Value) -> None:
        mask = f.constant(I1.vector(4), 1)
        at = f.iota(I64.vector(4)) * 4
        column = f.gather(kind, f.address(a, at, F32), mask)
        turned = f.shuffle(column, None, [3, 2, 1, 0])
        f.scatter(turned, f.address(b, at, F32), mask)
        f.store(f.insert(column, f.extract(column, 3), 0), b, 4)

    run(body, x, out)
    assert out[[0, 8, 12]].tolist() == [12.0, 4.0, 0.0]
    assert out[4:8].tolist() == [12.0, 4.0, 8.0, 12.0]


@pytest.mark.parametrize(("source", "scalar", "values"), [
    (np.int8, F32, [-128, 127]), (np.float32, I16, [-3.9, 3.9]), (np.float16, F32, [0.1, 65504]),
    (np.float32, F64, [0.1, 2.5]), (np.int8, I32, [-1, 5]), (np.int64, I8, [-1, 300])])
def test_conversions(source: type, scalar: Type, values: list[float]) -> None:
    names = {F32: np.float32, F64: np.float64, I8: np.int8, I16: np.int16, I32: np.int32}
    kinds = {np.int8: I8, np.float32: F32, np.float16: F16, np.int64: I64}
    x = np.array(values, source)
    out = np.zeros(2, names[scalar])
    run(lambda f, a, b: f.store(f.convert(f.load(kinds[source].vector(2), a), scalar), b), x, out)
    np.testing.assert_array_equal(out, x.astype(names[scalar]))


def test_control_flow() -> None:
    out = np.zeros(3, np.int64)

    def body(f: Function, a: Value, b: Value) -> None:
        with f.loop(0, 10) as loop, f.when(f.compare("eq", loop.index % 3, 0)):
            f.store(f.load(I64, a) + loop.index, a)
        with f.loop(5, 5):
            f.store(f.constant(I64, 99), b, 1)
        with f.until() as done:
            n = f.atomic_update("add", f.address(b, 2, I64), f.constant(I64, 1), "seq_cst")
            more = f.label("more")
            f.branch(f.compare("ge", n, 4), done, more)
            f.start(more)

    run(body, out, out)
    assert out.tolist() == [18, 0, 5]


def test_compare_exchange() -> None:
    out = np.array([5, 0, 0], np.int64)

    def body(f: Function, a: Value, _: Value) -> None:
        for j, (old, new) in enumerate([(4, 9), (5, 6)]):
            done = f.compare_exchange(a, f.constant(I64, old), f.constant(I64, new), "acq_rel")
            f.store(f.cast("zext", done, I64), a, j + 1)

    run(body, out, out)
    assert out.tolist() == [6, 0, 1]


def test_mistakes_are_refused_while_building() -> None:
    module = Module(HOST)
    f = module.function("f", VOID, [("a", I64), ("b", I32)])
    a, b = f.args
    with pytest.raises(TypeError, match="i32 %b in @f meets i64"):
        _ = a + b
    with pytest.raises(TypeError, match="carries 1 values"), f.loop(0, 3, carried=[a]):
        pass
    with pytest.raises(TypeError, match="was handed"), f.loop(0, 3, carried=[a]) as loop:
        loop.carry(b)
    with pytest.raises(ValueError, match="@f exists"):
        module.function("f", VOID, [])
    with pytest.raises(TypeError, match="@f was called"):
        f.invoke(f, b)


def test_bit_patterns_of_doubles() -> None:
    assert F64.constant(1.5) == f"0x{struct.unpack('<Q', struct.pack('<d', 1.5))[0]:016X}"
