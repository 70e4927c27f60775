"""How a kernel runs on a target: lanes, unrolling, slots, blocks. Fixed by the kernel alone."""

from __future__ import annotations

from ..declare.scalar import Scalar, walk
from ..records import dataclass
from .ir import Access, Kernel, Loop, Stmt, Store, accesses, leaf_of, loops, reached, roots


@dataclass(frozen=True)
class Machine:
    """What a schedule needs to know: bytes of a vector register, masked accesses of bytes."""

    vector_bytes: int
    masks: bool


@dataclass(frozen=True)
class Schedule:
    """`vector` lanes step a lanes loop and `unroll` steps are in flight.

    `slots` > 0: the lanes loop is written out in that many steps, and what one pass computed stays
    in registers for the next. `block` > 0: lanes of one work item (maps). `masked`: the last,
    partial step runs under a mask, else lane by lane. `rows`: work items side by side; but if
    `ordered`, passes that may wait for memory, the first and those that write, go item by item.
    """

    vector: int
    unroll: int
    slots: int = 0
    block: int = 0
    masked: bool = False
    rows: int = 1
    ordered: bool = False

    def in_order(self, kernel: Kernel, loop: Loop) -> bool:
        """Whether a pass takes items one after another."""
        return self.ordered and (loop is tip(kernel)[0] or bool(loop.body))

    def steps(self, kernel: Kernel, loop: Loop) -> int:
        """Steps in flight of a lanes loop: one of a reduction that is busy with its values."""
        u = self.unroll
        if loop.accs and _operations(loop) >= _BUSY:
            return 1
        if not self.ordered:
            return u
        if not self.in_order(kernel, loop):
            return max(2 * u // self.rows, 1)
        n = loop.axis.extent
        even = isinstance(n, int) and n % (2 * u * self.vector) == 0
        return 2 * u if even and sum(len(a.values) for a in loop.accs) == 1 else u


_LONG = 60
"""Operations of an expression whose steps do not overlap."""
_FULL = 14
"""Operations of a map's step beside which those of its loop take no time."""
_BUSY = 12
"""Operations beside which an accumulator's own step takes no time."""
_PAGE = 768
"""Lanes of rows that lie in pages of their own, nearly. Prefetching follows one stream a page."""
_WRITTEN = 4
"""Vectors of a row that is written out."""


def tip(kernel: Kernel) -> tuple[Stmt, ...]:
    """The statements below the par loops."""
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "par":
        body = body[0].body
    return body


def is_map(kernel: Kernel) -> bool:
    """Whether every lane is independent: one lanes loop and no reduction across it."""
    body = tip(kernel)
    return len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "lanes" and (
        not body[0].accs)


def lanes_of(kernel: Kernel) -> Loop:
    """The first lanes loop."""
    return next(s for s in loops(*kernel.body) if s.kind == "lanes")


def _bytes(kernel: Kernel) -> tuple[int, int]:
    """Bytes of the widest value computed with and of the narrowest element accessed on lanes."""
    widest, narrowest = 1, 8
    for e in reached(kernel, *kernel.body):
        if not _is_position(kernel, e):
            widest = max(widest, e.dtype.bits // 8)
    axis = lanes_of(kernel).axis
    for a in accesses(kernel, *kernel.body):
        if any(k is axis or isinstance(k, Scalar) for k, _ in a.terms):
            narrowest = min(narrowest, a.buffer.dtype.bits // 8)
    return widest, narrowest


def _is_position(kernel: Kernel, e: Scalar) -> bool:
    """Addresses and places count little; a bool takes the width of what is beside it."""
    return e.op == "const" or e.dtype.name == "bool" or (
        e.op == "var" and not isinstance(leaf_of(kernel, e), Access))


def schedule(kernel: Kernel, machine: Machine) -> Schedule:
    """The schedule of a kernel."""
    widest, narrowest = _bytes(kernel)
    extent = lanes_of(kernel).axis.extent
    n = extent if isinstance(extent, int) else None
    v = max(machine.vector_bytes // min(max(widest, 1), 4), 1)
    if widest == 8 and narrowest == 8:
        v = machine.vector_bytes // 8
    while n is not None and v > 1 and v // 2 >= n:
        v //= 2
    masked = machine.masks or narrowest >= 4
    if is_map(kernel):
        inner = any(s.kind == "seq" for s in loops(*kernel.body))
        return Schedule(v, _in_flight(kernel, inner), block=1024 if inner else 8192,
                        masked=masked)
    whole = n is not None and n % v == 0
    slots = -(-n // v) if n is not None and n <= _WRITTEN * v and _single(kernel) else 0
    if slots and (masked or whole):
        return Schedule(v, 4, slots, masked=masked)
    rows, ordered = _side_by_side(kernel, n)
    return Schedule(v, 4, masked=masked, rows=rows, ordered=ordered)


def _side_by_side(kernel: Kernel, n: int | None) -> tuple[int, bool]:
    """How many rows: one waits for its sums while others go on, and they share what both read."""
    body = tip(kernel)
    simple = all(isinstance(s, Store) or isinstance(s, Loop) and s.kind == "lanes" and all(
        isinstance(x, Store) for x in s.body) for s in body)
    passes = [s for s in body if isinstance(s, Loop)]
    if not simple or body is kernel.body or max(map(_operations, passes)) > _LONG // 2:
        return 1, False
    if n is None or all(s.body for s in passes[1:]):
        return 2, True
    return (2, False) if n >= _PAGE else (4, True)


def _operations(loop: Loop) -> int:
    """Operations of one step."""
    return len({e for r in roots(loop) for e in walk(r) if e.args})


def _in_flight(kernel: Kernel, inner: bool) -> int:
    """Steps of a map in one turn. The processor overlaps turns; long steps lose registers to it."""
    size = sum(bool(e.args) for e in reached(kernel, *kernel.body))
    return 1 if size > (_LONG if inner else _FULL) else 2 if inner else 4


def _single(kernel: Kernel) -> bool:
    """Whether no sequential loop surrounds a lanes loop, so that slots mean one thing."""
    return not any(s.kind == "seq" and any(x.kind == "lanes" for x in loops(*s.body))
                   for s in loops(*kernel.body))
