"""Sequences and optionals: values that live on the host, see `declare.hosts` for their types.

A size that differs from element to element becomes a symbol when an element is taken out, named
after the attribute `fresh`: `{fresh}_{axis}`. Where not even the rank is known, `rank` states it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from ..declare.arrays import Array, host
from ..declare.evaluate import RegionCall
from ..declare.hosts import ANY, Elem, elem_of, hide, is_host, join_elems, sized
from ..declare.kinds import leaf, structured
from ..declare.schema import Region, known
from ..errors import OperatorError
from ..ir.dims import sym, symbols
from ..ir.graph import Graph, Value
from ..ir.types import BOOL, I64, DType, TensorType, axis_of, parse_type
from .extents import with_axis


def _f32(*numbers: float) -> Array:
    return np.asarray(numbers, np.float32)


PAIR = host([_f32(1, 2), _f32(3)])


def items(value: Array) -> list[Array]:
    """The elements of a sequence."""
    held = cast(object, value.item() if value.ndim == 0 and value.dtype == object else None)
    if not isinstance(held, list):
        raise OperatorError("a sequence is needed", hint="make one with sequence_construct")
    return cast("list[Array]", held)


def _elem(t: TensorType) -> Elem:
    return Elem(t.dtype, t)


def _taken(seq: TensorType, rank: int | None, fresh: str) -> TensorType:
    """The type of an element taken out of a sequence."""
    elem = elem_of(seq, "seq")
    if elem.type is not None:
        return elem.type if is_host(elem.type) else sized(elem.type, fresh)
    if rank is None or elem.dtype is None:
        raise OperatorError(f"the elements of {seq} have no known rank", hint="state it: rank=2")
    return sized(TensorType((ANY,) * rank, elem.dtype), fresh)


def _integer(name: str, t: TensorType | None) -> None:
    if t is not None and (t.dtype.sort not in ("int", "uint") or t.shape not in ((), (1,))):
        raise OperatorError(f"{name} must be one integer, got {t}")


def _at(position: Array | None, size: int, last: int) -> int:
    """A position counted from 0, in [-size, last]."""
    if position is None:
        return last
    i = int(position.reshape(()))
    if not -size <= i <= last:
        raise OperatorError(f"position {i} is outside -{size}..{last} of a sequence of {size}")
    return i + size if i < 0 else i


def _empty_types(*, dtype: DType) -> TensorType:
    return Elem(dtype, empty=True).host("seq")


@leaf(types=_empty_types, samples=[known(dtype="f32", expect=[host([])])])
def sequence_empty(*, dtype: DType) -> Array:
    """The sequence without elements, for elements of a dtype."""
    return host([])


def _construct_types(xs: Sequence[TensorType]) -> TensorType:
    if not xs:
        raise OperatorError("a sequence of nothing has no dtype", hint="use sequence_empty")
    elem = _elem(xs[0])
    for t in xs[1:]:
        elem = join_elems(elem, _elem(t))
    return elem.host("seq")


@structured(types=_construct_types, samples=[
    known([1.0, 2.0], [3.0], expect=[PAIR])])
def sequence_construct(xs: Sequence[Array]) -> Array:
    """The sequence of tensors of one dtype; a size in which they differ is left open."""
    return host(list(xs))


def _at_types(seq: TensorType, position: TensorType, *, rank: int | None, fresh: str
              ) -> TensorType:
    _integer("position", position)
    return _taken(seq, rank, fresh)


@structured(types=_at_types, samples=[
    known(PAIR, 0, fresh="e", expect=[[1.0, 2.0]]), known(PAIR, -1, fresh="e", expect=[[3.0]])])
def sequence_at(seq: Array, position: Array, *, rank: int | None = None, fresh: str = ""
                ) -> Array:
    """The element at a position; negative ones count from the end, outside is an error."""
    held = items(seq)
    found = held[_at(position, len(held), len(held) - 1)]
    if rank is not None and found.ndim != rank:
        raise OperatorError(f"the element has rank {found.ndim}, not {rank}")
    return found


def _insert_types(seq: TensorType, x: TensorType, *, position: TensorType | None = None
                  ) -> TensorType:
    _integer("position", position)
    return join_elems(elem_of(seq, "seq"), _elem(x)).host("seq")


@structured(types=_insert_types, samples=[
    known(PAIR, [5.0], expect=[host([_f32(1, 2), _f32(3), _f32(5)])]),
    known(PAIR, [5.0], position=-2, expect=[host([_f32(5), _f32(1, 2), _f32(3)])])])
def sequence_insert(seq: Array, x: Array, *, position: Array | None = None) -> Array:
    """The sequence with a tensor put before a position, or at the end."""
    held = list(items(seq))
    held.insert(_at(position, len(held), len(held)), x)
    return host(held)


def _erase_types(seq: TensorType, *, position: TensorType | None = None) -> TensorType:
    _integer("position", position)
    return elem_of(seq, "seq").host("seq")


@structured(types=_erase_types, samples=[
    known(PAIR, expect=[host([_f32(1, 2)])]),
    known(PAIR, position=0, expect=[host([_f32(3)])])])
def sequence_erase(seq: Array, *, position: Array | None = None) -> Array:
    """The sequence without the element at a position, or without the last one."""
    held = list(items(seq))
    del held[_at(position, len(held), len(held) - 1)]
    return host(held)


def _length_types(seq: TensorType) -> TensorType:
    elem_of(seq, "seq")
    return TensorType((), I64)


@structured(types=_length_types, samples=[known(PAIR, expect=[2])])
def sequence_length(seq: Array) -> Array:
    """The number of elements."""
    return np.asarray(len(items(seq)), np.int64)


def _split_types(x: TensorType, *, parts: TensorType | None = None, axis: int, keepdims: bool
                 ) -> TensorType:
    at = axis_of(axis, x.rank)
    if parts is not None and (parts.dtype.sort not in ("int", "uint") or parts.rank > 1):
        raise OperatorError(f"the parts must be one integer or a vector, got {parts}")
    if parts is not None:
        return _elem(x.with_(shape=with_axis(x.shape, at, ANY))).host("seq")
    one = with_axis(x.shape, at, 1) if keepdims else with_axis(x.shape, at)
    return _elem(x.with_(shape=one)).host("seq")


@structured(types=_split_types, samples=[
    known([1.0, 2.0, 3.0], parts=2, expect=[PAIR]),
    known([1.0, 2.0, 3.0], parts=[2, 1], expect=[PAIR]),
    known([1.0, 2.0], keepdims=False, expect=[host([np.float32(1), np.float32(2)])])])
def split_to_sequence(x: Array, *, parts: Array | None = None, axis: int = 0,
                      keepdims: bool = True) -> Array:
    """x cut along an axis: into parts of one size (the last may be smaller), or of given sizes.

    Without `parts` into single elements, whose axis stays only with `keepdims`.
    """
    at = axis_of(axis, x.ndim)
    size = x.shape[at]
    if parts is None:
        cut = [x.take([i] if keepdims else i, at) for i in range(size)]
        return host([np.asarray(c) for c in cut])
    given = [int(p) for p in parts.reshape(-1)]
    if any(p < (1 if parts.ndim == 0 else 0) for p in given):
        raise OperatorError(f"a part of size {min(given)}")
    if parts.ndim and sum(given) != size:
        raise OperatorError(f"the parts add up to {sum(given)}, the axis has {size}")
    ends = list(np.cumsum(given)) if parts.ndim else [
        *range(given[0], size, given[0]), *([size] if size else [])]
    return host(np.split(x, [int(e) for e in ends[:-1]], at) if ends else [])


def _concat_types(seq: TensorType, *, axis: int, new_axis: bool, rank: int | None, fresh: str
                  ) -> TensorType:
    one = _taken(seq, rank, fresh)
    at = axis_of(axis, one.rank + new_axis)
    if not fresh:
        raise OperatorError("the size along the axis depends on the run",
                            hint='name it: fresh="joined1"')
    size = sym(f"{fresh}_{'n' if new_axis else at}")
    shape = (*one.shape[:at], size, *one.shape[at + (not new_axis):])
    return one.with_(shape=shape)


@structured(types=_concat_types, samples=[
    known(PAIR, axis=0, fresh="c", expect=[[1.0, 2.0, 3.0]]),
    known(host([_f32(1, 2), _f32(3, 4)]), axis=1, new_axis=True, fresh="c",
          expect=[[[1.0, 3.0], [2.0, 4.0]]])])
def concat_from_sequence(seq: Array, *, axis: int, new_axis: bool = False,
                         rank: int | None = None, fresh: str = "") -> Array:
    """The elements joined along an axis, or stacked on a new one (ONNX ConcatFromSequence).

    The new size is the symbol `{fresh}_{axis}`, or `{fresh}_n` for a new axis.
    """
    held = items(seq)
    if not held:
        raise OperatorError("an empty sequence cannot be joined")
    if rank is not None and held[0].ndim != rank:
        raise OperatorError(f"the elements have rank {held[0].ndim}, not {rank}")
    at = axis_of(axis, held[0].ndim + new_axis)
    if len({(*a.shape[:at], *a.shape[at + (not new_axis):]) for a in held}) > 1:
        raise OperatorError("the elements have the shapes "
                            + ", ".join([str(list(a.shape)) for a in held[:8]]),
                            hint="all sizes but those joined must agree")
    return np.stack(held, axis) if new_axis else np.concatenate(held, axis)


def _map_args(xs: list[TensorType], *, fresh: str) -> list[TensorType]:
    if not xs or not xs[0].dtype.name.startswith("seq("):
        raise OperatorError("the first operand must be a sequence")
    return [_taken(t, None, f"{fresh}_{i}" if fresh else "")
            if t.dtype.name.startswith("seq(") else t for i, t in enumerate(xs)]


def _map_types(xs: list[TensorType], *, body: Graph, fresh: str) -> list[TensorType]:
    outer = {s for t in xs for d in t.shape for s in symbols(d)}
    inner = {s for v in body.inputs for d in v.type.shape for s in symbols(d)} - outer
    hidden = inner | {s for node in body.walk() for s in node.makes()}
    return [hide(_elem(v.type).host("seq"), hidden.__contains__) for v in body.outputs]


def _doubled(x: Value) -> tuple[Value]:
    return (x + x,)


@structured(types=_map_types, args=_map_args, samples=[
    known(PAIR, body=_doubled, fresh="m", expect=[host([_f32(2, 4), _f32(6)])])])
def sequence_map(xs: Sequence[Array], *, body: Region, fresh: str = "") -> tuple[Array, ...]:
    """`body(*elements)` for each position; every output is the sequence of what it gave.

    The first operand is a sequence; further ones are sequences as long, or tensors that every
    call sees. Open sizes of operand i are `{fresh}_{i}_{axis}` inside.
    """
    lists = [items(x) if x.ndim == 0 and x.dtype == object else None for x in xs]
    n = len(lists[0] or [])
    if any(c is not None and len(c) != n for c in lists):
        sizes = [len(c) for c in lists if c is not None]
        raise OperatorError(f"the sequences have lengths {', '.join(map(str, sizes))}")
    rows = [_outputs(body(*[x if c is None else c[i] for x, c in zip(xs, lists, strict=True)]))
            for i in range(n)]
    width = len(rows[0]) if rows else (
        len(body.graph.outputs) if isinstance(body, RegionCall) else 1)
    return tuple([host([r[k] for r in rows]) for k in range(width)])


def _outputs(out: object) -> Sequence[Array]:
    return cast("Sequence[Array]", out if isinstance(out, tuple | list) else (out,))


def _optional_types(x: TensorType) -> TensorType:
    return _elem(x).host("opt")


@structured(types=_optional_types, samples=[known([1.0], expect=[host(_f32(1))])])
def optional(x: Array) -> Array:
    """An optional that holds a tensor or a sequence."""
    return x if is_host_array(x) else host(x)


def is_host_array(x: Array) -> bool:
    """Whether an array carries a sequence, an optional or a map."""
    return x.dtype == object and x.ndim == 0 and not isinstance(x.item(), str)


def _none_types(*, of: str) -> TensorType:
    return _elem(parse_type(of)).host("opt")


@leaf(types=_none_types, samples=[known(of="f32[2]", expect=[host(None)])])
def optional_none(*, of: str) -> Array:
    """The empty optional that could hold a value of the type `of`, such as "f32[n,4]"."""
    return host(None)


def _has_types(x: TensorType) -> TensorType:
    return TensorType((), BOOL)


@structured(types=_has_types, samples=[
    known(host(None), expect=[False]), known(host(_f32(1)), expect=[True]),
    known([1.0], expect=[True])])
def optional_has_element(x: Array) -> Array:
    """Whether an optional holds a value; a tensor or a sequence counts as held."""
    return np.asarray(not (is_host_array(x) and x.item() is None))


def _get_types(x: TensorType, *, rank: int | None, fresh: str) -> TensorType:
    if not x.dtype.name.startswith("opt("):
        return x
    elem = elem_of(x, "opt")
    if elem.type is None:
        if rank is None or elem.dtype is None:
            raise OperatorError(f"what {x} holds has no known rank", hint="state it: rank=2")
        return sized(TensorType((ANY,) * rank, elem.dtype), fresh)
    return elem.type if is_host(elem.type) else sized(elem.type, fresh)


@structured(types=_get_types, samples=[
    known(host(_f32(1)), expect=[[1.0]]), known([1.0], expect=[[1.0]])])
def optional_get_element(x: Array, *, rank: int | None = None, fresh: str = "") -> Array:
    """What an optional holds; an empty one is an error. A tensor or sequence is itself."""
    if not is_host_array(x):
        return x
    held = cast(object, x.item())
    if held is None:
        raise OperatorError("the optional is empty", hint="ask optional_has_element first")
    return x if isinstance(held, list) else cast(Array, held)
