"""Sequences and optionals."""

from __future__ import annotations

from ....declare.hosts import elem_of
from ....declare.opdef import REGISTRY
from ....errors import Declined
from ....ir.graph import Value
from ....ir.types import HostKind, TensorType
from ..context import Context
from ..importing import RegionImporter
from ..reading import dtype_of
from ..registry import importer
from .shape import op


def _ranked(kind: HostKind, x: Value) -> None:
    """Elements of unknown rank cannot be taken out: the graph's types have ranks."""
    elem = elem_of(x.type, kind)
    if elem.type is None:
        what = "nothing" if elem.empty else f"{elem.dtype or 'tensors'} of no known rank"
        raise Declined(f"an element of {x.type}, which holds {what}",
                       hint="state the shape of the elements in the type of the graph's input")


@importer("SequenceEmpty")
def sequence_empty(ctx: Context, *, dtype: int = 1) -> Value:
    """No elements."""
    return op("sequence_empty", dtype=dtype_of(dtype, ctx.node_name))


@importer("SequenceConstruct")
def sequence_construct(ctx: Context, *xs: Value) -> Value:
    """The inputs in order."""
    return op("sequence_construct", list(xs))


@importer("SequenceAt")
def sequence_at(ctx: Context, seq: Value, position: Value) -> Value:
    """One element."""
    _ranked("seq", seq)
    return op("sequence_at", seq, position, fresh=ctx.fresh("item"))


@importer("SequenceInsert")
def sequence_insert(ctx: Context, seq: Value, x: Value, position: Value | None) -> Value:
    """An element more."""
    return op("sequence_insert", seq, x, position=position)


@importer("SequenceErase")
def sequence_erase(ctx: Context, seq: Value, position: Value | None) -> Value:
    """An element less."""
    return op("sequence_erase", seq, position=position)


@importer("SequenceLength")
def sequence_length(ctx: Context, seq: Value) -> Value:
    """The number of elements."""
    return op("sequence_length", seq)


@importer("SplitToSequence")
def split_to_sequence(ctx: Context, x: Value, split: Value | None, *, axis: int = 0,
                      keepdims: int = 1) -> Value:
    """Parts of an axis; `keepdims` speaks only where no split is given."""
    return op("split_to_sequence", x, parts=split, axis=axis, keepdims=bool(keepdims))


@importer("ConcatFromSequence")
def concat_from_sequence(ctx: Context, seq: Value, *, axis: int, new_axis: int = 0) -> Value:
    """The elements joined or stacked."""
    _ranked("seq", seq)
    return op("concat_from_sequence", seq, axis=axis, new_axis=bool(new_axis),
              fresh=ctx.fresh("joined"))


@importer("SequenceMap")
def sequence_map(ctx: Context, seq: Value, *others: Value, body: RegionImporter) -> object:
    """The body at every position."""
    return REGISTRY["sequence_map"]([seq, *others], body=body, fresh=ctx.fresh("element"))


@importer("Optional")
def optional(ctx: Context, x: Value | None, *, type_: TensorType | None = None) -> Value:
    """An optional that holds x, or an empty one of a type."""
    if x is not None:
        return op("optional", x)
    if type_ is None:
        raise Declined("an empty Optional whose type has no known rank")
    return op("optional_none", of=str(type_))


@importer("OptionalHasElement")
def optional_has_element(ctx: Context, x: Value | None) -> Value:
    """Whether an optional holds something; an absent input does not."""
    if x is None:
        return op("full", value=False, shape=(), dtype=dtype_of(9, ctx.node_name))
    return op("optional_has_element", x)


@importer("OptionalGetElement")
def optional_get_element(ctx: Context, x: Value) -> Value:
    """What an optional holds."""
    if x.dtype.name.startswith("opt("):
        _ranked("opt", x)
    return op("optional_get_element", x, fresh=ctx.fresh("held"))
