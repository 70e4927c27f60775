"""Cache lines asked for ahead of time, a few beside each tile of a product.

Rows of one head lie a whole token apart, so the processor's own prefetchers do not follow them.
Asked for all at once, they would fill its miss buffers and hold up the products.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.llvm.text import I8, Function, Value
from ....records import dataclass

_LINE = 64
_SECOND_LEVEL = 2


@dataclass(frozen=True, slots=True)
class Rows:
    """One row a token: the address of the first, `line` and `size` in bytes."""

    first: Value
    line: Value
    size: int
    written: bool = False


def ask(f: Function, rows: Sequence[Rows], tokens: int, slot: Value, slots: int) -> None:
    """One of `slots` equal shares of the lines that hold `tokens` rows of each kind."""
    for r in rows:
        lines = -(-r.size // _LINE) + 1  # rows need not begin with a line
        share = -(-tokens * lines // slots)
        for j in range(share):
            index = slot * share + j
            at = f.minimum(f.binary("urem", index, lines) * _LINE, r.size - 1)
            place = f.binary("udiv", index, lines) * r.line + at
            f.prefetch(f.address(r.first, place, I8), _SECOND_LEVEL, write=r.written)
