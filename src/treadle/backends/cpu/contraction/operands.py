"""What an epilogue reads at the vectors of a tile, and the pass over a tile that lies in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from ....codegen.llvm.text import F32, I64, PTR, VOID, Function, Index, Module, Type, Value
from ....codegen.llvm.text import Parameter as Argument
from ....records import dataclass
from .spec import Epilogue, Place

Mask = Callable[[int], "Value | None"]
"""The lanes of a tile's vector that exist; None where all do."""


def operand_arguments(epilogue: Epilogue | None) -> list[Argument]:
    """The parameters by which a tile is given the epilogue's operands: pointers, open lines."""
    extras = epilogue.operands if epilogue else ()
    return [*(Argument(f"x{j}", PTR, "noalias readonly") for j in range(len(extras))),
            *(Argument(f"l{j}", I64) for j, x in enumerate(extras) if isinstance(x.line, str))]


class Operands:
    """Operands of an epilogue. `line` is the distance of rows of C; `args` are parameters."""

    def __init__(self, f: Function, epilogue: Epilogue | None, args: dict[str, Value],
                 line: Index, lanes: int, accumulator: Type, mask: Mask) -> None:
        self.f, self.args, self.line, self.lanes, self.mask = f, args, line, lanes, mask
        self.operands = epilogue.operands if epilogue else ()
        self.accumulator = accumulator
        self.shared: dict[tuple[int, int], Value] = {}

    def share(self, vectors: int) -> None:
        """Load what all rows have in common."""
        f = self.f
        for x, operand in enumerate(self.operands):
            pointer = self.args[f"x{x}"]
            for j in range(vectors):
                if operand.kind == "column":
                    kind = operand.type.vector(self.lanes)
                    self.shared[x, j] = self._widen(self._load(pointer, kind, j * self.lanes, j))
                elif operand.kind == "scalar":
                    self.shared[x, j] = f.splat(self._widen(f.load(operand.type, pointer)),
                                                self.lanes)

    def at(self, row: Index, j: int) -> list[Value]:
        """Every operand at vector `j` of a row."""
        return [self.shared[x, j] if (x, j) in self.shared else self._of_row(x, row, j)
                for x in range(len(self.operands))]

    def _of_row(self, x: int, row: Index, j: int) -> Value:
        f, operand, pointer = self.f, self.operands[x], self.args[f"x{x}"]
        line = operand.line
        if operand.kind == "row":
            at = row if line in (None, 1) else self._times(
                self.args[f"l{x}"] if isinstance(line, str) else line or 0, row)
            return f.splat(self._widen(f.load(operand.type, pointer, at)), self.lanes)
        step = self.line if line is None else self.args[f"l{x}"] if isinstance(line, str) else line
        return self._widen(self._load(pointer, operand.type.vector(self.lanes),
                                      self._times(step, row) + j * self.lanes, j))

    @staticmethod
    def _times(step: Index, row: Index) -> Index:
        return row * step if isinstance(step, int) else step * row

    def _load(self, pointer: Value, kind: Type, offset: Index, j: int) -> Value:
        if (mask := self.mask(j)) is None:
            return self.f.load(kind, pointer, offset)
        return self.f.masked_load(kind, self.f.address(pointer, offset, kind.scalar), mask)

    def _widen(self, value: Value) -> Value:
        """A value in the accumulator's type; beside integer sums, floats become f32."""
        real = value.type.is_float and not self.accumulator.is_float
        return self.f.convert(value, F32 if real else self.accumulator)


@dataclass(frozen=True, slots=True)
class Finish:
    """An epilogue over a tile of stored sums, `vectors` wide; `ldc` is known or None."""

    epilogue: Epilogue
    lanes: int
    vectors: int
    accumulator: Type
    c: Type
    ldc: int | None
    masked: bool

    @property
    def name(self) -> str:
        """A name that equal passes share."""
        return f"finish_{hashlib.blake2b(str(self).encode(), digest_size=6).hexdigest()}"


_FIXED = [Argument("c", PTR), *(Argument(n, I64) for n in ("rows", "ldc", "left", "row", "column"))]


_ABREAST = 2
"""Rows of a tile in flight together."""


class _Writer:
    """Writes the work on some rows."""

    def __init__(self, f: Function, finish: Finish, args: dict[str, Value], operands: Operands,
                 masks: Sequence[Value | None]) -> None:
        self.f, self.finish, self.args, self.operands, self.masks = f, finish, args, operands, masks

    def rows(self, rows: Sequence[Value]) -> None:
        """Load, transform and store every vector of the rows."""
        f, c, lanes, epilogue = self.f, self.finish.c, self.finish.lanes, self.finish.epilogue
        kind, line = self.finish.accumulator.vector(lanes), self.operands.line
        for row in rows:
            start = f.address(self.args["c"], row * line, c)
            for j, mask in enumerate(self.masks):
                place = f.address(start, j * lanes, c)
                value = f.load(kind, place) if mask is None else f.masked_load(kind, place, mask)
                where = Place(self.args["row"] + row, self.args["column"] + j * lanes)
                value = epilogue.emit(f, value, self.operands.at(row, j), where)
                value = f.convert(value, c)
                if mask is None:
                    f.store(value, place)
                else:
                    f.masked_store(value, place, mask)


def emit_finish(module: Module, finish: Finish) -> Function:
    """The function `(c, rows, ldc, left, row, column, operands..)`, made once per module."""
    if finish.name in module.functions:
        return module.functions[finish.name]
    epilogue = finish.epilogue
    f = module.function(finish.name, VOID, [*_FIXED, *operand_arguments(epilogue)])
    args = {p.name: v for p, v in zip(f.parameters, f.args, strict=True)}
    lanes = finish.lanes
    masks = [f.tail_mask(args["left"] - j * lanes, lanes) if finish.masked else None
             for j in range(finish.vectors)]
    line: Index = args["ldc"] if finish.ldc is None else finish.ldc
    operands = Operands(f, epilogue, args, line, lanes, finish.accumulator, masks.__getitem__)
    operands.share(finish.vectors)
    writer = _Writer(f, finish, args, operands, masks)
    whole = args["rows"] & -_ABREAST
    with f.loop(0, whole, _ABREAST) as at:
        writer.rows([at.index + u for u in range(_ABREAST)])
    with f.loop(whole, args["rows"]) as at:
        writer.rows([at.index])
    f.give()
    return f


def finish_arguments(tile: Sequence[Value], rows: Value) -> list[Value]:
    """The arguments of a finishing pass from those of its tile."""
    c, ldc, left, row, column = (tile[i] for i in (2, 8, 9, 10, 11))
    return [c, rows, ldc, left, row, column, *tile[12:]]
