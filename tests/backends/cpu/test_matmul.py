"""Matrix products against NumPy in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

from tests.backends.cpu.products import canvas, product, untouched
from treadle.backends.cpu.contraction import (
    BatchAxis,
    Epilogue,
    ExtraOperand,
    Matmul,
    Place,
    Prologue,
    chunks_for,
    emit_matmul,
    integer_plan,
    pack,
    pack_integer,
    tile_for,
)
from treadle.backends.cpu.contraction.integer import chosen_late, order
from treadle.backends.cpu.contraction.pack import packed_elements
from treadle.codegen.llvm import target
from treadle.codegen.llvm.jit import assembly, spills
from treadle.codegen.llvm.kernel import export
from treadle.codegen.llvm.runtime import ThreadPool
from treadle.codegen.llvm.text import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    Function,
    Module,
    Type,
    Value,
)
from treadle.errors import Declined

TILE = tile_for(target.host(), F32)
Layout = Literal["packed", "rows", "columns"]
DTYPES = {F16: np.float16, BF16: ml_dtypes.bfloat16, F32: np.float32, F64: np.float64}
SHAPES = [(1, 16, 4), (1, 10, 3), (2, 33, 5), (3, 7, 64), (6, 32, 37), (7, 48, 100), (13, 77, 1030),
          (32, 100, 96), (200, 24, 8), (1, 1, 1), (5, 300, 2)]


def random(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Reproducible normal numbers."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def check(got: NDArray[Any], a: NDArray[Any], b: NDArray[Any], dtype: DTypeLike) -> None:
    """Compare with the exact product within the bound of a sum of rounded products."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    unit = float(ml_dtypes.finfo(dtype).eps)
    working = float(np.finfo(np.float64 if dtype == np.float64 else np.float32).eps)
    bound = np.abs(x) @ np.abs(y) * working * (4 + x.shape[-1]) + np.abs(x @ y) * unit + 1e-30
    assert (np.abs(got.astype(np.float64) - x @ y) <= bound).all()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_packed(shape: tuple[int, int, int], dynamic: bool) -> None:
    m, n, k = shape
    a, b = random((m, k)), random((k, n))
    c, whole = canvas(m, n, np.float32)
    sizes = dict(m=m, n=n, k=k, ldc=whole.shape[1])
    spec = Matmul("m", "n", "k", ldc="ldc") if dynamic else Matmul(m, n, k, ldc=whole.shape[1])
    product(spec)(a, pack(b, TILE), c, sizes=sizes)
    check(c, a, b, np.float32)
    assert untouched(whole, m, n)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 10, 3), (7, 48, 100), (60, 77, 130)])
def test_operands_are_read_where_they_lie(shape: tuple[int, int, int], a_transposed: bool,
                                          layout: Layout, dynamic: bool) -> None:
    m, n, k = shape
    a, b = random((m, k)), random((k, n))
    outer_a = np.full((k if a_transposed else m, (m if a_transposed else k) + 3), np.nan, "f")
    outer_a[:, :-3] = a.T if a_transposed else a
    outer_b = np.full((n if layout == "columns" else k, (k if layout == "columns" else n) + 5),
                      np.nan, "f")
    outer_b[:, :-5] = b.T if layout == "columns" else b
    c, whole = canvas(m, n, np.float32)
    known = (m, n, k, outer_a.shape[1], outer_b.shape[1], whole.shape[1])
    names = ("m", "n", "k", "lda", "ldb", "ldc")
    spec = Matmul(*(names if dynamic else known)[:3], b_layout=layout, a_transposed=a_transposed,
                  **dict(zip(names[3:], (names if dynamic else known)[3:], strict=True)))
    product(spec)(outer_a, outer_b, c, sizes=dict(zip(names, known, strict=True)))
    check(c, a, b, np.float32)
    assert untouched(whole, m, n)


@pytest.mark.parametrize("types", [
    (F64, F64, F64), (F32, F16, F32), (F16, F16, F16), (BF16, BF16, BF16), (F32, BF16, F32),
    (F16, F16, F32), (F16, F32, BF16)], ids=lambda t: "-".join(x.mangled for x in t))
@pytest.mark.parametrize("shape", [(1, 40, 70), (9, 27, 33)])
def test_element_types(types: tuple[Type, Type, Type], shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    ka, kb, kc = types
    a, b = random((m, k), DTYPES[ka]), random((k, n), DTYPES[kb])
    tile = tile_for(target.host(), F64 if ka == F64 else F32)
    for layout, stored in (("packed", pack(b, tile)), ("rows", b), ("columns", b.T.copy())):
        c, whole = canvas(m, n, DTYPES[kc])
        product(Matmul(m, n, k, ka, kb, kc, ldc=whole.shape[1], b_layout=layout))(a, stored, c)
        check(c, a, b, DTYPES[kc])
        assert untouched(whole, m, n)


def test_a_long_sum_is_cut_into_blocks_of_k() -> None:
    m, n, k = 16, 40, 9001
    a, b = random((m, k)), random((k, n))
    c = np.empty((m, n), np.float32)
    product(Matmul(m, n, k))(a, pack(b, TILE), c)
    check(c, a, b, np.float32)


def test_lines_a_page_apart_are_copied_first() -> None:
    m, n, k = 40, 20, 1024
    a, b = random((m, k)), random((k, n))
    c = np.empty((m, n), np.float32)
    product(Matmul(m, n, k))(a, pack(b, TILE), c)
    check(c, a, b, np.float32)
    product(Matmul(m, n, "k", lda=1024))(a, pack(b[:1000], TILE), c, sizes={"k": 1000})
    check(c, a[:, :1000], b[:1000], np.float32)


@pytest.mark.parametrize("shape", [(13, 77, 300), (1, 200, 64), (400, 20, 50)])
def test_results_do_not_depend_on_chunks(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = random((m, k)), pack(random((k, n)), TILE)
    multiply, c = product(Matmul(m, n, k)), np.empty((m, n), np.float32)
    multiply(a, b, c, chunks=1)
    first = c.tobytes()
    for chunks in (2, 3, 7, 64):
        c[:] = 0
        multiply(a, b, c, chunks=chunks)
        assert c.tobytes() == first


def relu_of_scaled_sum(f: Function, value: Value, values: Sequence[Value], place: Place) -> Value:
    """max(scale * row * x + bias + residual, 0)."""
    del place
    bias, residual, row, scale = values
    return f.maximum(f.fma(value, row * scale, bias + residual), 0.0)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(1, 10, 3), (7, 32, 20), (14, 45, 2100)])
def test_epilogue(shape: tuple[int, int, int], dynamic: bool, late: bool) -> None:
    m, n, k = shape
    a, b, c = random((m, k)), random((k, n)), np.empty((m, n), np.float32)
    bias, residual, row = random((n,)), random((m, n), np.float16), random((m,))
    scale = np.array([0.25], np.float64)
    epilogue = Epilogue("relu_of_scaled_sum", (
        ExtraOperand("bias", "column"), ExtraOperand("residual", "matrix", F16),
        ExtraOperand("row", "row"), ExtraOperand("scale", "scalar", F64)), relu_of_scaled_sum,
        late)
    spec = Matmul("m" if dynamic else m, n, k, epilogue=epilogue)
    product(spec)(a, pack(b, TILE), c, [bias, residual, row, scale], {"m": m})
    want = a.astype("d") @ b * row[:, None] * 0.25 + bias + residual.astype("d")
    np.testing.assert_allclose(c, np.maximum(want, 0), atol=1e-5 * k**0.5, rtol=1e-5)


def test_an_epilogue_knows_its_place() -> None:
    def mark(f: Function, value: Value, values: Sequence[Value], place: Place) -> Value:
        del values
        first = f.convert(f.cast("trunc", place.row * 1000 + place.column, I64), F32)
        lanes = f.convert(f.iota(I64.vector(value.type.lanes)), F32)
        return f.splat(first, value.type.lanes) + lanes

    m, n, k = 20, 50, 4
    c = np.empty((m, n), np.float32)
    multiply = product(Matmul(m, n, k, epilogue=Epilogue("mark", (), mark)))
    multiply(random((m, k)), pack(random((k, n)), TILE), c)
    np.testing.assert_array_equal(c, np.arange(m)[:, None] * 1000 + np.arange(n))


@pytest.mark.parametrize("transposed", [False, True])
def test_prologue(transposed: bool) -> None:
    def normalise(f: Function, value: Value, values: Sequence[Value], place: Place) -> Value:
        del f, place
        mean, gain = values
        return (value - mean) * gain

    m, n, k = 29, 18, 45
    a, b, c = random((m, k)), random((k, n)), np.empty((m, n), np.float32)
    mean, gain = random((m,)), random((k,))
    prologue = Prologue("normalise", (ExtraOperand("mean", "row"),
                                      ExtraOperand("gain", "column")), normalise)
    spec = Matmul(m, n, k, a_transposed=transposed, prologue=prologue)
    stored = a.T.copy() if transposed else a
    product(spec)(stored, pack(b, TILE), c, [mean, gain])
    np.testing.assert_allclose(c, (a.astype("d") - mean[:, None]) * gain @ b, atol=1e-4)


@pytest.mark.parametrize("layout", ["packed", "rows", "columns"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_batches_broadcast(layout: Layout, dynamic: bool) -> None:
    m, n, k = 5, 20, 12
    a, b = random((2, 1, 3, m, k)), random((1, 4, 3, k, n))
    c = np.zeros((2, 4, 3, m, n), np.float32)
    stored = {"packed": pack(b, TILE), "rows": b, "columns": b.swapaxes(-1, -2).copy()}[layout]
    size = packed_elements(k, n, TILE) if layout == "packed" else k * n
    axes = (BatchAxis(2, 3 * m * k, 0, 12 * m * n), BatchAxis(4, 0, 3 * size, 3 * m * n),
            BatchAxis("heads" if dynamic else 3, m * k, "sb" if dynamic else size, m * n))
    spec = Matmul("m" if dynamic else m, n, k, b_layout=layout, batch=axes)
    for chunks in (1, 5):
        c[:] = 0
        product(spec)(a, stored, c, sizes={"m": m, "heads": 3, "sb": size}, chunks=chunks)
        np.testing.assert_allclose(c, a.astype("d") @ b, atol=1e-4)


@pytest.mark.parametrize("shape", [(0, 16, 4), (4, 0, 4), (4, 20, 0)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_empty(shape: tuple[int, int, int], dynamic: bool) -> None:
    m, n, k = shape
    a, b, c = random((m, k)), random((k, n)), np.full((m, n), 7, np.float32)
    spec = Matmul("m", "n", "k") if dynamic else Matmul(m, n, k)
    product(spec)(a, pack(b, TILE), c, sizes=dict(m=m, n=n, k=k))
    np.testing.assert_array_equal(c, a @ b)


def test_many_threads_give_the_same_bytes() -> None:
    from tests.backends.cpu import products

    m, n, k = 90, 333, 200
    a, b = random((m, k)), pack(random((k, n)), TILE)
    multiply, c = product(Matmul(m, n, k, b=F32, a=F32)), np.empty((m, n), np.float32)
    multiply(a, b, c)
    first, alone = c.tobytes(), products.ALONE
    try:
        products.ALONE = ThreadPool(3)
        for _ in range(50):
            c[:] = 0
            multiply(a, b, c, chunks=11)
            assert c.tobytes() == first
    finally:
        products.ALONE.close()
        products.ALONE = alone


@pytest.mark.parametrize("on", [target.AVX2, target.AVX512, target.NEON, target.host()],
                         ids=lambda t: t.cpu)
@pytest.mark.parametrize("spec", [
    Matmul(128, 768, 768), Matmul("m", 768, 768), Matmul(128, 100, 768, b_layout="rows"),
    Matmul(64, 64, 64, F64, F64, F64), Matmul(128, 768, 768, b=F16)],
    ids=["f32", "dynamic", "rows", "f64", "f16"])
def test_tiles_stay_in_registers(on: target.Target, spec: Matmul) -> None:
    module = Module(on)
    export(module, [emit_matmul(module, spec, "product")])
    found = spills(assembly(module.text(), on))
    tiles = {name: s for name, s in found.items() if name.startswith("tile")}
    assert tiles
    assert not {name: s for name, s in tiles.items() if s.moves}


@pytest.mark.parametrize("signs", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("shape", [(1, 10, 3), (7, 40, 130), (20, 33, 64)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_8_bit(shape: tuple[int, int, int], signs: tuple[bool, bool], dynamic: bool) -> None:
    m, n, k = shape
    kinds = [np.int8 if signed else np.uint8 for signed in signs]
    pick = np.random.default_rng(k)
    a, b = (pick.integers(np.iinfo(t).min, np.iinfo(t).max + 1, size, t)
            for t, size in zip(kinds, ((m, k), (k, n)), strict=True))
    a[0], b[:, 0] = np.iinfo(kinds[0]).min, np.iinfo(kinds[1]).min
    a[-1], b[:, -1] = np.iinfo(kinds[0]).max, np.iinfo(kinds[1]).max
    c, whole = canvas(m, n, np.int32)
    spec = Matmul("m" if dynamic else m, n, "k" if dynamic else k, I8, I8, I32,
                  ldc=whole.shape[1], a_signed=signs[0], b_signed=signs[1])
    product(spec)(a, pack_integer(b, target.host(), spec), c, sizes={"m": m, "k": k})
    np.testing.assert_array_equal(c, a.astype(np.int64) @ b)
    assert untouched(whole, m, n)


def small_weights(k: int, n: int, planted: int) -> np.ndarray:
    """Neighbours that just do not overflow 16 bits, but for planted ones."""
    pick = np.random.default_rng(k)
    b = pick.integers(-64, 65, (k, n)).astype(np.int8)
    b[::4, 0], b[1::4, 0] = 127, 1
    b[::4, 1], b[1::4, 1] = -128, 0
    for i in range(planted):
        b[2 + 8 * i:4 + 8 * i, i % n] = 100
    return b


@pytest.mark.parametrize("a_signed", [False, True])
@pytest.mark.parametrize(("m", "n", "k", "planted"), [
    (1, 40, 256, 0), (1, 33, 70, 3), (2, 16, 67, 0), (5, 21, 129, 9), (13, 64, 64, 1),
    (40, 17, 320, 30)])
def test_small_8_bit_weights_meet_the_largest_operands(
        m: int, n: int, k: int, planted: int, a_signed: bool) -> None:
    """Sums of two products that would saturate 16 bits are never made."""
    b, dynamic = small_weights(k, n, planted), a_signed == (k % 2 == 0)
    pick = np.random.default_rng(1)
    low = -128 if a_signed else 0
    a = pick.integers(low, low + 256, (m, k)).astype(np.int8 if a_signed else np.uint8)
    a[0], a[-1, ::2] = low + 255, low + 255
    c, whole = canvas(m, n, np.int32)
    spec = Matmul("m" if dynamic else m, n, "k" if dynamic else k, I8, I8, I32,
                  ldc=whole.shape[1], a_signed=a_signed)
    product(spec)(a, pack_integer(b, target.host(), spec), c, sizes={"m": m, "k": k})
    np.testing.assert_array_equal(c, a.astype(np.int64) @ b)
    assert untouched(whole, m, n)


def test_an_order_in_which_no_neighbours_overflow() -> None:
    for planted in (0, 5, 30):
        b = small_weights(256, 24, planted)
        found = order(b)
        assert found is not None
        assert sorted(found) == list(range(256))
        assert (found.tolist() == sorted(found)) == (planted == 0)
        pairs = b[found].reshape(128, 2, 24).astype(int).sum(1)
        assert (np.abs(pairs) <= 128).all()
    assert order(np.full((8, 3), 65, np.int8)) is None


@pytest.mark.skipif(not chosen_late(target.host(), Matmul(1, 1, 1, I8, I8, I32)),
                    reason="this processor multiplies 8-bit numbers in one way")
def test_packed_weights_say_how_they_are_multiplied() -> None:
    spec = Matmul(1, 24, 256, I8, I8, I32)
    forms = [int(pack_integer(b, target.host(), spec)[:4].view(np.int32)[0]) for b in (
        np.full((256, 24), 100, np.int8), small_weights(256, 24, 0), small_weights(256, 24, 5))]
    assert forms == [0, 1, 2]


def test_8_bit_products_are_scaled_in_the_epilogue() -> None:
    def scale(f: Function, value: Value, values: Sequence[Value], place: Place) -> Value:
        del place
        return f.convert(value, F32) * values[0]

    m, n, k = 9, 21, 50
    pick = np.random.default_rng(0)
    a, b = (pick.integers(-128, 128, size, np.int8) for size in ((m, k), (k, n)))
    scales, c = random((n,)), np.empty((m, n), np.float32)
    spec = Matmul(m, n, k, I8, I8, F32,
                  epilogue=Epilogue("scale", (ExtraOperand("scales", "column"),), scale))
    product(spec)(a, pack_integer(b, target.host(), spec), c, [scales])
    np.testing.assert_allclose(c, (a.astype(np.int64) @ b) * scales, rtol=1e-6)


@pytest.mark.parametrize("a_signed", [False, True])
def test_flipped_signs_are_corrected_by_column_sums(a_signed: bool) -> None:
    """The arithmetic of the targets with 8-bit dot products, followed in NumPy."""
    pick = np.random.default_rng(0)
    kind = np.int8 if a_signed else np.uint8
    a = pick.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (5, 12), kind)
    b = pick.integers(-128, 128, (12, 7), np.int8)
    for on in (target.AVX512_VNNI, target.NEON):
        spec = Matmul(5, 7, 12, I8, I8, I32, a_signed=a_signed)
        plan = integer_plan(on, spec)
        bits = a.view(np.uint8) ^ np.uint8(0x80 if plan.flip else 0)
        staged = bits if on.is_x86 else bits.view(np.int8)
        sums = pack_integer(b, on, spec)[-4 * tile_for(on, I32).columns:].view(np.int32)[:7]
        got = staged.astype(np.int64) @ b + plan.offset * sums.astype(np.int64)
        np.testing.assert_array_equal(got, a.astype(np.int64) @ b)


@pytest.mark.parametrize(("on", "instruction"), [
    (target.AVX2, "vpmaddwd"), (target.AVX512, "vpmaddwd"), (target.AVX512_VNNI, "vpdpbusd"),
    (target.NEON, "sdot")], ids=lambda x: getattr(x, "cpu", x))
def test_8_bit_products_use_the_instructions_of_the_target(on: target.Target, instruction: str
                                                           ) -> None:
    module = Module(on)
    export(module, [emit_matmul(module, Matmul(64, 64, 64, I8, I8, I32), "product")])
    text = assembly(module.text(), on)
    assert instruction in text
    assert not {name: s for name, s in spills(text).items() if name.startswith("tile") and s.moves}


def test_8_bit_needs_packed_weights() -> None:
    with pytest.raises(Declined, match="needs packed B"):
        emit_matmul(Module(target.host()), Matmul(4, 4, 4, I8, I8, I32, b_layout="rows"), "p")


def test_chunks_follow_the_sizes() -> None:
    tile = tile_for(target.describe("x86_64-linux", "znver3", frozenset({"avx", "avx2"})), F32)
    assert chunks_for(Matmul(1, 16, 16), tile, {}) == 1
    assert chunks_for(Matmul(1, 768, 768), tile, {}) == 4
    assert chunks_for(Matmul("m", 4096, 4096), tile, {"m": 512}) == 256
    assert chunks_for(Matmul(128, 768, 768), tile, {}) == -(-768 // tile.columns)
