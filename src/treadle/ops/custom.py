"""Operators of the user's own, known by name, whose meaning is a NumPy function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np

from ..declare.arrays import Array
from ..declare.kinds import structured
from ..declare.schema import known, misfit
from ..errors import DeclarationError, Declined, OperatorError
from ..ir.graph import Value
from ..ir.types import TensorType
from ..records import dataclass

Item: TypeAlias = "int | float | bool | str | None | tuple[Item, ...]"
Pairs: TypeAlias = tuple[tuple[Item, ...], ...]
Body: TypeAlias = Callable[..., "Array | tuple[Array, ...]"]
Types: TypeAlias = Callable[..., "TensorType | Sequence[TensorType]"]
Vjp: TypeAlias = Callable[..., "Value | Sequence[Value | None]"]


@dataclass(frozen=True, slots=True)
class Custom:
    """A user operator: its body on arrays, its type rule, and its derivative if it has one."""

    body: Body
    types: Types
    vjp: Vjp | None = None


_table: dict[str, Custom] = {}


def register_custom(name: str, body: Body, *, types: Types, vjp: Vjp | None = None) -> None:
    """Give the operator `custom(.., name=name)` its meaning.

    `body(*arrays, **attrs)` returns an array or a tuple; `types(*types, **attrs)` the output
    types; `vjp(*cotangents, *operands, **attrs)` one value or None for each operand, made with
    operators. Registering a name again replaces what it meant.
    """
    if not name:
        raise DeclarationError("a custom operator needs a name")
    _table[name] = Custom(body, types, vjp)


def _find(name: str) -> Custom:
    if (found := _table.get(name)) is None:
        raise OperatorError(f"no custom operator is called '{name}'",
                            hint="register_custom(name, body, types=rule) before it is used")
    return found


def _keywords(attrs: Pairs) -> dict[str, Item]:
    if any(len(p) != 2 or not isinstance(p[0], str) for p in attrs):
        raise OperatorError("attrs holds pairs of a name and a value")
    return {cast(str, k): v for k, v in attrs}


def _custom_types(xs: Sequence[TensorType], *, name: str, attrs: Pairs) -> Sequence[TensorType]:
    if problem := misfit(rule := _find(name).types, *xs, **_keywords(attrs)):
        raise OperatorError(f"the custom operator '{name}' is called wrongly: {problem}")
    out = rule(*xs, **_keywords(attrs))
    return (out,) if isinstance(out, TensorType) else tuple(out)


def _custom_back(*gs: Value, name: str, attrs: Pairs) -> Sequence[Value | None]:
    if (vjp := _find(name).vjp) is None:
        raise Declined(f"the custom operator '{name}' has no derivative",
                       hint="pass vjp= to register_custom")
    out = vjp(*gs, **_keywords(attrs))
    return (out,) if isinstance(out, Value) else out


def _scaled(x: Array, *, by: float) -> Array:
    return x * np.asarray(by, x.dtype)


def _scaled_type(x: TensorType, *, by: float) -> TensorType:
    if x.dtype.sort != "float":
        raise OperatorError(f"floats are needed, got {x}")
    return x


def _scaled_back(g: Value, x: Value, *, by: float) -> Value:
    return g * by


register_custom("treadle.scaled", _scaled, types=_scaled_type, vjp=_scaled_back)


@structured(types=_custom_types, vjp=_custom_back, samples=[
    known([1.0, -2.0], name="treadle.scaled", attrs=(("by", 3.0),), expect=[[3.0, -6.0]])])
def custom(xs: Sequence[Array], *, name: str, attrs: tuple[tuple[
        int | float | bool | str | None | tuple[int | float | bool | str, ...], ...], ...] = ()
        ) -> tuple[Array, ...]:
    """The user operator `name`, which `register_custom` gave a body.

    `attrs` is pairs of a name and a value, passed to its body and rules as keywords.
    """
    out = _find(name).body(*xs, **_keywords(attrs))
    return out if isinstance(out, tuple) else (out,)
