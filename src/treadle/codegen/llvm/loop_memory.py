"""Loads and stores of a kernel being printed: contiguous, broadcast, strided, guarded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.scalar import Scalar
from ...ir.types import DType
from ...loops.ir import Acc, Access, Axis, Extent, Store
from .kernel import Kernel
from .scalars import MEMORY
from .text import I1, I64, PTR, Function, Value

if TYPE_CHECKING:
    from .loop_values import Index, Slot

_NOWHERE = "nowhere"


class Memory:
    """The part of the printer that touches buffers."""

    f: Function
    out: Kernel
    lane: Axis | None
    place: dict[Axis, Index]
    scopes: list[dict[object, Value]]
    varying: set[object]
    results: dict[tuple[Acc, int, Slot | None], Value]

    def value(self, e: Scalar, slot: Slot | None) -> Value:
        """An expression's value."""
        raise NotImplementedError

    def varies(self, e: Scalar) -> bool:
        """Whether lanes differ in the value."""
        raise NotImplementedError

    def size(self, extent: Extent) -> Index:
        """An extent as an index."""
        raise NotImplementedError

    def arith(self, op: str, a: Index, b: Index) -> Index:
        """Index arithmetic."""
        raise NotImplementedError

    def widen(self, v: Value, width: int) -> Value:
        """A scalar in every lane."""
        raise NotImplementedError

    # Addresses

    def address(self, a: Access, slot: Slot | None, known: bool = True
                ) -> tuple[Value, Index, Value | None]:
        """The address of the slot's first lane, the lanes' stride, and further offsets by lane.

        Prefixes of the sum are remembered. With `known` false, axes without a place end it.
        """
        dtype = MEMORY[a.buffer.dtype.name]
        p = self.out[a.buffer.name]
        key: list[object] = [a.buffer, a.offset]
        p = self._advance(p, self.size(a.offset), key, dtype)
        offsets: Value | None = None
        stride: Index = 0
        for k, c in sorted(a.terms, key=lambda t: self._level(t[0])):
            if isinstance(k, Axis) and k not in self.place and k is not self.lane:
                if not known:
                    break
                raise AssertionError(f"the axis {k.name} has no place")
            if isinstance(k, Scalar) and self.varies(k) and slot is not None and slot.width > 1:
                step = self.widen(self.f.constant(I64, self.size(c)), slot.width)
                moved = self.widen(self.value(k, slot), slot.width) * step
                offsets = moved if offsets is None else offsets + moved
                continue
            if k is self.lane:
                stride = self.size(c)
                if slot is None:
                    continue
            key += [k, c, slot if self._on_lanes(k) else None]
            p = self._advance(p, self.arith("mul", self._at(k, slot), self.size(c)), key, dtype)
        return p, stride, offsets

    def _advance(self, p: Value, by: Index, key: list[object], dtype: object) -> Value:
        name = tuple(key)
        found = next((s[name] for s in reversed(self.scopes) if name in s), None)
        if found is None:
            found = self.f.address(p, by, dtype)  # type: ignore[arg-type]
            self.scopes[-1][name] = found
        return found

    def _on_lanes(self, k: Axis | Scalar) -> bool:
        return self.varies(k) if isinstance(k, Scalar) else k is self.lane

    def _at(self, k: Axis | Scalar, slot: Slot | None) -> Index:
        if isinstance(k, Scalar):
            return self.value(k, slot)
        if k is self.lane:
            assert slot is not None
            return slot.base
        return self.place[k]

    def _level(self, k: Axis | Scalar) -> int:
        if isinstance(k, Scalar):
            return 1 << 20
        order = list(self.place)
        return order.index(k) if k in self.place else 1 << 10

    # Loads

    def load(self, a: Access, slot: Slot | None) -> Value:
        """The value at an access, `fill` where its guard or the slot's mask is off."""
        dtype = a.buffer.dtype
        p, stride, offsets = self.address(a, slot)
        width = slot.width if slot is not None else 1
        mask = slot.mask if slot is not None else None
        if a.guard is not None:
            guard = self.widen(self.value(a.guard, slot), width)
            mask = guard if mask is None else self.widen(mask, width) & guard
        flat = isinstance(stride, int) and stride == 0 and offsets is None
        if width == 1 or (flat and a.guard is None):
            x = self._one(p, dtype, None if width > 1 else mask)
        else:
            x = self._many(p, dtype, width, stride, offsets, mask)
        if a.guard is not None:
            assert mask is not None
            fill = self.value(a.fill, slot) if a.fill is not None else self.f.constant(
                x.type.scalar, 0)
            x = self.f.select(mask, x, self.widen(fill, x.type.lanes or 1))
        return x

    def _one(self, p: Value, dtype: DType, mask: Value | None) -> Value:
        if mask is not None:
            p = self.f.select(mask, p, self._nowhere())
        return self._up(self.f.load(MEMORY[dtype.name], p), dtype)

    def _many(self, p: Value, dtype: DType, width: int, stride: Index, offsets: Value | None,
              mask: Value | None) -> Value:
        kind = MEMORY[dtype.name].vector(width)
        if isinstance(stride, int) and stride == 1 and offsets is None:
            if mask is None:
                return self._up(self.f.load(kind, p), dtype)
            return self._up(self.f.masked_load(kind, p, mask), dtype)
        if isinstance(stride, int) and stride == -1 and offsets is None and mask is None:
            back = self.f.load(kind, self.f.address(p, 1 - width, kind.scalar))
            return self._up(self.f.shuffle(back, None, range(width - 1, -1, -1)), dtype)
        pointers = self._pointers(p, dtype, width, stride, offsets)
        if mask is None and kind.size not in (4, 8):
            return self._up(self._gathered(pointers, kind), dtype)
        mask = mask if mask is not None else self._all(width)
        return self._up(self.f.gather(kind, pointers, mask), dtype)

    def _gathered(self, pointers: Value, kind: object) -> Value:
        """Lane by lane: there are no gathers of small elements."""
        out = Value(self.f, "poison", kind)  # type: ignore[arg-type]
        for lane in range(out.type.lanes):
            item = self.f.load(out.type.scalar, self.f.extract(pointers, lane))
            out = self.f.insert(out, item, lane)
        return out

    def _pointers(self, p: Value, dtype: DType, width: int, stride: Index, offsets: Value | None
                  ) -> Value:
        kind = I64.vector(width)
        at = self.f.iota(kind) * self.widen(self.f.constant(I64, stride), width)
        if offsets is not None:
            at = at + offsets
        return self.f.address(p, at, MEMORY[dtype.name])

    def _all(self, width: int) -> Value:
        return self.f.constant(I1.vector(width), 1)

    def _nowhere(self) -> Value:
        self.f.module.data(_NOWHERE, "internal global [64 x i8] zeroinitializer, align 64")
        return Value(self.f, f"@{_NOWHERE}", PTR)

    def _up(self, x: Value, dtype: DType) -> Value:
        return self.f.compare("ne", x, 0) if dtype.name == "bool" else x

    # Stores

    def store(self, s: Store, slot: Slot | None) -> None:
        """Write the lanes of a slot, or one element."""
        a = s.access
        p, stride, offsets = self.address(a, slot)
        width = slot.width if slot is not None else 1
        mask = slot.mask if slot is not None else None
        x = self.widen(self.value(s.value, slot), width)
        if a.buffer.dtype.name == "bool":
            x = self.f.cast("zext", x, x.type.with_scalar(MEMORY["bool"]))
        assert x.type.scalar == MEMORY[a.buffer.dtype.name]
        if width == 1:
            self.f.store(x, p if mask is None else self.f.select(mask, p, self._nowhere()))
        elif isinstance(stride, int) and stride == 1 and offsets is None:
            if mask is None:
                self.f.store(x, p)
            else:
                self.f.masked_store(x, p, mask)
        else:
            pointers = self._pointers(p, a.buffer.dtype, width, stride, offsets)
            self.f.scatter(x, pointers, self._all(width) if mask is None else mask)
