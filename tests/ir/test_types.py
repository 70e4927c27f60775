"""Element types, tensor types, broadcasting and promotion."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.declare.arrays import dtype_of_array, np_dtype, type_of
from treadle.errors import OperatorError, ParseError
from treadle.ir.dims import Size, sym
from treadle.ir.types import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    F64,
    I64,
    STRING,
    TensorType,
    axes_of,
    axis_of,
    broadcast,
    count,
    host_dtype,
    parse_dtype,
    parse_type,
    promote,
)

N, M = sym("n"), sym("m")
SHAPES: list[tuple[Size, ...]] = [
    (), (0,), (1, 8), (N,), (N + M, 4), (2 * N // 3 + 1, 5, 0), (N * M,)]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_type_reads_back(dtype: object, shape: tuple[Size, ...]) -> None:
    type_ = TensorType(shape, parse_dtype(str(dtype)))
    assert parse_type(str(type_)) == type_
    assert type_.dtype is dtype


HOSTS = [host_dtype("seq", parse_type("f32[2,n]")), host_dtype("opt", parse_type("i64[]")),
         host_dtype("map", text="i64,f32"), host_dtype("seq", text="map(string,f32)"),
         host_dtype("opt", parse_type("seq(f32[past+seq])[]")), host_dtype("seq")]


@pytest.mark.parametrize("dtype", HOSTS, ids=str)
def test_host_types_read_back_as_the_same_object(dtype: object) -> None:
    again = parse_type(f"{dtype}[]")
    assert again.dtype is dtype and again.shape == ()
    assert again.dtype.sort == "host"


def test_the_element_of_a_host_type_is_known() -> None:
    assert parse_dtype("seq(f32[2,k])").elem == parse_type("f32[2,k]")
    assert parse_dtype("map(i64,f32)").elem is None


@pytest.mark.parametrize("text", [
    "", "f32", "f32[", "f32]", "[]", "f32[n][m]", "f33[2]", " f32[2]", "f32[1,,2]", "f32[,]",
    "f32[-1]", "f32[1.5]", "seq(f32[2]", "seq(f32[2])", "vec(f32[2])[]", "f32[2)[",
    "seq(" * 3000 + "f32[]" + ")[]" * 3000])
def test_what_is_no_type_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_type(text)


@given(st.text(max_size=30) | st.text("f32[n,](seqopt)+-i64 ", max_size=40))
def test_any_text_is_a_type_or_a_parse_error(text: str) -> None:
    try:
        type_ = parse_type(text)
    except ParseError:
        return
    assert parse_type(str(type_)) == type_


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.numpy], ids=str)
def test_numpy_dtypes_map_both_ways(dtype: object) -> None:
    mine = parse_dtype(str(dtype))
    array = np.full(2, "a", object) if mine is STRING else np.zeros(2, np_dtype(mine))
    assert dtype_of_array(array) is mine
    assert type_of(array) == TensorType((2,), mine)


def test_the_widths_are_those_of_ml_dtypes() -> None:
    """`bits` is logical; NumPy stores the narrow ones in a byte each."""
    for dtype in DTYPES.values():
        if dtype.sort == "float":
            assert ml_dtypes.finfo(np_dtype(dtype)).bits == dtype.bits, dtype
        elif dtype.sort in ("int", "uint"):
            assert ml_dtypes.iinfo(np_dtype(dtype)).bits == dtype.bits, dtype


@pytest.mark.parametrize(("text", "want"), [
    ("f32[2,3]", 24), ("bool[5]", 5), ("i4[3]", 2), ("u2[9]", 3), ("q4_0[2,64]", 72),
    ("q6_k[1,512]", 420), ("mxfp4[32]", 17), ("f32[0,7]", 0), ("f6e2m3fn[4]", 3)])
def test_packed_bytes(text: str, want: int) -> None:
    assert parse_type(text).nbytes() == want


def test_symbolic_bytes() -> None:
    assert parse_type("f32[n,4]").nbytes() is 16 * N
    assert count((N, 2, M)) is 2 * (N * M)


def test_big_endian_arrays_are_the_same_type() -> None:
    assert dtype_of_array(np.zeros(2, ">f4")) is F32


def test_unsupported_arrays_are_named() -> None:
    with pytest.raises(OperatorError, match=r"arrays of datetime64.* are not supported"):
        dtype_of_array(np.zeros(2, "M8[s]"))


NUMBERS = [d for d in DTYPES.values() if d.sort in ("bool", "int", "uint", "float", "complex")
           and d.bits >= 8]
NUMPY_NUMBERS = [d for d in NUMBERS if np_dtype(d).isbuiltin == 1]


@pytest.mark.parametrize("a", NUMBERS, ids=str)
def test_promotion_commutes_and_absorbs(a: object) -> None:
    mine = parse_dtype(str(a))
    assert promote(mine, mine) is mine
    for b in NUMBERS:
        try:
            both = promote(mine, b)
        except OperatorError:
            with pytest.raises(OperatorError):
                promote(b, mine)
            continue
        assert promote(b, mine) is both
        assert promote(both, b) is both or both.sort != b.sort


@pytest.mark.parametrize("a", NUMPY_NUMBERS, ids=str)
def test_promotion_within_a_sort_is_numpys(a: object) -> None:
    mine = parse_dtype(str(a))
    for b in NUMPY_NUMBERS:
        if b.sort == mine.sort:
            assert np_dtype(promote(mine, b)) == np.promote_types(np_dtype(mine), np_dtype(b))


@pytest.mark.parametrize(("a", "b", "want"), [
    (F16, BF16, F32), (I64, F16, F16), (BOOL, F32, F32), (parse_dtype("u8"), parse_dtype("i8"),
    parse_dtype("i16")), (F64, parse_dtype("c64"), parse_dtype("c128")),
    (parse_dtype("f8e5m2"), parse_dtype("f8e4m3fn"), F32)])
def test_promotion_table(a: object, b: object, want: object) -> None:
    assert promote(parse_dtype(str(a)), parse_dtype(str(b))) is want


@pytest.mark.parametrize(("a", "b"), [("u64", "i64"), ("q4_0", "f32"), ("string", "i64"),
                                      ("i4", "i8"), ("f4e2m1fn", "f32")])
def test_pairs_that_do_not_mix(a: str, b: str) -> None:
    with pytest.raises(OperatorError):
        promote(parse_dtype(a), parse_dtype(b))


@given(st.lists(st.lists(st.sampled_from([1, 2, 3]), max_size=4), min_size=1, max_size=3))
def test_broadcast_is_numpys(shapes: list[list[int]]) -> None:
    try:
        want = np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        with pytest.raises(OperatorError):
            broadcast([tuple(s) for s in shapes])
        return
    assert broadcast([tuple(s) for s in shapes]) == want


def test_broadcast_of_symbols_guesses_nothing() -> None:
    assert broadcast([(N, 1), (4,)]) == (N, 4)
    assert broadcast([(N, M), (N, M)]) == (N, M)
    assert broadcast([(0,), (1,)]) == (0,)
    with pytest.raises(OperatorError, match="n against m on axis -1"):
        broadcast([(N,), (M,)])
    with pytest.raises(OperatorError, match="n against 4"):
        broadcast([(N,), (4,)])


def test_axes() -> None:
    assert axis_of(-1, 3) == 2
    assert axes_of((-1, 0), 3) == (0, 2)
    with pytest.raises(OperatorError, match="axis 3 is out of range for rank 3"):
        axis_of(3, 3)
    with pytest.raises(OperatorError, match="name one axis twice"):
        axes_of((1, -1), 2)
    with pytest.raises(OperatorError, match="out of range for rank 0"):
        axis_of(0, 0)
