"""Parts of type inference that need no operator table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from ..errors import OperatorError
from ..ir.graph import Attrs, Builder, Graph, Value
from ..ir.types import MOST_AXES, TensorType, axes_of
from .schema import misfit


def checked(types: Sequence[TensorType]) -> Sequence[TensorType]:
    """`types`, unless no array can be of one: of negative size, of too many axes."""
    for t in types:
        if len(t.shape) > MOST_AXES:
            raise OperatorError(f"the result would have {len(t.shape)} axes; "
                                f"at most {MOST_AXES} are possible")
        if t.shape and t.dtype.sort == "host":
            raise OperatorError(f"tensors are needed; a value of {t.dtype} has no axes")
        for d in t.shape:
            if d.__class__ is int and cast(int, d) < 0:
                raise OperatorError(f"the result {t} would have a negative size")
    return types


def trace_region(name: str, body: Callable[..., object], types: Sequence[TensorType],
                 builder: Builder) -> Graph:
    """The graph of a closure on values of these types."""
    if problem := misfit(body, *types):
        raise OperatorError(f"the region '{name}' is given {len(types)} values: {problem}")
    with Builder(name, builder.expand) as inner:
        inner.loc = builder.loc
        operands = [inner.input(f"a{i}", t) for i, t in enumerate(types)]
        return inner.finish(cast("Sequence[Value]", body(*operands)))


def reduction_type(x: TensorType, *, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    """The type rule of reductions that keep the dtype."""
    at = axes_of(axes, x.rank)
    if keepdims:
        return x.with_(shape=tuple(1 if i in at else s for i, s in enumerate(x.shape)))
    return x.with_(shape=tuple(s for i, s in enumerate(x.shape) if i not in at))


def attr_key(attrs: Attrs) -> tuple[object, ...]:
    """Attributes as a cache key; the texts keep 1, 1.0 and true, and the two zeros, apart."""
    return tuple([(k, v, repr(v)) for k, v in attrs.items()])
