"""One row of a block of scores: cap, bias, visibility, then the softmax so far."""

from __future__ import annotations

from collections.abc import Mapping

from ....codegen.llvm.scalars import evaluate
from ....codegen.llvm.text import I8, I64, Function, Type, Value
from ....declare.scalar import Scalar, var
from ....ir.types import DTYPES
from ....loops.functions.exponential import exp_of_negative
from .spec import Attention, Blocks, Operand

Line = tuple[Operand, Value]
_ABREAST = 4
"""Vectors of a row at once; lanes beyond the keys count as invisible."""


class Softening:
    """Writes the softmax of rows. `cap` is the capped score, an expression of variable 0."""

    def __init__(self, f: Function, spec: Attention, blocks: Blocks, lanes: int,
                 cap: Scalar | None) -> None:
        self.f, self.spec, self.blocks, self.lanes, self.cap = f, spec, blocks, lanes, cap
        self.acc: Type = spec.accumulator
        self.x = var(0, DTYPES["f64" if self.acc.name == "double" else "f32"])
        self.exp = exp_of_negative(self.x)

    def compute(self, e: Scalar, x: Value) -> Value:
        """An expression of variable 0 in every lane."""
        return evaluate(self.f, [e], {self.x: x}, lambda v: self.f.splat(v, x.type.lanes))[0]

    def row(self, part: Mapping[str, Value], at: Value, first: Value, low: Value | None,
            high: Value, width: Value, mask: Line | None, bias: Line | None) -> None:
        """Row `at` of a block whose keys begin at `first`; it sees those from `low` to `high`.

        Scores become weights relative to the largest score so far; what was summed before is
        scaled to it.
        """
        f = self.f
        scores = f.address(part["s"], at * self.blocks.s_line, self.acc)
        top, seen = self._scores(scores, first, low, high, width, mask, bias)
        old = f.load(self.acc, part["top"], at)
        new = self._larger(top, old)
        base = f.select(f.compare("eq", new, float("-inf")), 0.0, new)
        factor = self.compute(self.exp, old - base)
        total = self._weights(scores, base, width)
        f.store(new, part["top"], at)
        f.store(f.load(self.acc, part["sum"], at) * factor + total, part["sum"], at)
        flag = f.address(part["seen"], at * self.acc.size, I8)
        f.store(f.load(I8, flag) | f.cast("zext", seen, I8), flag)
        with f.when(f.compare("ne", factor, 1.0) & f.compare("ne", old, float("-inf"))):
            self._scale(f.address(part["o"], at * self.blocks.o_line, self.acc), factor)

    def _larger(self, a: Value, b: Value) -> Value:
        """The larger; NaN if either is."""
        f = self.f
        return f.select(f.compare("gt", a, b) | f.compare("uno", a, a), a, b)

    def _scores(self, scores: Value, first: Value, low: Value | None, high: Value, width: Value,
                mask: Line | None, bias: Line | None) -> tuple[Value, Value]:
        """Finish the scores; the largest one, and whether any key is visible."""
        f, kind = self.f, self.acc.vector(self.lanes)
        group = self.lanes * _ABREAST
        plain = f.constant(I64, 0)
        if mask is None:
            plain = f.maximum(f.minimum(high - first, width), 0) & -group
            if low is not None:
                plain = f.select(f.compare("le", low, first), plain, 0)
        carried = [f.constant(kind, float("-inf"))] * _ABREAST
        with f.loop(0, plain, group, carried) as step:
            step.carry(*[self._larger(self._plain(scores, bias, step.index + j * self.lanes), top)
                         for j, top in enumerate(step.values)])
        with f.loop(plain, width, group, [*step.results, f.constant(I64, 0)]) as step:
            *tops, some = step.values
            for j in range(_ABREAST):
                s, visible = self._hidden(scores, step.index + j * self.lanes, (
                    first, low, high, width), mask, bias)
                tops[j] = self._larger(s, tops[j])
                if mask is not None:
                    some = some | f.cast("zext", f.reduce(visible, lambda a, b: a | b), I64)
            step.carry(*tops, some)
        *tops, some = step.results
        seen = f.compare("ne", some, 0)
        if mask is None:
            seen = f.compare("lt", first if low is None else f.maximum(low, first), high)
        while len(tops) > 1:
            tops = [self._larger(a, b) for a, b in zip(tops[::2], tops[1::2], strict=True)]
        return f.reduce(tops[0], self._larger), seen

    def _plain(self, scores: Value, bias: Line | None, at: Value) -> Value:
        """A vector of scores that are all visible, finished."""
        f = self.f
        s = f.load(self.acc.vector(self.lanes), scores, at)
        if self.cap is not None or bias is not None:
            s = self._finished(s, bias, at, None)
            f.store(s, scores, at)
        return s

    def _hidden(self, scores: Value, at: Value, bounds: tuple[Value, Value | None, Value, Value],
                mask: Line | None, bias: Line | None) -> tuple[Value, Value]:
        """A vector of scores, -inf where they are not visible; and where they are."""
        f, (first, low, high, width) = self.f, bounds
        visible = self._visible(first + at, low, high)
        inside = f.tail_mask(width - at, self.lanes)
        s = self._finished(f.load(self.acc.vector(self.lanes), scores, at), bias, at, inside)
        if mask is not None:
            visible = visible & f.compare("ne", self._many(mask, at, inside), 0)
        s = f.select(visible, s, float("-inf"))
        f.store(s, scores, at)
        return s, visible

    def _visible(self, at: Value, low: Value | None, high: Value) -> Value:
        """The lanes from key `at` on that lie between the bounds."""
        visible = self.f.tail_mask(high - at, self.lanes)
        return visible if low is None else visible & (self.f.tail_mask(low - at, self.lanes) ^ 1)

    def _finished(self, s: Value, bias: Line | None, at: Value, inside: Value | None) -> Value:
        """Scores capped, with the bias."""
        if self.cap is not None:
            s = self.compute(self.cap, s)
        return s if bias is None else s + self.f.convert(self._many(bias, at, inside), self.acc)

    def _many(self, line: Line, at: Value, inside: Value | None) -> Value:
        """Elements of a mask or bias along the keys; one for all where it broadcasts."""
        x, start = line
        if x.strides[3] == 0:
            return self.f.splat(self.f.load(x.element, start), self.lanes)
        kind, place = x.element.vector(self.lanes), self.f.address(start, at, x.element)
        if inside is None:
            return self.f.load(kind, place)
        return self.f.masked_load(kind, place, inside)

    def _weights(self, scores: Value, base: Value, width: Value) -> Value:
        """exp(score - base) in place; their sum."""
        f, kind = self.f, self.acc.vector(self.lanes)
        wide = f.splat(base, self.lanes)
        abreast = _ABREAST if f.target.vector_registers > 16 else 1
        zeros = [f.constant(kind, 0.0)] * abreast
        with f.loop(0, width, self.lanes * abreast, zeros) as step:
            sums = list[Value]()
            for j in range(abreast):
                at = step.index + j * self.lanes
                p = self.compute(self.exp, f.load(kind, scores, at) - wide)
                f.store(p, scores, at)
                sums.append(step.values[j] + p)
            step.carry(*sums)
        sums = step.results
        while len(sums) > 1:
            sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
        return f.reduce(sums[0], lambda a, b: a + b)

    def _scale(self, row: Value, factor: Value) -> None:
        """What the row has summed, relative to the new largest score."""
        f, kind = self.f, self.acc.vector(self.lanes)
        wide = f.splat(factor, self.lanes)
        with f.loop(0, self.blocks.o_line, self.lanes) as step:
            f.store(f.load(kind, row, step.index) * wide, row, step.index)
