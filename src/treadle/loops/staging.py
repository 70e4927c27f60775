"""Keep costly values that two passes share in the output, where a row is too long for registers.

Softmax: exp(x - top) is needed by the sum and by the result. The sum's pass stores it in the
output, and the last pass reads it back.
"""

from __future__ import annotations

from dataclasses import replace

from ..declare.scalar import Scalar, fold, rebuild, var, walk
from .ir import Access, Axis, Kernel, Loop, Stmt, Store, leaf_of, roots
from .schedule import tip

_COSTLY = 12
"""Operations that are worth a store and a load."""


def stage(kernel: Kernel) -> Kernel:
    """The kernel with the largest shared value of its last two passes kept, if there is one."""
    passes = [s for s in tip(kernel) if isinstance(s, Loop) and s.kind == "lanes"]
    if len(passes) < 2 or len(passes[-1].body) != 1 or passes[-1].accs:
        return kernel
    last, store = passes[-1], passes[-1].body[0]
    if not isinstance(store, Store) or store.access.stride(last.axis) != 1:
        return kernel
    for earlier in reversed(passes[:-1]):
        found = _shared(kernel, store, earlier)
        if found is not None and earlier.axis is last.axis:
            return _kept(kernel, earlier, last, store, found)
    return kernel


def _shared(kernel: Kernel, store: Store, earlier: Loop) -> Scalar | None:
    """The largest costly value of the store that the earlier pass computes too."""
    known = {e for r in roots(earlier) for e in walk(r)}
    todo = [store.value]
    while todo:
        e = todo.pop(0)
        moves = _moves(kernel, e, earlier.axis)
        if e in known and moves and e.dtype is store.access.buffer.dtype:
            return e if sum(bool(x.args) for x in walk(e)) >= _COSTLY else None
        todo.extend(e.args)
    return None


def _moves(kernel: Kernel, e: Scalar, axis: Axis) -> bool:
    for x in walk(e):
        leaf = leaf_of(kernel, x) if x.op == "var" else None
        if leaf is axis or isinstance(leaf, Access) and leaf.stride(axis) != 0:
            return True
        if isinstance(leaf, Access) and any(_moves(kernel, k, axis) for k in leaf.under()):
            return True
    return False


def _kept(kernel: Kernel, earlier: Loop, last: Loop, store: Store, shared: Scalar) -> Kernel:
    back = var(len(kernel.leaves), shared.dtype)
    value = fold([store.value], lambda s: s, lambda s, a: back if s is shared else rebuild(s, a))[0]
    table: dict[Stmt, Stmt] = {
        earlier: replace(earlier, body=(*earlier.body, Store(store.access, shared))),
        last: replace(last, body=(Store(store.access, value),))}
    body = tuple([_swapped(s, table) for s in kernel.body])
    return replace(kernel, body=body, leaves=(*kernel.leaves, store.access))


def _swapped(s: Stmt, table: dict[Stmt, Stmt]) -> Stmt:
    if s in table or not isinstance(s, Loop):
        return table.get(s, s)
    return replace(s, body=tuple([_swapped(b, table) for b in s.body]))
