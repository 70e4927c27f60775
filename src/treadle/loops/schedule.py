"""How a kernel runs on a target: lanes, unrolling, slots, blocks. Fixed by the kernel alone."""

from __future__ import annotations

from dataclasses import dataclass

from ..declare.scalar import Scalar
from .ir import Access, Kernel, Loop, Stmt, accesses, leaf_of, loops, reached


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
    partial step runs under a mask, else lane by lane.
    """

    vector: int
    unroll: int
    slots: int = 0
    block: int = 0
    masked: bool = False


_LONG = 60
"""Operations of an expression whose steps do not overlap."""


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
    slots = -(-n // v) if n is not None and n <= 12 * v and _single(kernel) else 0
    return Schedule(v, 4, slots if masked or whole else 0, masked=masked)


def _in_flight(kernel: Kernel, inner: bool) -> int:
    """Steps of a map at once: long expressions fill the processor by themselves."""
    size = sum(bool(e.args) for e in reached(kernel, *kernel.body))
    return 1 if size > _LONG else 2 if inner or size > _LONG // 2 else 4


def _single(kernel: Kernel) -> bool:
    """Whether no sequential loop surrounds a lanes loop, so that slots mean one thing."""
    return not any(s.kind == "seq" and any(x.kind == "lanes" for x in loops(*s.body))
                   for s in loops(*kernel.body))
