"""Signatures read as schemas, and the errors of wrong declarations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Literal, cast

import numpy as np
import pytest

from treadle.declare.arrays import blob
from treadle.declare.kinds import composite, elementwise, structured
from treadle.declare.scalar import Scalar
from treadle.declare.schema import (
    MISSING,
    AttrSpec,
    Region,
    Tensor,
    canonical,
    check_rule,
    checker,
    read_schema,
    sample,
)
from treadle.errors import DeclarationError, OperatorError
from treadle.ir.dims import Size, sym
from treadle.ir.graph import Value
from treadle.ir.types import F32, DType, Shape, TensorType
from treadle.ops.library import REGISTRY

ONE = [sample("f32[2]")]


def _rich(q: Value, k: Value, *, mask: Tensor | None = None, body: Region, scale: float | None,
          axes: tuple[int, ...] = (), shape: Shape, mode: Literal["a", "b"] = "a",
          dtype: DType = F32) -> Value:
    return q


def _many(first: Value, rest: Sequence[Value], *, axis: int = 0) -> Value:
    return first


def _schema(fn: Callable[..., object]) -> object:
    return read_schema(cast(FunctionType, fn))


def test_a_signature_is_the_schema() -> None:
    s = read_schema(cast(FunctionType, _rich))
    assert s.operands == ("q", "k") and not s.variadic
    assert s.optional == ("mask",) and s.regions == ("body",)
    assert list(s.attrs) == ["scale", "axes", "shape", "mode", "dtype"]
    assert s.attrs["scale"].default is MISSING and s.attrs["axes"].default == ()
    assert s.keywords == {"mask", "body", "scale", "axes", "shape", "mode", "dtype"}


def test_a_last_sequence_is_variadic() -> None:
    s = read_schema(cast(FunctionType, _many))
    assert s.variadic and s.operands == ("first", "rest")


def _spec(annotation: str) -> AttrSpec:
    kinds = annotation.split(" | ")
    return AttrSpec("a", annotation, MISSING, checker(annotation),
                    "float" in kinds and "int" not in kinds)


@pytest.mark.parametrize(("annotation", "value", "want"), [
    ("int", np.int64(3), 3), ("float", 3, 3.0), ("float", np.float32(0.5), 0.5),
    ("float | None", None, None), ("bool", np.bool_(True), True), ("str", "x", "x"),
    ("tuple[int, ...]", [1, np.int32(2)], (1, 2)), ("Size", sym("n"), sym("n")),
    ("Shape", [2, sym("n") + 1], (2, sym("n") + 1)), ("DType", F32, F32),
    ('Literal["a", "b"]', "b", "b"), ("Literal[0, 1]", 1, 1), ("complex", 1j, 1j),
    ("tuple[tuple[int, ...], ...]", [[1], []], ((1,), ())),
    ("tuple[int, ...] | None", None, None)])
def test_attributes_are_brought_to_canonical_form(annotation: str, value: object, want: object
                                                  ) -> None:
    got = _spec(annotation).coerce(value)
    assert got == want and got.__class__ is want.__class__


def test_an_array_becomes_a_blob() -> None:
    data = np.arange(3, dtype="i4")
    assert _spec("Blob").coerce(data) == blob(data)


@pytest.mark.parametrize(("annotation", "value"), [
    ("int", 1.0), ("int", True), ("float", "1"), ("float", True), ("bool", 1), ("str", None),
    ("tuple[int, ...]", 3), ("tuple[int, ...]", (1, 2.0)), ("Size", 1.5), ("Shape", (1, "n")),
    ("DType", "f32"), ('Literal["a", "b"]', "c"), ("float | None", "none"), ("Blob", 3),
    ("tuple[tuple[int, ...], ...]", (1,)), ('Literal["a", "b"]', ["a"])])
def test_other_values_are_errors(annotation: str, value: object) -> None:
    with pytest.raises(OperatorError, match="^attribute a=.* is not "):
        _spec(annotation).coerce(value)


def test_canonical_reaches_inside() -> None:
    assert canonical([np.int8(1), [np.float64(2.5), "x"]]) == (1, (2.5, "x"))


@pytest.mark.parametrize("annotation", ["dict[str, int]", "list[int]", "Value", "object",
                                        "tuple[int, int]", "int | list[int]", "Sequence[int]"])
def test_unknown_annotations_are_errors(annotation: str) -> None:
    with pytest.raises(DeclarationError, match="attributes cannot be"):
        checker(annotation)


def _no_annotation(x: Value, *, k) -> Value:  # noqa: ANN001  # pyright: ignore
    """Doc."""
    return x


def _default(x: Value, y: int = 3) -> Value:
    """Doc."""
    return x


def _star(*xs: Value) -> Value:
    """Doc."""
    return xs[0]


def _first_sequence(xs: Sequence[Value], y: Value) -> Value:
    """Doc."""
    return y


def _bad_attribute(x: Value, *, k: dict[str, int]) -> Value:
    """Doc."""
    return x


SIGNATURES = {
    "annotation": (_no_annotation, "_no_annotation: attribute 'k' has no annotation"),
    "default": (_default, "_default: operands have no defaults and no star\n  help: optional "
                          "ones are keyword-only"),
    "star": (_star, "_star: operands have no defaults and no star"),
    "sequence": (_first_sequence, "_first_sequence: only the last operand may be a Sequence"),
    "attribute": (_bad_attribute, "_bad_attribute: attribute 'k': attributes cannot be dict[str, "
                                  "int]\n  help: use int, float"),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_wrong_signatures_are_errors(name: str) -> None:
    fn, want = SIGNATURES[name]
    with pytest.raises(DeclarationError) as e:
        _schema(fn)
    assert str(e.value).startswith(want), str(e.value)


def _undocumented(x: Scalar) -> Scalar:
    return x


def _documented(x: Scalar) -> Scalar:
    """Doc."""
    return x


def _twice(x: Scalar) -> Scalar:
    """Doc."""
    return x


def _with_scale(x: Value, *, scale: float) -> Value:
    """Doc."""
    return x


def _deaf_types(x: TensorType) -> TensorType:
    return x


def _eager_types(x: TensorType, y: TensorType, *, scale: float) -> TensorType:
    return x


def _surplus_types(x: TensorType, *, scale: float, cap: float) -> TensorType:
    return x



_twice.__name__ = "add"
DECLARATIONS: dict[str, tuple[Callable[[], object], str]] = {
    "doc": (lambda: elementwise(samples=ONE)(_undocumented), "_undocumented: no docstring"),
    "samples": (lambda: elementwise(samples=[])(_documented), "_documented: no samples\n  help: "
                'give one, such as samples=[sample("f32[4,8]")]'),
    "twice": (lambda: elementwise(samples=ONE)(_twice), "add: declared twice\n  help: the first "
              "is in treadle.ops.arithmetic"),
    "deaf rule": (lambda: structured(types=_deaf_types, samples=ONE)(_with_scale),  # type: ignore[arg-type]
                  "_with_scale: types rule _deaf_types lacks scale\n  help: take every attribute "
                  "by name; decline what you cannot do"),
    "surplus rule": (lambda: structured(types=_surplus_types, samples=ONE)(_with_scale),  # type: ignore[arg-type]
                     "_with_scale: types rule _surplus_types does not know cap"),
    "operands": (lambda: structured(types=_eager_types, samples=ONE)(_with_scale),  # type: ignore[arg-type]
                 "_with_scale: types rule _eager_types takes 2 operands, not 1"),
    "composite": (lambda: composite(samples=[])(_with_scale), "_with_scale: no samples"),
}


@pytest.mark.parametrize("name", DECLARATIONS)
def test_wrong_declarations_are_errors(name: str) -> None:
    build, want = DECLARATIONS[name]
    before = set(REGISTRY)
    with pytest.raises(DeclarationError) as e:
        build()
    assert str(e.value).startswith(want), str(e.value)
    assert set(REGISTRY) == before


def test_rules_may_be_called_with_leading_arguments() -> None:
    def back(g: Value, x: Value, *, scale: float) -> Value:
        return g

    schema = read_schema(cast(FunctionType, _with_scale))
    check_rule("op", "vjp rule", back, 1, schema)
    with pytest.raises(DeclarationError, match="takes 2 operands, not 3"):
        check_rule("op", "vjp rule", back, 2, schema)


def test_sizes_are_no_floats() -> None:
    """`float | Size` keeps integers exact."""
    def range_(*, start: float | Size) -> Value:
        raise NotImplementedError

    assert read_schema(cast(FunctionType, range_)).attrs["start"].coerce(3).__class__ is int
