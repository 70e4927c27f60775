"""Compute what depends on constants alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np

from ..declare.arrays import Array, Encoded, np_dtype, type_of
from ..declare.evaluate import apply
from ..errors import TreadleError
from ..ir.graph import Graph, Node, Value
from ..ops.library import REGISTRY
from ..records import dataclass
from ..rewrite.constants import array_value, number_of
from ..transforms.clone import Rebuild
from ..transforms.inline import inline
from .base import Context, Pass, at, unique_name
from .dequantise import by_rows
from .known import LEAVES, number_at, record_array, record_number, storable, uniform

TOTAL = frozenset({"expand", "transpose", "unsqueeze"})
"""Views that cannot fail at run time, whatever the sizes are."""

GENERATORS = frozenset({"iota", "range", "eye"})
"""Operators whose elements follow from their place: kept, since a large constant costs more."""


@dataclass(frozen=True, slots=True)
class ConstantFold(Pass):
    """Evaluates nodes whose operands are constants or frozen parameters.

    A result of more than `limit` bytes is folded only when it is no larger than its operands.
    Weights are dequantised whatever their size, since no run could go without; a device that keeps
    them quantised has taken them before. What comes from parameters becomes a parameter, unless it
    has at most `inline` bytes. A branch on a constant is replaced by the branch taken. Equal
    elements everywhere become `full`.
    """

    name: ClassVar[str] = "constant_fold"
    limit: int = 1 << 20
    inline: int = 1024

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Copy the graph, folding on the way."""
        work = _Fold(self, graph, ctx)
        out = work.graph(graph)
        ctx.counts(work.did, work.stopped, self)
        if not work.changed:
            return graph
        out.params += work.added
        out.captures = out.free_values()
        return out


class _Fold(Rebuild):
    __slots__ = ("added", "ctx", "did", "frozen", "known", "options", "stopped", "used", "whole")

    def __init__(self, options: ConstantFold, whole: Graph, ctx: Context) -> None:
        super().__init__(self.fold)
        self.options, self.whole, self.ctx = options, whole, ctx
        self.used = {v.name for n in whole.walk() for v in n.uses()} if ctx.params else set[str]()
        self.added: list[Value] = []
        self.known: dict[Value, Array] = {}
        self.frozen: set[Value] = set()
        self.did: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()

    def param(self, value: Value) -> Value:
        """A frozen parameter: a constant in the graph when it is small, else known data."""
        array = self.ctx.params.get(value.name)
        if array is None or isinstance(array, Encoded) or value.name not in self.used:
            return value
        self.known[value] = array
        self.frozen.add(value)
        if array.nbytes > self.options.inline or not storable(value.dtype):
            return value
        self.changed = True
        self.did["parameter made a constant"] += 1
        made = record_array(array, value.dtype)
        made.name = value.name
        return made

    def fold(self, node: Node) -> Sequence[Value] | None:
        """Known values for the outputs of `node`."""
        if node.op in LEAVES:
            return self._canonical(node)
        if node.regions:
            return self._branch(node)
        arrays: list[Array] = []
        for v in node.inputs:
            producer = v.producer
            if v not in self.known and (producer is None or producer.op not in LEAVES):
                return None
        if (numbers := self._uniform(node)) is not None:
            return numbers
        for v in node.inputs:
            if (array := self._array(v)) is None:
                return None
            arrays.append(array)
        return self._evaluate(node, arrays)

    def _array(self, v: Value) -> Array | None:
        found = self.known.get(v)
        return array_value(v) if found is None else found

    def _canonical(self, node: Node) -> Sequence[Value] | None:
        """A constant whose elements are one number, as `full`."""
        out = node.outputs[0]
        if node.op != "constant" or (array := array_value(out)) is None or (
                array.nbytes > self.options.limit):
            return None
        if (number := uniform(array, out.dtype)) is None:
            return None
        self.did["constant of equal elements"] += 1
        return (record_number(number, out.type),)

    def _branch(self, node: Node) -> Sequence[Value] | None:
        if node.op != "if" or (array := self._array(node.inputs[0])) is None:
            return None
        taken = node.regions["then" if bool(array.reshape(())) else "orelse"]
        self.did["branch on a constant"] += 1
        return inline(taken, ())

    def _uniform(self, node: Node) -> Sequence[Value] | None:
        """An elementwise operator or a view of numbers that are the same everywhere."""
        kind = REGISTRY[node.op].kind
        if not node.inputs or kind not in ("elementwise", "view"):
            return None
        numbers = [number_of(v) for v in node.inputs]
        if any([n is None for n in numbers]):
            return None
        given = cast("list[complex]", numbers)
        out = self._same_view(node, given) if kind == "view" else self._scalars(node, given)
        if out is None:
            return None
        self.did[node.op] += 1
        return tuple([record_number(n, v.type) for n, v in zip(out, node.outputs, strict=True)])

    @staticmethod
    def _same_view(node: Node, numbers: list[complex]) -> list[complex] | None:
        static = all([isinstance(d, int) for v in node.outputs for d in v.shape])
        return numbers * len(node.outputs) if static or node.op in TOTAL else None

    def _scalars(self, node: Node, numbers: list[complex]) -> list[complex] | None:
        if node.reads() or not all([storable(v.dtype) and v.dtype.sort != "string"
                                    for v in node.outputs]):
            return None
        arrays = [np.asarray(n).astype(np_dtype(v.dtype))
                  for n, v in zip(numbers, node.inputs, strict=True)]
        out = self._apply(node, arrays)
        return None if out is None else [
            number_at(a, v.dtype) for a, v in zip(out, node.outputs, strict=True)]

    def _evaluate(self, node: Node, arrays: list[Array]) -> Sequence[Value] | None:
        if node.reads() or not all([storable(v.dtype) for v in node.outputs]):
            return None
        room = max(self.options.limit, sum([a.nbytes for a in arrays]))
        for v in node.outputs:
            size = v.type.nbytes()
            if isinstance(size, int) and size > room and node.op != "dequantize_linear":
                self.stopped[f"{at(node)}: a result of {size} bytes"] += 1
                return None
        if (out := self._apply(node, arrays)) is None:
            return None
        if node.op in GENERATORS and sum([a.nbytes for a in out]) > self.options.inline:
            self.known.update(zip(node.outputs, out, strict=True))
            return None
        self.did[node.op] += 1
        frozen = not self.frozen.isdisjoint(node.inputs)
        return tuple([self._store(a, v, frozen) for a, v in zip(out, node.outputs, strict=True)])

    def _apply(self, node: Node, arrays: list[Array]) -> Sequence[Array] | None:
        try:
            with np.errstate(all="ignore"):
                return by_rows(node, arrays) if node.op == "dequantize_linear" else apply(
                    node, REGISTRY[node.op], arrays, node.attrs, {}, {})
        except TreadleError as e:
            self.stopped[f"{at(node)}: {e.message}"] += 1
        except (ValueError, IndexError, TypeError, ArithmeticError, KeyError, MemoryError) as e:
            self.stopped[f"{at(node)}: {type(e).__name__}: {e}"] += 1
        return None

    def _store(self, array: Array, old: Value, frozen: bool) -> Value:
        """The value as a constant, or as a new parameter when it comes from parameters."""
        type_ = type_of(array)
        if not frozen or array.nbytes <= self.options.inline:
            return record_array(array, type_.dtype)
        assert old.producer is not None
        source = next((v.name for v in old.producer.inputs if v in self.frozen), "")
        name = unique_name(self.whole, old.name or f"{source}.{old.producer.op}", self.ctx.params)
        value = Value(type_, name)
        self.added.append(value)
        self.frozen.add(value)
        self.known[value] = self.ctx.params[name] = np.asarray(array, order="C")
        return value
