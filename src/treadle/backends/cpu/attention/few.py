"""A few queries, as in decoding: keys and values are read once, where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....codegen.llvm.text import Function, Type, Value
from ..contraction.spec import Extent
from .spec import Attention, Blocks

FEW = 4
"""Most queries that do not pay for copies of keys and values."""
_KEYS, _VECTORS = 4, 8
"""Keys whose products are summed side by side; vectors of a value row that are."""


class Few:
    """Writes the products of few rows with a block of keys."""

    def __init__(self, f: Function, spec: Attention, blocks: Blocks, lanes: int,
                 part: Mapping[str, Value], size: Callable[[Extent], Value]) -> None:
        self.f, self.spec, self.blocks, self.lanes = f, spec, blocks, lanes
        self.part, self.size = part, size

    def scores(self, rows: Value, k: Value, width: Value) -> None:
        """Products of queries with keys, several keys at a time; the last may be taken twice."""
        f, spec, acc = self.f, self.spec, self.spec.accumulator
        line = self.size(spec.k.strides[2])
        with f.loop(0, rows) as row, f.loop(0, width, _KEYS) as at:
            q = f.address(self.part["q"], row.index * self.blocks.q_line, acc)
            keys = [f.address(k, f.minimum(at.index + j, width - 1) * line, spec.k.element)
                    for j in range(_KEYS)]
            sums = self._dots(q, keys)
            to = f.address(self.part["s"], row.index * self.blocks.s_line, acc)
            for j, total in enumerate(sums):
                f.store(f.reduce(total, lambda a, b: a + b), f.address(to, at.index + j, acc))

    def _dots(self, q: Value, keys: list[Value]) -> list[Value]:
        """Lanes of the products of one query with some keys."""
        f, spec, acc = self.f, self.spec, self.spec.accumulator
        whole = spec.depth // self.lanes * self.lanes
        zeros = [f.constant(acc.vector(self.lanes), 0.0)] * len(keys)
        with f.loop(0, whole, self.lanes, zeros) as step:
            x = f.load(acc.vector(self.lanes), q, step.index)
            step.carry(*[self._fma(x, self._load(k, spec.k.element, step.index), total)
                         for k, total in zip(keys, step.values, strict=True)])
        if whole == spec.depth:
            return step.results
        mask = f.tail_mask(spec.depth - whole, self.lanes)
        x = f.masked_load(acc.vector(self.lanes), f.address(q, whole, acc), mask)
        return [self._fma(x, self._load(k, spec.k.element, whole, mask), total)
                for k, total in zip(keys, step.results, strict=True)]

    def values(self, rows: Value, v: Value, width: Value) -> None:
        """Sums of value rows by weight, added to those of earlier blocks."""
        f, spec = self.f, self.spec
        with f.loop(0, rows) as row:
            p = f.address(self.part["s"], row.index * self.blocks.s_line, spec.accumulator)
            o = f.address(self.part["o"], row.index * self.blocks.o_line, spec.accumulator)
            for start in range(0, spec.width, _VECTORS * self.lanes):
                places = range(start, min(start + _VECTORS * self.lanes, spec.width), self.lanes)
                self._weighted(p, o, v, width, places)

    def _weighted(self, p: Value, o: Value, v: Value, width: Value, places: range) -> None:
        f, spec, acc = self.f, self.spec, self.spec.accumulator
        kind, line = acc.vector(self.lanes), self.size(spec.v.strides[2])
        masks = [f.tail_mask(spec.width - x, self.lanes) if x + self.lanes > spec.width else None
                 for x in places]
        with f.loop(0, width, 1, [f.load(kind, o, x) for x in places]) as key:
            weight = f.splat(f.load(acc, p, key.index), self.lanes)
            at = f.address(v, key.index * line, spec.v.element)
            key.carry(*[self._fma(weight, self._load(at, spec.v.element, x, mask), total)
                        for x, mask, total in zip(places, masks, key.values, strict=True)])
        for x, total in zip(places, key.results, strict=True):
            f.store(total, o, x)

    def _load(self, pointer: Value, element: Type, at: Value | int, mask: Value | None = None
              ) -> Value:
        f, kind = self.f, element.vector(self.lanes)
        place = f.address(pointer, at, element)
        found = f.load(kind, place) if mask is None else f.masked_load(kind, place, mask)
        return f.convert(found, self.spec.accumulator)

    def _fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.f.fma(a, b, c) if self.f.target.has_fma else a * b + c
