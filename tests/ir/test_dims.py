"""Symbolic sizes against integer arithmetic."""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from treadle.errors import ParseError
from treadle.ir.dims import (
    Dim,
    Size,
    bounds,
    cdiv,
    dmax,
    dmin,
    evaluate,
    implied_limit,
    limits,
    parse_size,
    substitute,
    sym,
    symbol_name,
    symbols,
)
from treadle.ir.types import parse_type

NAMES = ("past", "seq", "n")
Binding = dict[str, int]
Tree = int | str | tuple[str, "Tree", "Tree"]
SYMBOLIC: dict[str, Callable[[Size, Size], Size]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "//": lambda a, b: a // dmax(b, 1), "cdiv": lambda a, b: cdiv(a, dmax(b, 1)),
    "min": dmin, "max": dmax}
NUMERIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "//": lambda a, b: a // max(b, 1), "cdiv": lambda a, b: -(-a // max(b, 1)),
    "min": min, "max": max}
trees: st.SearchStrategy[Tree] = st.recursive(
    st.integers(-4, 9) | st.sampled_from(NAMES),
    lambda s: st.tuples(st.sampled_from(sorted(NUMERIC)), s, s), max_leaves=7)
bindings: st.SearchStrategy[Binding] = st.fixed_dictionaries(
    {n: st.integers(0, 9) for n in NAMES})


def size_of(tree: Tree) -> Size:
    """The size that a tree of operations builds."""
    if isinstance(tree, tuple):
        return SYMBOLIC[tree[0]](size_of(tree[1]), size_of(tree[2]))
    return sym(tree) if isinstance(tree, str) else tree


def number_of(tree: Tree, binding: Binding) -> int:
    """The same tree in plain integers."""
    if isinstance(tree, tuple):
        return NUMERIC[tree[0]](number_of(tree[1], binding), number_of(tree[2], binding))
    return binding[tree] if isinstance(tree, str) else tree


@settings(max_examples=150)
@given(trees, bindings)
def test_evaluate_agrees_with_integer_arithmetic(tree: Tree, binding: Binding) -> None:
    assert evaluate(size_of(tree), binding) == number_of(tree, binding)


@settings(max_examples=150)
@given(trees)
def test_text_reads_back_as_the_same_object(tree: Tree) -> None:
    size = size_of(tree)
    again = parse_size(str(size))
    assert again is size or (isinstance(size, int) and again == size)


@settings(max_examples=150)
@given(trees, bindings, bindings)
def test_bounds_contain_the_value(tree: Tree, a: Binding, b: Binding) -> None:
    size = size_of(tree)
    known = {k: (min(a[k], b[k]), max(a[k], b[k])) for k in NAMES}
    for binding in (a, b):
        for low, high in (bounds(size, known), bounds(size)):
            assert low <= evaluate(size, binding) <= high


@settings(max_examples=150)
@given(trees, trees, bindings)
def test_substitution_commutes_with_evaluation(outer: Tree, inner: Tree, binding: Binding) -> None:
    if (value := number_of(inner, binding)) < 0:
        return  # symbols are sizes
    replaced = substitute(size_of(outer), {"n": size_of(inner)})
    assert evaluate(replaced, binding) == evaluate(size_of(outer), {**binding, "n": value})


@given(trees)
def test_symbols_are_those_of_the_text(tree: Tree) -> None:
    size = size_of(tree)
    assert set(symbols(size)) == {*NAMES} & set(re.findall(r"\w+", str(size)))


def test_equal_sizes_are_one_object() -> None:
    past, seq = sym("past"), sym("seq")
    assert past + seq is seq + past
    assert past + seq - seq is past
    assert (past + 1) * (past - 1) is past * past - 1
    assert past * seq // seq is past
    assert (4 * past + 6) // 4 is past + 1
    assert dmin(past, seq) is dmin(seq, past)
    assert past - past == 0


def test_known_identities_decide() -> None:
    past = sym("past")
    assert dmax(past + 1, past) is past + 1
    assert dmin(past, -1) == -1
    assert dmax(past, 0) is past
    assert cdiv(8 * past, 8) is past
    assert bounds(2 * past - sym("seq"), {"past": (1, 4), "seq": (0, 3)}) == (-1, 8)
    assert bounds(past) == (0, math.inf)


def test_the_pool_does_not_keep_dims_alive() -> None:
    name = "only_here"
    text = str(sym(name))
    gc.collect()
    assert text == name and sym(name) is sym(name)


@given(st.text(max_size=12))
@example("a b/c:0")
@example("lambda")
@example("x]>,(\"\\\n")
@example("ﬁ")
def test_any_name_may_name_a_symbol(name: str) -> None:
    n = sym(name)
    assert parse_size(str(n)) is n
    assert parse_size(str(4 * n // 3 + 1)) is 4 * n // 3 + 1
    assert parse_type(f"f32[{n},2]").shape == (n, 2)


def test_symbol_name() -> None:
    n = sym("n")
    assert symbol_name(n) == "n"
    assert [symbol_name(x) for x in (3, n + 1, 2 * n, n * n, dmin(n, 4))] == [None] * 5


def test_symbols_with_a_bound() -> None:
    k = sym("k", 5)
    assert k is not sym("k") and symbol_name(k) == "k" and bounds(k) == (0, 5)
    assert parse_size(str(2 * k + 1)) is 2 * k + 1
    assert dmin(k, 7) is k and dmax(k, 5) == 5
    assert dict(limits(k + sym("n"))) == {"k": 5}
    assert evaluate(k * k, {"k": 3}) == 9 and substitute(k, {"k": 2}) == 2


def test_equality_of_a_size_and_its_minimum_implies_a_bound() -> None:
    n = sym("n")
    assert implied_limit(n, dmin(n, 8)) == implied_limit(dmin(n, 8), n) == ("n", 8)
    assert implied_limit(n, dmin(n, sym("m"))) is None
    assert implied_limit(n, n) is None and implied_limit(2 * n, dmin(n, 8)) is None


def test_a_size_is_no_truth_value() -> None:
    with pytest.raises(TypeError, match="the size n is not known yet"):
        bool(sym("n"))
    with pytest.raises(TypeError):
        sym("n") < 3  # noqa: B015  # pyright: ignore


def test_a_missing_symbol_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="seq"):
        evaluate(sym("seq") + 1, {"past": 1})


@pytest.mark.parametrize("text", ["", "n+", "1.5", "n/2", "n//0", "n//-1", "f(n)", "min(n)", "b'n'",
                                  "n if n else 1", "True", "n**2", "n" * 5000, "(" * 500, "-",
                                  "min(1,2,3)", "n\0", "٣n!", "[n]", "n;m", "+" * 4000 + "n"])
def test_what_is_not_a_size_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_size(text)


@given(st.text(max_size=40) | st.text("nm0123+-*/(),min ax", max_size=60))
def test_any_text_is_a_size_or_a_parse_error(text: str) -> None:
    try:
        size = parse_size(text)
    except ParseError:
        return
    assert isinstance(size, int | Dim)
    assert parse_size(str(size)) == size
