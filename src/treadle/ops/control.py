"""Control flow: operators whose regions are traced from closures.

A closure takes and returns graph values and reads others by capture. It may be traced more than
once, so it must not remember what it made. Sizes that a region makes, and sizes that differ
between branches or from one iteration to the next, appear in the result as new symbols named
after the attribute `fresh`, which must be unique in the graph: `{fresh}_{output}_{axis}`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np

from ..declare.arrays import Array
from ..declare.content import content
from ..declare.evaluate import RegionCall
from ..declare.hosts import hide, is_host, join
from ..declare.kinds import structured
from ..declare.schema import Region, known
from ..errors import OperatorError
from ..ir.dims import Size, sym, symbols
from ..ir.graph import Graph, Value
from ..ir.types import BOOL, I64, Shape, TensorType, axis_of
from .leaves import full

Arrays: TypeAlias = "tuple[Array, ...]"


def _arrays(out: object) -> list[Array]:
    """What a region gave, as a list; a closure on arrays may return one array."""
    items = cast("Sequence[object]", out) if isinstance(out, tuple | list) else (out,)
    return [cast(Array, x) if isinstance(x, np.ndarray) else np.asarray(x) for x in items]


def _inner_symbols(region: Graph) -> set[str]:
    """Symbols that only a run of the region binds."""
    return {s for node in region.walk() for s in node.makes()}


def _new_size(fresh: str, tag: str, what: str) -> Size:
    if not fresh:
        raise OperatorError(f"{what}", hint='give the new size a name: fresh="loop1"')
    return sym(f"{fresh}_{tag}")


def _merge(a: TensorType, b: TensorType, hidden: set[str], fresh: str, index: int) -> TensorType:
    """The type of a value that is an `a` or a `b`; `hidden` symbols do not leave the regions."""
    if is_host(a) or is_host(b):
        return hide(join(a, b), lambda s: s in hidden or bool(fresh) and s.startswith(fresh + "_"))
    if a.dtype is not b.dtype or a.rank != b.rank:
        raise OperatorError(f"output {index} is {a} or {b}: dtype and rank must stay the same")
    return a.with_(shape=tuple([
        x if x == y and hidden.isdisjoint(symbols(x)) else _new_size(
            fresh, f"{index}_{axis}", f"output {index} is {a} or {b}")
        for axis, (x, y) in enumerate(zip(a.shape, b.shape, strict=True))]))


def _flag(t: TensorType, what: str) -> None:
    if t.dtype is not BOOL or t.shape not in ((), (1,)):
        raise OperatorError(f"{what} must be bool[], got {t}", hint="where() selects by element")


def _if_types(pred: TensorType, *, then: Graph, orelse: Graph, fresh: str
              ) -> tuple[TensorType, ...]:
    _flag(pred, "the predicate")
    if len(then.outputs) != len(orelse.outputs):
        raise OperatorError(f"the branches give {len(then.outputs)} and {len(orelse.outputs)} "
                            "outputs")
    hidden = _inner_symbols(then) | _inner_symbols(orelse)
    return tuple([_merge(a.type, b.type, hidden, fresh, i) for i, (a, b) in enumerate(
        zip(then.outputs, orelse.outputs, strict=True))])


def _const(value: float) -> Callable[[], Value]:
    def make() -> Value:
        return full(value=value, shape=(), dtype=I64)

    return make


@structured(types=_if_types, samples=[
    known(np.asarray(True), then=_const(1), orelse=_const(2), expect=[1]),
    known(np.asarray([False]), then=_const(1), orelse=_const(2), expect=[2])])
def if_(pred: Array, *, then: Region, orelse: Region, fresh: str = "") -> Arrays:
    """Run the closure `then()` when `pred` (bool, one element) holds, else `orelse()`.

    Both give the same number of outputs, of the same dtypes and ranks. A size that differs
    between the branches is a new symbol (see the module). Sequences are joined.
    """
    return tuple(_arrays(then() if bool(pred.reshape(())) else orelse()))


def _loop_args(carried: list[TensorType], *, trip: TensorType | None = None,
               keep_going: TensorType | None = None, length: Size | None = None,
               fresh: str = "") -> list[TensorType]:
    return [TensorType((), I64), TensorType((), BOOL), *carried]


def _settled(held: Sequence[Value], made: Sequence[Value], body: Graph, fresh: str
             ) -> list[TensorType]:
    """Carried types in which a size that an iteration changes is a new symbol."""
    hidden = _inner_symbols(body)
    out = list[TensorType]()
    for i, (v, w) in enumerate(zip(held, made, strict=True)):
        own = {f"{fresh}_{i}_{axis}" for axis in range(v.type.rank)}
        masked = w.type if is_host(w.type) or w.type.rank != v.type.rank else w.type.with_(
            shape=tuple([a if own & {*symbols(a)} else b for a, b in zip(
                v.type.shape, w.type.shape, strict=True)]))
        out.append(_merge(v.type, masked, hidden, fresh, i))
    return out


def _loop_settle(body: Graph, *, length: Size | None, fresh: str) -> list[TensorType]:
    n = len(body.inputs) - 2
    if len(body.outputs) < n + 1:
        raise OperatorError(f"the body gives {len(body.outputs)} outputs for {n} carried values",
                            hint="it returns the condition, the carried values and what to stack")
    _flag(body.outputs[0].type, "the body's first output")
    return [*[v.type for v in body.inputs[:2]],
            *_settled(body.inputs[2:], body.outputs[1:n + 1], body, fresh)]


def _covers(inside: TensorType, given: TensorType, index: int) -> None:
    """The type inside the region must admit the value that enters it."""
    if is_host(given):
        if join(given, inside) != inside:
            raise OperatorError(f"carried value {index} is {given}, the body takes {inside}")
    elif inside.dtype is not given.dtype or inside.rank != given.rank:
        raise OperatorError(f"carried value {index} is {given}, the body takes {inside}")


def _stacked(body: Graph, first: int, lead: Size, carried: Sequence[TensorType], fresh: str
             ) -> list[TensorType]:
    """Types of the stacked outputs; sizes that belong to one iteration are renamed."""
    outer = {s for t in carried for d in t.shape for s in symbols(d)}
    hidden = _inner_symbols(body) | (
        {s for v in body.inputs for d in v.type.shape for s in symbols(d)} - outer)
    out = list[TensorType]()
    for i, v in enumerate(body.outputs[first:], first):
        if is_host(v.type):
            raise OperatorError(f"the body's output {i} is {v.type}; only tensors stack",
                                hint="carry the sequence instead")
        one = _merge(v.type, v.type, hidden, fresh, i)
        out.append(one.with_(shape=(lead, *one.shape)))
    return out


def _loop_types(carried: list[TensorType], *, trip: TensorType | None = None,
                keep_going: TensorType | None = None, body: Graph, length: Size | None,
                fresh: str) -> list[TensorType]:
    if trip is not None and (trip.dtype.sort not in ("int", "uint")
                             or trip.shape not in ((), (1,))):
        raise OperatorError(f"the trip count must be one integer, got {trip}")
    if keep_going is not None:
        _flag(keep_going, "the condition")
    elif trip is None:
        raise OperatorError("a loop without a trip count and without a condition never ends")
    inside = _loop_settle(body, length=length, fresh=fresh)[2:]
    for i, (t, given) in enumerate(zip(inside, carried, strict=True)):
        _covers(t, given, i)
    first = len(carried) + 1
    if len(body.outputs) == first:
        return inside
    lead = length if length is not None else _new_size(
        fresh, "n", "the number of stacked values depends on the run")
    return [*inside, *_stacked(body, first, lead, carried, fresh)]


def _stack(items: Sequence[Array], body: Region, index: int, axis: int = 0) -> Array:
    """Per-iteration values as one tensor; without any, an empty one of the region's type."""
    if not items:
        one = body.blank(index) if isinstance(body, RegionCall) else np.zeros(())
        return np.zeros((*one.shape[:axis], 0, *one.shape[axis:]), one.dtype)
    if len({x.shape for x in items}) > 1:
        shapes = [list(x.shape) for x in items if x.shape != items[0].shape]
        raise OperatorError(f"output {index} of the body was {list(items[0].shape)} first and "
                            f"{shapes[0]} later; stacked values keep their shape")
    return np.stack(items, axis)


def _double(i: Value, go: Value, x: Value) -> tuple[Value, ...]:
    return go, x + x, x


@structured(types=_loop_types, args=_loop_args, settle=_loop_settle, samples=[
    known([1.0], trip=np.asarray(3), body=_double, length=3,
          expect=[[8.0], [[1.0], [2.0], [4.0]]])])
def loop(carried: Sequence[Array], *, trip: Array | None = None, keep_going: Array | None = None,
         body: Region, length: Size | None = None, fresh: str = "") -> Arrays:
    """ONNX Loop: `body(i, go, *carried) -> (go, *carried, *stacked)` while it may go on.

    It stops after `trip` iterations, or when `keep_going` or the body's first output is false;
    the latter counts only when `keep_going` is given. Outputs are the final carried values, then
    what the iterations stacked on a new axis 0, of size `length` when that is known beforehand
    (another number at run time is an error), else of size `{fresh}_n`. A carried size that the
    body changes is the symbol `{fresh}_{carried}_{axis}`, inside and after the loop.
    """
    limit = None if trip is None else int(trip.reshape(()))
    go = keep_going is None or bool(keep_going.reshape(()))
    held, n, rows, i = list(carried), len(carried), list[list[Array]](), 0
    while go and (limit is None or i < limit) and i != length:
        out = _arrays(body(np.asarray(i, np.int64), np.asarray(go), *held))
        go = keep_going is None or bool(out[0].reshape(()))
        held = out[1:n + 1]
        rows.append(out[n + 1:])
        i += 1
    if length is not None and (i != length or go and (limit is None or i < limit)):
        raise OperatorError(f"the loop ran {i} times{' and goes on' * (i == length)}, not {length}")
    width = len(rows[0]) if rows else (
        len(body.graph.outputs) - n - 1 if isinstance(body, RegionCall) else 0)
    return (*held, *[_stack([r[k] for r in rows], body, n + 1 + k) for k in range(width)])


def holds(flag: Value) -> bool:
    """Whether a condition is known to be true."""
    found = content(flag)
    return found is not None and found.dtype != object and bool(found.reshape(-1)[0])


def goes_on(body: Graph) -> bool:
    """Whether the body of a loop never ends it."""
    flag = body.outputs[0]
    while flag.producer is not None and flag.producer.op in ("identity", "reshape"):
        flag = flag.producer.inputs[0]
    return flag is body.inputs[1] or holds(flag)


def _while_args(carried: list[TensorType], *, max_iterations: int | None, fresh: str
                ) -> list[TensorType]:
    return carried


def _while_settle(body: Graph, *, max_iterations: int | None, fresh: str) -> list[TensorType]:
    if len(body.outputs) != len(body.inputs):
        raise OperatorError(f"the body gives {len(body.outputs)} outputs for "
                            f"{len(body.inputs)} carried values")
    return _settled(body.inputs, body.outputs, body, fresh)


def _while_types(carried: list[TensorType], *, body: Graph, cond: Graph,
                 max_iterations: int | None, fresh: str) -> list[TensorType]:
    if len(cond.outputs) != 1:
        raise OperatorError(f"the condition gives {len(cond.outputs)} outputs, not one")
    _flag(cond.outputs[0].type, "the condition")
    inside = _while_settle(body, max_iterations=max_iterations, fresh=fresh)
    for i, (t, given) in enumerate(zip(inside, carried, strict=True)):
        _covers(t, given, i)
    return inside


def _twice(x: Value) -> tuple[Value]:
    return (x + x,)


def _small(x: Value) -> Value:
    return x < 100.0


@structured(types=_while_types, args=_while_args, settle=_while_settle, samples=[
    known(1.0, body=_twice, cond=_small, expect=[128.0]),
    known(1.0, body=_twice, cond=_small, max_iterations=2, expect=[4.0])])
def while_(carried: Sequence[Array], *, body: Region, cond: Region,
           max_iterations: int | None = None, fresh: str = "") -> Arrays:
    """Repeat `carried = body(*carried)` while `cond(*carried)` holds; gives the last values.

    `max_iterations` bounds the number of runs. Sizes that change are named as in `loop`.
    """
    held, i = list(carried), 0
    while (max_iterations is None or i < max_iterations) and bool(
            _arrays(cond(*held))[0].reshape(())):
        held = _arrays(body(*held))
        i += 1
    return tuple(held)


def _axis(axes: Sequence[int], i: int, rank: int) -> int:
    return axis_of(axes[i], rank) if axes else 0


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1:])


def _check_flags(n: int, carried: int, axes: Sequence[int], reverse: Sequence[bool]) -> None:
    if not 0 <= carried <= n:
        raise OperatorError(f"{carried} carried values of {n} operands")
    for what, flags in (("axes", axes), ("reverse", reverse)):
        if len(flags) not in (0, n - carried):
            raise OperatorError(f"{what} has {len(flags)} entries for {n - carried} scanned "
                                "operands")


def _scan_args(operands: list[TensorType], *, carried: int, length: Size | None,
               axes: tuple[int, ...], reverse: tuple[bool, ...], out_axes: tuple[int, ...],
               out_reverse: tuple[bool, ...], fresh: str) -> list[TensorType]:
    _check_flags(len(operands), carried, axes, reverse)
    xs = operands[carried:]
    if any(t.rank == 0 for t in xs):
        raise OperatorError("a scanned operand has no axis to scan")
    return [*operands[:carried], *[
        t.with_(shape=_without(t.shape, _axis(axes, i, t.rank))) for i, t in enumerate(xs)]]


def _scan_length(xs: Sequence[TensorType], axes: tuple[int, ...], length: Size | None) -> Size:
    found = [t.shape[_axis(axes, i, t.rank)] for i, t in enumerate(xs)]
    found += [length] if length is not None else []
    if not found:
        raise OperatorError("a scan without scanned operands needs `length`")
    if any(n != found[0] for n in found):
        raise OperatorError(f"the scanned axes have sizes {', '.join(map(str, found))}")
    return found[0]


def _scan_types(operands: list[TensorType], *, body: Graph, carried: int, length: Size | None,
                axes: tuple[int, ...], reverse: tuple[bool, ...], out_axes: tuple[int, ...],
                out_reverse: tuple[bool, ...], fresh: str) -> list[TensorType]:
    n = _scan_length(operands[carried:], axes, length)
    made = [v.type for v in body.outputs]
    for i, t in enumerate(operands[:carried]):
        if i >= len(made) or made[i] != t:
            got = made[i] if i < len(made) else "nothing"
            raise OperatorError(f"carried value {i} is {t}, the body makes {got} of it",
                                hint="loop() admits carried values that change their shape")
    ys = _stacked(body, carried, n, operands, fresh)
    _check_flags(len(made), carried, out_axes, out_reverse)
    return [*operands[:carried], *[
        t.with_(shape=_insert(t.shape[1:], _axis(out_axes, i, t.rank), n))
        for i, t in enumerate(ys)]]


def _insert(shape: Shape, axis: int, size: Size) -> Shape:
    return (*shape[:axis], size, *shape[axis:])


def _running(carry: Value, x: Value) -> tuple[Value, Value]:
    return carry + x, carry * x


@structured(types=_scan_types, args=_scan_args, samples=[
    known([1.0, 2.0], [[1.0, 1.0], [2.0, 0.5], [3.0, 0.25]], body=_running, carried=1,
          expect=[[7.0, 3.75], [[1.0, 2.0], [4.0, 1.5], [12.0, 0.875]]]),
    known([1.0], [[1.0, 2.0]], body=_running, carried=1, axes=(1,), reverse=(True,),
          out_axes=(-1,), out_reverse=(True,), expect=[[4.0], [[3.0, 2.0]]])])
def scan(operands: Sequence[Array], *, body: Region, carried: int, length: Size | None = None,
         axes: tuple[int, ...] = (), reverse: tuple[bool, ...] = (),
         out_axes: tuple[int, ...] = (), out_reverse: tuple[bool, ...] = (), fresh: str = ""
         ) -> Arrays:
    """Fold `body(*carry, *slices) -> (*carry, *ys)` over an axis; the shape of ONNX Scan.

    The first `carried` operands start the carry, the others are cut along `axes` (0 unless
    given), backwards where `reverse`. Outputs are the last carry and every y stacked on its
    `out_axes`, from the end where `out_reverse`. `length` is needed when nothing is cut. All
    shapes stay the same; ys whose sizes the body makes are named as in `loop`.
    """
    held, xs = list(operands[:carried]), operands[carried:]
    cut = [np.moveaxis(x, _axis(axes, i, x.ndim), 0) for i, x in enumerate(xs)]
    cut = [x[::-1] if reverse and reverse[i] else x for i, x in enumerate(cut)]
    n = len(cut[0]) if cut else int(cast(int, length))
    if (short := [len(x) for x in cut if len(x) != n]):
        raise OperatorError(f"the scanned axes have sizes {n} and {short[0]}")
    rows = list[list[Array]]()
    for i in range(n):
        out = _arrays(body(*held, *[x[i] for x in cut]))
        held = out[:carried]
        rows.append(out[carried:])
    width = len(rows[0]) if rows else (
        len(body.graph.outputs) - carried if isinstance(body, RegionCall) else 0)
    return (*held, *[_restack(rows, body, carried, k, out_axes, out_reverse)
                     for k in range(width)])


def _restack(rows: Sequence[list[Array]], body: Region, carried: int, k: int,
             out_axes: Sequence[int], out_reverse: Sequence[bool]) -> Array:
    items = [r[k] for r in (rows[::-1] if out_reverse and out_reverse[k] else rows)]
    rank = items[0].ndim if items else (
        body.blank(carried + k).ndim if isinstance(body, RegionCall) else 0)
    return _stack(items, body, carried + k, _axis(out_axes, k, rank + 1))
