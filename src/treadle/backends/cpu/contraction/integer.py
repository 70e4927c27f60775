"""8-bit products that accumulate in 32 bits: which instruction, and how operands lie for it.

AVX2 sums two products of 8-bit numbers in 16 bits and saturates: exact as long as two neighbours
along k of B add up to -128..128, since A is at most 255. `order` finds an order of k in which all
do; in trained weights a few exchanges reach it. Otherwise 16-bit products are summed in 32 bits,
which takes a third longer. A header of B says what it was packed for, so that other weights may
take its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....codegen.llvm.runtime import aligned
from ....codegen.llvm.target import Target
from ....codegen.llvm.text import I8, I16, I32, Function, Type, Value
from ....records import dataclass, replace
from .pack import SLACK, pack
from .spec import Matmul
from .tiles import Tile, tile_for

HEADER = 64
"""Bytes of B's header: a word that is 0 for 16-bit products, 1 for 8-bit ones, 2 in an order."""
_LIMIT = 128
_EXCHANGES = 128
"""Most neighbours that are exchanged; each looks at all of B."""
_PAIR_SUMS = {4: ("sse2", "sse2.pmadd.wd"), 8: ("avx2", "avx2.pmadd.wd"),
              16: ("avx512bw", "avx512.pmaddw.d.512")}
"""By lanes: the feature, and the instruction that multiplies and adds pairs."""


@dataclass(frozen=True, slots=True)
class IntegerPlan:
    """How one instruction multiplies `group` neighbours along k and sums them.

    A is copied as `staged`. `flip` says that the sign bit of A is inverted on the way because the
    instruction wants the other signedness; `offset` times the column sums of B then corrects C.
    `sums` says that column sums follow the panels.
    """

    group: int
    staged: Type
    flip: bool
    offset: int
    b_signed: bool

    @property
    def sums(self) -> bool:
        """Whether packed B carries its column sums."""
        return self.group == 4

    def elements(self, k: int, n: int, tile: Tile) -> int:
        """Bytes of a packed (k, n) matrix, without slack."""
        columns = -(-n // tile.columns) * tile.columns
        return columns * (-(-k // self.group) * self.group + (4 if self.sums else 0))


def integer_plan(target: Target, spec: Matmul) -> IntegerPlan:
    """Four at a time where the target has that for signed B, else pairs of 16-bit products.

    x86 multiplies unsigned A by signed B, AArch64 signed by signed. Pairs are exact for every
    signedness: the sum of two products of 8-bit numbers fits 32 bits.
    """
    if not ((target.has_dot4 or spec.small) and spec.b_signed):
        return IntegerPlan(2, I16, False, 0, spec.b_signed)
    flip = spec.a_signed == target.is_x86
    return IntegerPlan(4, I8, flip, (-128 if target.is_x86 else 128) if flip else 0, True)


def chosen_late(target: Target, spec: Matmul) -> bool:
    """Whether the packed weights say which instruction multiplies them."""
    return (target.has("avx2") and target.vector_bytes == 32 and not target.has_dot4
            and spec.b_signed and all(axis.b == 0 for axis in spec.batch))


def order_bytes(k: int) -> int:
    """Bytes of the header and the order of k that begin weights chosen late."""
    return HEADER + -(-4 * (-(-k // 4) * 4) // 64) * 64


def order(b: NDArray[Any]) -> NDArray[np.int32] | None:
    """An order of the rows of `b`, an even number, in which no neighbours overflow, if found."""
    even, odd = np.arange(0, len(b), 2, dtype=np.int32), np.arange(1, len(b), 2, dtype=np.int32)

    def fit(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((np.abs(b[x].astype(np.int16) + b[y]) <= _LIMIT).all(-1))

    left = np.flatnonzero(~fit(even, odd))
    if len(left) > _EXCHANGES:
        return None
    for i in left:
        for others, rest in ((odd, even), (even, odd)):
            found = fit(even[i:i + 1], others) & fit(rest, odd[i:i + 1])
            found[i] = False
            if found.any():
                j = int(found.argmax())
                odd[i], others[j] = others[j], odd[i]
                break
        else:
            return None
    return np.stack([even, odd], 1).ravel()


def _pack_late(b: NDArray[Any], target: Target, spec: Matmul) -> NDArray[Any]:
    k, n = b.shape
    tile, begin = tile_for(target, I32), order_bytes(k)
    plans = [integer_plan(target, replace(spec, small=small)) for small in (False, True)]
    out = aligned(begin + max(p.elements(k, n, tile) for p in plans) + SLACK)
    padded = np.zeros((-(-k // 4) * 4, n), b.dtype)
    padded[:k] = b
    found = order(padded)
    if found is None:
        out[:4].view(np.int32)[0] = 0
        panels = pack(b.view(np.uint8), tile, plans[0].group)
    else:
        natural = bool((found == np.arange(len(found))).all())
        out[:4].view(np.int32)[0] = 1 if natural else 2
        out[HEADER:HEADER + 4 * len(found)].view(np.int32)[:] = np.where(found < k, found, 0)
        panels = pack(padded[found].view(np.uint8), tile, plans[1].group)
        sums = out[begin + panels.size:begin + plans[1].elements(k, n, tile)].view(np.int32)
        sums[:n] = b.sum(0, dtype=np.int32)
    out[begin:begin + panels.size] = panels
    return out[:-SLACK]


def pack_integer(b: NDArray[Any], target: Target, spec: Matmul) -> NDArray[Any]:
    """Packs 8-bit `b` of shape (..., k, n) for a kernel of `spec`, as bytes.

    Each matrix is followed by its int32 column sums where the plan needs them.
    """
    if b.ndim == 2 and chosen_late(target, spec):
        return _pack_late(b, target, spec)
    plan, tile = integer_plan(target, spec), tile_for(target, I32)
    *batch, k, n = b.shape
    matrices = b.reshape(-1, k, n)
    size = plan.elements(k, n, tile)
    out = aligned(size * len(matrices) + SLACK)
    for at, matrix in enumerate(matrices):
        panels = pack(matrix.view(np.uint8), tile, plan.group)
        to = out[at * size:(at + 1) * size]
        to[:panels.size] = panels
        if plan.sums:
            to[panels.size:].view(np.int32)[:n] = matrix.sum(0, dtype=np.int32)
    return out[:size * len(matrices)]


def stage_integer(f: Function, value: Value, plan: IntegerPlan, signed: bool) -> Value:
    """Items of A as the instruction reads them."""
    if plan.staged == I16:
        return f.convert(value, I16, signed=signed)
    return value ^ 0x80 if plan.flip else value


def load_group(f: Function, pointer: Value, plan: IntegerPlan, lanes: int) -> Value:
    """One group of A in every lane."""
    group = f.load(I32, pointer, align=plan.staged.size)
    return f.bitcast(f.splat(group, lanes), plan.staged.vector(lanes * plan.group))


def load_columns(f: Function, pointer: Value, offset: int, plan: IntegerPlan, lanes: int) -> Value:
    """One group of each of `lanes` columns of B."""
    items = f.load(I8.vector(lanes * plan.group), pointer, offset)
    return items if plan.group == 4 else f.convert(items, I16, signed=plan.b_signed)


def accumulate(f: Function, a: Value, b: Value, total: Value) -> Value:
    """`total` plus the products of each lane's group."""
    lanes, kind, target = total.type.lanes, total.type, f.target
    if a.type.name == "i8" and target.is_x86 and not target.has_dot4:
        pairs = f.call("llvm.x86.avx2.pmadd.ub.sw", I16.vector(2 * lanes), a, b)
        return total + f.call(f"llvm.x86.{_PAIR_SUMS[lanes][1]}", kind, pairs,
                              f.constant(pairs.type, 1))
    if a.type.name == "i8" and target.is_x86:
        return f.call(f"llvm.x86.avx512.vpdpbusd.{lanes * 32}", kind, total, a, b)
    if a.type.name == "i8":
        return f.call("llvm.aarch64.neon.sdot.v4i32.v16i8", kind, total, a, b)
    if target.is_x86 and target.has(_PAIR_SUMS[lanes][0]):
        return total + f.call(f"llvm.x86.{_PAIR_SUMS[lanes][1]}", kind, a, b)
    products = f.convert(a, I32) * f.convert(b, I32)
    even, odd = (f.shuffle(products, None, range(start, 2 * lanes, 2)) for start in (0, 1))
    return total + (even + odd)
