"""Copies of A and B into scratch memory, converted and laid out as tiles read them."""

from __future__ import annotations

from collections.abc import Callable

from ....codegen.llvm.text import I32, I64, PTR, VOID, Function, Index, Module, Type, Value
from .integer import IntegerPlan, stage_integer
from .spec import Matmul, Place
from .tiles import Tile


def transpose(f: Function, rows: list[Value]) -> list[Value]:
    """The transpose of a square of vectors: each stage interleaves halves."""
    lanes = len(rows)
    for _ in range(lanes.bit_length() - 1):
        half, turned = lanes // 2, []
        for a, b in zip(rows[:half], rows[half:], strict=True):
            for start in (0, half):
                order = [start + j // 2 + (lanes if j % 2 else 0) for j in range(lanes)]
                turned.append(f.shuffle(a, b, order))
        rows = turned
    return rows


def vector_loop(f: Function, count: Index, lanes: int,
                body: Callable[[Value, int], None]) -> None:
    """`body(index, width)` over `count` items: full vectors, then single items."""
    items = f.constant(I64, count)
    whole = items & -lanes
    with f.loop(0, whole, lanes) as at:
        body(at.index, lanes)
    with f.loop(whole, items) as at:
        body(at.index, 1)


def stage_function(module: Module, spec: Matmul, tile: Tile,
                   plan: IntegerPlan | None = None) -> Function:
    """Copies a block of A, keeping its orientation: `outer` lines of `inner` items.

    Parameters: source, target, outer, inner, their line distances, the block's first row and
    column, then the prologue's operands (columns of A and rows of A already offset), for small
    8-bit numbers the order of k or null.
    """
    staged = plan.staged if plan else spec.accumulator
    sign = f"_{int(spec.a_signed)}{int(plan.flip)}{int(spec.small)}" if plan else ""
    name = f"stage_{spec.a.mangled}_{staged.mangled}_{int(spec.a_transposed)}{sign}" + (
        f"_{spec.prologue.key}" if spec.prologue else "")
    if name in module.functions:
        return module.functions[name]
    extras = spec.prologue.operands if spec.prologue else ()
    f = module.function(name, VOID, [
        ("source", PTR), ("target", PTR), *((n, I64) for n in (
            "outer", "inner", "source_line", "target_line", "row", "column")),
        *((f"x{j}", PTR) for j in range(len(extras))), *([("order", PTR)] if spec.small else [])])
    if plan is not None and spec.small:
        _stage_in_order(f, spec, plan)
    else:
        _stage_items(f, spec, staged, tile.lanes, plan)
    return f


def _stage_items(f: Function, spec: Matmul, staged: Type, lanes: int, plan: IntegerPlan | None
                 ) -> None:
    source, target, outer, inner, source_line, target_line, row, column, *operands = f.args
    with f.loop(0, outer) as line:
        at = f.address(source, line.index * source_line, spec.a)
        to = f.address(target, line.index * target_line, staged)

        def item(index: Value, width: int) -> None:
            value = f.load(spec.a.vector(width), at, index)
            value = (stage_integer(f, value, plan, spec.a_signed) if plan
                     else f.convert(value, staged))
            if spec.prologue is not None:
                along, across = (index, line.index)
                r, c = (along, across) if spec.a_transposed else (across, along)
                values = [_operand(f, spec, j, p, r, c, width) for j, p in enumerate(operands)]
                value = spec.prologue.emit(f, value, values, Place(row + r, column + c))
            f.store(value, to, index)

        vector_loop(f, inner, lanes, item)
    f.give()


def _stage_in_order(f: Function, spec: Matmul, plan: IntegerPlan) -> None:
    """The columns of A as B's order of k names them, as they come if that is null."""
    source, target, outer, inner, source_line, target_line, _, _, order = f.args
    natural = f.compare("eq", f.cast("ptrtoint", order, I64), 0)
    whole = inner + 3 & -4
    with f.loop(0, outer) as line:
        at = f.address(source, line.index * source_line, spec.a)
        to = f.address(target, line.index * target_line, plan.staged)

        def item(index: Value, width: int) -> None:
            value = f.load(spec.a.vector(width), at, index)
            f.store(stage_integer(f, value, plan, spec.a_signed), to, index)

        vector_loop(f, f.select(natural, inner, 0), 32, item)
        with f.loop(0, f.select(natural, f.constant(I64, 0), whole), 4) as group:
            for j in range(4):
                place = f.cast("zext", f.load(I32, order, group.index + j), I64)
                value = stage_integer(f, f.load(spec.a, at, place), plan, spec.a_signed)
                f.store(value, to, group.index + j)
    f.give()


def _operand(f: Function, spec: Matmul, j: int, pointer: Value, row: Value, column: Value,
             width: int) -> Value:
    """A prologue operand's value for `width` items of A that begin at (row, column)."""
    assert spec.prologue is not None
    operand = spec.prologue.operands[j]
    along = "row" if spec.a_transposed else "column"
    index = {"row": row, "column": column}.get(operand.kind, 0)
    lanes = width if operand.kind == along else 1
    value = f.convert(f.load(operand.type.vector(lanes), pointer, index), spec.accumulator)
    return value if lanes == width else f.splat(value, width)


def pack_function(module: Module, element: Type, accumulator: Type, tile: Tile,
                  by_columns: bool) -> Function:
    """Copies a panel of B: parameters source, target, k, the source's line distance, columns left.

    Columns beyond those left become zero.
    """
    name = f"pack_{element.mangled}_{accumulator.mangled}_{tile.columns}_{int(by_columns)}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, VOID, [("source", PTR), ("target", PTR), ("k", I64), ("line", I64),
                                     ("left", I64)])
    source, target, k, line, left = f.args
    (_pack_columns if by_columns else _pack_rows)(f, element, accumulator, tile, source, target,
                                                  k, line, left)
    f.give()
    return f


def _pack_rows(f: Function, element: Type, accumulator: Type, tile: Tile, source: Value,
               target: Value, k: Value, line: Value, left: Value) -> None:
    """From (k, n): one masked row of the panel after another."""
    kind = element.vector(tile.lanes)
    masks = [f.tail_mask(left - j * tile.lanes, tile.lanes) for j in range(tile.vectors)]
    with f.loop(0, k) as step:
        row = f.address(source, step.index * line, element)
        for j, mask in enumerate(masks):
            value = f.masked_load(kind, f.address(row, j * tile.lanes, element), mask)
            f.store(f.convert(value, accumulator), target,
                    step.index * tile.columns + j * tile.lanes)


def _pack_columns(f: Function, element: Type, accumulator: Type, tile: Tile, source: Value,
                  target: Value, k: Value, line: Value, left: Value) -> None:
    """From (n, k): squares of full columns are transposed in registers, the rest goes singly."""
    lanes = tile.lanes
    squares = f.minimum(left, tile.columns) & -lanes
    with f.loop(0, squares, lanes) as group:
        base = f.address(source, group.index * line, element)
        whole = k & -lanes
        with f.loop(0, whole, lanes) as step:
            rows = [f.convert(f.load(element.vector(lanes),
                                     f.address(base, line * j, element), step.index), accumulator)
                    for j in range(lanes)]
            for j, row in enumerate(transpose(f, rows)):
                f.store(row, target, (step.index + j) * tile.columns + group.index)
        _pack_singly(f, element, accumulator, tile, base, f.address(target, group.index,
                     accumulator), (whole, k), line, (f.constant(I64, lanes), lanes))
    _pack_singly(f, element, accumulator, tile, f.address(source, squares * line, element),
                 f.address(target, squares, accumulator), (f.constant(I64, 0), k), line,
                 (left - squares, f.constant(I64, tile.columns) - squares))


def _pack_singly(f: Function, element: Type, accumulator: Type, tile: Tile, source: Value,
                 target: Value, steps: tuple[Value, Value], line: Value,
                 columns: tuple[Value, Index]) -> None:
    """Element by element: columns of the source, then zeros up to the panel's width."""
    with f.loop(*steps) as step:
        to = f.address(target, step.index * tile.columns, accumulator)
        with f.loop(0, f.minimum(columns[0], columns[1])) as at:
            item = f.load(element, f.address(source, at.index * line, element), step.index)
            f.store(f.convert(item, accumulator), to, at.index)
        with f.loop(columns[0], columns[1]) as at:
            f.store(f.constant(accumulator, 0), to, at.index)
