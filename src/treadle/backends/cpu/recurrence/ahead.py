"""Cache lines asked for ahead of time, a few beside each tile of a product.

Rows of one head lie a whole token apart, so the processor's own prefetchers do not follow them.
Asked for all at once, they would fill its miss buffers and hold up the products. What a request
costs beside the products is an instruction that they could have had, so addresses are found once a
slab: a slab asks for the rows of its share of the tokens, the same line of each at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.llvm.text import I8, Function, Value
from ....records import dataclass

_LINE = 64
_SECOND_LEVEL = 2


@dataclass(frozen=True, slots=True)
class Row:
    """A row of `size` bytes that will be read or written."""

    size: int
    written: bool = False

    @property
    def lines(self) -> int:
        """Most lines of the row; it need not begin with one."""
        return -(-self.size // _LINE) + 1


@dataclass(frozen=True, slots=True)
class Rows:
    """One row a token: the address of the first, and the distance of tokens in bytes."""

    first: Value
    line: Value
    row: Row


def ask(f: Function, rows: Sequence[tuple[Row, Value]], turn: Value, turns: int) -> None:
    """Ask for a share of the lines of rows at some addresses, one of `turns`."""
    for row, start in rows:
        each = -(-row.lines // turns)
        for j in range(each):
            place = f.minimum((turn * each + j) * _LINE, row.size - 1)
            f.prefetch(f.address(start, place, I8), _SECOND_LEVEL, write=row.written)


def turns(rows: Sequence[Rows], tokens: int, most: int) -> int:
    """Turns for each of `tokens`, at most `most` in all."""
    return min(most // tokens, max(r.row.lines for r in rows))
