"""Sorting rows: keys whose integer order is the operator's order, merged in scratch memory.

A short list of the best is kept by insertion instead, where only a few elements are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...codegen.llvm.kernel import Kernel
from ...codegen.llvm.scalars import MEMORY, evaluate
from ...codegen.llvm.text import I1, I64, PTR, Function, Index, Module, Value
from ...declare import m
from ...declare.scalar import Scalar, bitcast_to, cast_to, const, make, var
from ...ir.dims import Size, bounds
from ...ir.dims import evaluate as number
from ...ir.graph import Node
from ...ir.types import DTYPES, F32, axis_of
from ...ir.types import I32 as WHOLE32
from ...ir.types import I64 as WHOLE64
from ...memory.views import View
from ...records import dataclass, field
from .lowered import CHUNK_WORK, MOST_CHUNKS, Binding, Lowered
from .pointwise import Lowering, refuse_dtypes

_FEW = 32
"""Elements up to which a list of the best is kept by insertion."""
_TOO_MANY = 1
"""The code of asking for more elements than an axis has."""


def order_key(x: Scalar, descending: bool) -> Scalar:
    """An integer of 32 or 64 bits that orders as `ops.scan1d` says: NaN on top, -0 equals 0."""
    if x.dtype.sort == "float":
        x = cast_to(x, F32) if x.dtype.bits < 32 else x
        whole, nan = (WHOLE32, 0x7FC00000) if x.dtype is F32 else (WHOLE64, 0x7FF8 << 48)
        bits = m.where(m.ne(x, x), const(nan, whole), bitcast_to(x + 0.0, whole))
        sign = make("shift_right", bits, const(whole.bits - 1, whole))
        most = const((1 << whole.bits - 1) - 1, whole)
        key = make("bitwise_xor", bits, make("bitwise_and", sign, most))
    elif x.dtype is DTYPES["u64"]:
        key = make("bitwise_xor", bitcast_to(x, WHOLE64), const(-(1 << 63), WHOLE64))
    else:
        narrow = x.dtype.bits < 32 or x.dtype is WHOLE32
        key = cast_to(x, WHOLE32 if narrow else WHOLE64)
    return m.not_(key) if descending else key


@dataclass(frozen=True)
class Order:
    """Rows of x along an axis: the first `count` elements in order, and where they were.

    `values` and `places` are the outputs that are asked for.
    """

    x: View
    axis: int
    descending: bool
    count: Size
    values: View | None = None
    places: View | None = None
    names: dict[Size, str] = field(default_factory=dict[Size, str])

    def views(self) -> list[View]:
        """Buffers in the order of the kernel's words."""
        return [self.x, *(v for v in (self.values, self.places) if v is not None)]

    def word(self, size: Size) -> Index | str:
        """A size as a number, or as the name of a word."""
        return size if isinstance(size, int) else self.names.setdefault(size, f"n{len(self.names)}")

    @property
    def few(self) -> bool:
        """Whether the best are kept by insertion."""
        return isinstance(self.count, int) and self.count <= _FEW and (
            self.x.shape[self.axis] != self.count)

    @property
    def key(self) -> Scalar:
        """The key of an element, variable 0."""
        return order_key(var(0, self.x.base.dtype), self.descending)

    def lowered(self) -> Lowered:
        """The kernel call."""
        for v in self.views():
            for s in (*v.shape, *v.strides):
                self.word(s)
        self.word(self.count)
        n, outs = self.x.shape[self.axis], self.views()[1:]
        rows: Size = 1
        for d, s in enumerate(self.x.shape):
            rows = rows * (1 if d == self.axis else s)
        held = self.count if self.few else n
        arrays = (1 if self.few else 2) * (1 if self.key.dtype is WHOLE32 else 2)

        def chunks(binding: Binding) -> int:
            size = number(n, binding)
            work = number(rows, binding) * size * (8 if self.few else 8 * size.bit_length())
            return max(1, min(work // CHUNK_WORK, number(rows, binding), MOST_CHUNKS))

        return Lowered(self._identity(), lambda module, name: emit(module, self, name),
                       (*self.views(), *self.names), tuple([v.base for v in outs]), chunks,
                       lambda binding: 8 * arrays * (number(held, binding) + 1), self._fault)

    def _identity(self) -> str:
        sizes = [[self.word(s) for s in (*v.shape, *v.strides)] for v in self.views()]
        outs = (self.values is not None, self.places is not None)
        return (f"order {self.x.base.dtype} {self.axis} {self.descending} "
                f"{self.word(self.count)} {outs} {sizes}")

    def _fault(self, _: int, value: int, binding: Binding) -> str:
        return f"{number(self.count, binding)} elements of axis {self.axis} of size {value}"


def emit(module: Module, order: Order, name: str) -> Kernel:
    """Write the kernel. Its words: x, the outputs, the sizes."""
    buffers = [f"b{i}" for i in range(len(order.views()))]
    kernel = Kernel(module, name, [*((b, PTR) for b in buffers),
                                   *((n, I64) for n in order.names.values())])
    _Rows(kernel, order).run()
    kernel.finish()
    return kernel


class _Rows:
    """Writes one kernel: a loop over rows."""

    def __init__(self, kernel: Kernel, order: Order) -> None:
        self.kernel, self.order, self.f = kernel, order, kernel.function
        f: Function = self.f
        self.n, self.count = self.size(order.x.shape[order.axis]), self.size(order.count)
        self.packed = order.key.dtype is WHOLE32
        held = (self.count if order.few else self.n) + 1
        base = kernel.scratch()
        pieces = (1 if order.few else 2) * (1 if self.packed else 2)
        self.arrays = [f.address(base, held * i, I64) for i in range(pieces)]

    def size(self, size: Size) -> Value:
        """A size as a value."""
        word = self.order.word(size)
        return self.kernel[word] if isinstance(word, str) else self.f.constant(I64, word)

    def run(self) -> None:
        """Every row of this chunk."""
        f, order = self.f, self.order
        others = [d for d in range(len(order.x.shape)) if d != order.axis]
        total = f.constant(I64, 1)
        for d in others:
            total = total * self.size(order.x.shape[d])
        low, high = self.kernel.share(total)
        with f.loop(low, high) as row:
            self._refuse()
            at = [f.constant(I64, 0)] * len(order.views())
            rest = row.index
            for d in reversed(others):
                size = self.size(order.x.shape[d])
                coordinate, rest = f.binary("urem", rest, size), f.binary("udiv", rest, size)
                at = [p + coordinate * self.size(v.strides[d])
                      for p, v in zip(at, order.views(), strict=True)]
            starts = [f.address(self.kernel[f"b{i}"], p, MEMORY[v.base.dtype.name])
                      for i, (p, v) in enumerate(zip(at, order.views(), strict=True))]
            found = self._best(starts[0]) if order.few else self._merged(starts[0])
            self._write(starts, found)

    def _refuse(self) -> None:
        """Leave if more is asked for than there is."""
        f = self.f
        if bounds(self.order.count - self.order.x.shape[self.order.axis])[1] <= 0:
            return
        fail, go = f.label("fail"), f.label("go")
        f.branch(f.compare("gt", self.count, self.n), fail, go)
        f.start(fail)
        self.kernel.fail(_TOO_MANY, self.n)
        f.start(go)

    def _element(self, start: Value, view: View, at: Value) -> Value:
        step = self.size(view.strides[self.order.axis])
        return self.f.address(start, at * step, MEMORY[view.base.dtype.name])

    def _entry(self, start: Value, at: Value) -> list[Value]:
        """What is sorted of an element: key and place in 64 bits, or in 64 each."""
        f, dtype = self.f, self.order.x.base.dtype
        x = f.load(MEMORY[dtype.name], self._element(start, self.order.x, at))
        x = f.compare("ne", x, 0) if dtype.name == "bool" else x
        key, = evaluate(f, [self.order.key], {var(0, dtype): x})
        if self.packed:
            return [f.cast("sext", key, I64) << 32 | at]
        return [key, at]

    def _get(self, arrays: Sequence[Value], at: Index) -> list[Value]:
        return [self.f.load(I64, a, at) for a in arrays]

    def _put(self, arrays: Sequence[Value], at: Index, entry: Sequence[Value]) -> None:
        for a, v in zip(arrays, entry, strict=True):
            self.f.store(v, a, at)

    def _best(self, start: Value) -> Sequence[Value]:
        """The first elements of the order, kept in a list that each better one enters."""
        f, k = self.f, self.count
        if self.order.count == 0:
            return self.arrays
        with f.loop(0, self.n) as step:
            entry, at = self._entry(start, step.index), step.index
            better = f.compare("lt", entry[0], f.load(I64, self.arrays[0], k - 1))
            filling = f.compare("lt", at, k)
            with f.when(better | filling):
                moving = f.constant(I64, 0)
                with f.loop(0, f.minimum(at + 1, k), 1, [moving, *entry]) as place:
                    moved, *mine = place.values
                    there = self._get(self.arrays, place.index)
                    enters = f.compare("ne", moved, 0) | f.compare("lt", mine[0], there[0]) | (
                        f.compare("eq", place.index, at))
                    self._put(self.arrays, place.index, [
                        f.select(enters, a, b) for a, b in zip(mine, there, strict=True)])
                    place.carry(f.cast("zext", enters, I64), *[
                        f.select(enters, b, a) for a, b in zip(mine, there, strict=True)])
        return self.arrays

    def _merged(self, start: Value) -> Sequence[Value]:
        """Bottom up: runs of 1, 2, 4 ... are merged from one half of the scratch to the other."""
        f = self.f
        half = len(self.arrays) // 2
        with f.loop(0, self.n) as step:
            self._put(self.arrays[:half], step.index, self._entry(start, step.index))
        bits = f.call("llvm.ctlz.i64", I64, self.n - 1, f.constant(I1, 0))
        passes = f.select(f.compare("gt", self.n, 1), 64 - bits, f.constant(I64, 0))
        with f.loop(0, passes, 1, self.arrays) as turn:
            source, target = turn.values[:half], turn.values[half:]
            run = f.binary("shl", f.constant(I64, 1), turn.index)
            with f.loop(0, self.n, run * 2) as pair:
                self._merge(source, target, pair.index, run)
            turn.carry(*target, *source)
        return turn.results[:half]

    def _merge(self, source: Sequence[Value], target: Sequence[Value], low: Value, run: Value
               ) -> None:
        """Two neighbouring runs; equal keys keep their order."""
        f = self.f
        middle, high = f.minimum(low + run, self.n), f.minimum(low + run * 2, self.n)
        with f.loop(low, high, 1, [low, middle]) as place:
            i, j = place.values
            left, right = self._get(source, i), self._get(source, j)
            mine = f.compare("ge", j, high) | f.compare("le", left[0], right[0])
            mine = f.compare("lt", i, middle) & mine
            self._put(target, place.index, [
                f.select(mine, a, b) for a, b in zip(left, right, strict=True)])
            one = f.cast("zext", mine, I64)
            place.carry(i + one, j + (1 - one))

    def _write(self, starts: Sequence[Value], found: Sequence[Value]) -> None:
        """The outputs of a row."""
        f, order = self.f, self.order
        kind = MEMORY[order.x.base.dtype.name]
        with f.loop(0, self.count) as step:
            place = f.load(I64, found[-1], step.index)
            if self.packed:
                place = place & 0xFFFFFFFF
            outs = list(zip(starts[1:], order.views()[1:], strict=True))
            if order.values is not None:
                to, view = outs.pop(0)
                f.store(f.load(kind, self._element(starts[0], order.x, place)),
                        self._element(to, view, step.index))
            for to, view in outs:
                f.store(place, self._element(to, view, step.index))


def topk(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """The first k of the order; `sorted` or not, they come in order."""
    refuse_dtypes(*ins)
    return [Order(ins[0], _axis(node), bool(node.attrs["largest"]), cast(Size, node.attrs["k"]),
                  outs[0], outs[1]).lowered()]


def sort(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """The whole order; its elements, or for argsort their places."""
    refuse_dtypes(*ins)
    axis, places = _axis(node), node.op == "argsort"
    return [Order(ins[0], axis, bool(node.attrs["descending"]), ins[0].shape[axis],
                  None if places else outs[0], outs[0] if places else None).lowered()]


def _axis(node: Node) -> int:
    return axis_of(cast(int, node.attrs["axis"]), node.inputs[0].type.rank)


LOWERINGS: dict[str, Lowering] = {"topk": topk, "sort": sort, "argsort": sort}
