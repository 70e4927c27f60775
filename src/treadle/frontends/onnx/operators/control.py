"""If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable

from ....declare.content import content, sizes_of
from ....declare.opdef import REGISTRY, cast_value
from ....errors import Declined, ImportFailure, OperatorError
from ....ir.graph import Value
from ....ir.types import BOOL, TensorType
from ....ops.control import goes_on, holds
from ..context import Context
from ..importing import RegionImporter
from ..registry import importer
from .shape import op


@importer("If")
def if_(ctx: Context, cond: Value, *, then_branch: RegionImporter, else_branch: RegionImporter
        ) -> object:
    """One of two bodies; a condition known before the run leaves only that body."""
    if any(isinstance(n, int) and n != 1 for n in cond.shape):
        raise OperatorError(f"the condition {cond.type} must hold one element")
    known = content(cond)
    if known is not None and known.dtype != object:
        return (then_branch if bool(known.reshape(-1)[0]) else else_branch)()
    key, taken = ctx.choice()
    if taken is not None:
        return (then_branch if taken else else_branch)()
    then_branch.reached, else_branch.reached = ((cond, True),), ((cond, False),)
    try:
        return REGISTRY["if"](op("reshape", cond, shape=()), then=then_branch,
                              orelse=else_branch, fresh=ctx.fresh("if"))
    except (ImportFailure, OperatorError) as e:
        # the branch that is not taken may not fit these sizes, and a runtime never looks at it
        raise ctx.undecided(key, cond, f"the condition ({e.message})") from e


@importer("Loop")
def loop(ctx: Context, trip: Value | None, cond: Value | None, *carried: Value | None,
         body: RegionImporter) -> object:
    """Carried values and stacked outputs."""
    held = [v for v in carried if v is not None]
    if len(held) != len(carried):
        raise Declined("Loop with an absent carried value")
    count = None if trip is None else sizes_of(trip)

    def made(go: Value | None, declared: bool) -> object:
        return REGISTRY["loop"](held, trip=_scalar(trip), keep_going=_scalar(go),
                                body=_loop_body(body, go is not None, declared),
                                length=count[0] if count and go is None else None,
                                fresh=ctx.fresh("loop"))

    def either(go: Value | None) -> object:
        try:
            return made(go, False)
        except (ImportFailure, OperatorError):
            return made(go, True)  # sizes that only the file states may be what is missing

    out = either(cond)
    first = next(iter(out if isinstance(out, tuple) else (out,)), None)
    endless = isinstance(first, Value) and first.producer is not None and (
        goes_on(first.producer.regions["body"]))
    return either(None) if count and cond is not None and holds(cond) and endless else out


def _scalar(x: Value | None) -> Value | None:
    return None if x is None else op("reshape", x, shape=())


def _loop_body(body: RegionImporter, conditional: bool, declared: bool
               ) -> Callable[..., tuple[Value, ...]]:
    def run(index: Value, go: Value, *values: Value) -> tuple[Value, ...]:
        out = body(index, go, *values)
        if declared:
            out = tuple([_stated(v, body.output_type(i)) for i, v in enumerate(out)])
        flag = op("reshape", cast_value(out[0], BOOL), shape=()) if conditional else go
        return (flag, *out[1:])

    return run


def _stated(x: Value, t: TensorType | None) -> Value:
    """`x` with the numbers that its declared type gives for symbolic sizes, checked by the run."""
    if t is None or t.rank != x.type.rank or x.dtype.sort == "host":
        return x
    shape = tuple([b if isinstance(b, int) else a for a, b in zip(x.shape, t.shape, strict=True)])
    return x if shape == x.shape else op("reshape", x, shape=shape)


@importer("Scan", since=9)
def scan(ctx: Context, *operands: Value, body: RegionImporter, num_scan_inputs: int,
         scan_input_axes: tuple[int, ...] = (), scan_input_directions: tuple[int, ...] = (),
         scan_output_axes: tuple[int, ...] = (), scan_output_directions: tuple[int, ...] = ()
         ) -> object:
    """A fold over an axis."""
    if {*scan_input_directions, *scan_output_directions} - {0, 1}:
        raise Declined("a scan direction is 0 or 1")
    return REGISTRY["scan"](
        list(operands), body=body, carried=len(operands) - num_scan_inputs, axes=scan_input_axes,
        reverse=tuple(map(bool, scan_input_directions)), out_axes=scan_output_axes,
        out_reverse=tuple(map(bool, scan_output_directions)), fresh=ctx.fresh("scan"))


@importer("Scan", until=8)
def scan_8(ctx: Context, lengths: Value | None, *operands: Value, body: RegionImporter,
           num_scan_inputs: int, directions: tuple[int, ...] = ()) -> object:
    """The batched form: every operand has a batch axis in front; all sequences are whole."""
    if lengths is not None:
        raise Declined("Scan 8 with sequence_lens", hint="re-export with opset 9 or later")
    batch = ctx.known(operands[0].shape[0], "the batch size")
    carried = len(operands) - num_scan_inputs
    rows: list[tuple[Value, ...]] = []
    for b in range(batch):
        here = [op("squeeze", op("narrow", v, axis=0, start=b, length=1), axes=(0,))
                for v in operands]
        out = REGISTRY["scan"](here, body=body, carried=carried,
                               reverse=tuple(map(bool, directions)), fresh=ctx.fresh("scan"))
        rows.append(out if isinstance(out, tuple) else (out,))  # type: ignore[arg-type]
    return [op("concat", [op("unsqueeze", r[i], axes=(0,)) for r in rows], axis=0)
            for i in range(len(rows[0]))]


