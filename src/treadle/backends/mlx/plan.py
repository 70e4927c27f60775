"""What is known of a graph before it runs: how each node runs, what it packs, what dies."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, cast

import mlx.core as mx
import numpy as np

from ...declare import evaluate as interpreter
from ...declare.arrays import Array
from ...declare.evaluate import Binding
from ...declare.room import check_room
from ...ir.dims import evaluate as bind_size
from ...ir.dims import symbols
from ...ir.graph import Graph, Node, Value
from ...ir.types import count
from ...ops.library import REGISTRY
from ...passes.raise_quantized import reshaped
from ...rewrite.constants import array_value
from .arrays import holds, to_mlx
from .claims import is_leaf, lowering, refusal
from .images import images
from .kernels.template import Launch
from .lowering import Join, Lowering, Pack
from .ready import ready

How: TypeAlias = Literal["leaf", "native", "host"]
SMALL = 1 << 16
"""Elements up to which values that follow from leaves are computed once, in NumPy."""
KEPT_LEAVES = 1024
Packed: TypeAlias = "tuple[tuple[Value, ...], Pack | Join]"


class Step:
    """One node, how it runs, and the values that nothing reads after it."""

    __slots__ = ("dead", "how", "images", "inner", "joined", "joint", "launches",
                 "lowering", "node", "op", "packed", "reads", "ready", "split")

    def __init__(self, node: Node, how: How, reads: tuple[str, ...], dead: tuple[Value, ...]
                 ) -> None:
        self.node, self.how, self.reads, self.dead = node, how, reads, dead
        self.op = REGISTRY[node.op]
        self.inner = interpreter.Step(node)
        self.launches: tuple[Launch, ...] = ()
        self.lowering = cast(Lowering, lowering(node)) if how == "native" else None
        self.split = len(node.inputs) - len(node.keys)
        self.images = how == "native" and images(node, self.op.kind == "elementwise")
        packs = self.lowering.pack if self.lowering else {}
        self.packed: dict[int, Packed] = {i: ((node.inputs[i],), p) for i, p in packs.items()}
        self.joined, self.joint = self._join()
        self.ready = ready(node, self.op, self.lowering, self.attrs({})) if (
            self.lowering and self.inner.fixed) else None

    def _join(self) -> tuple[tuple[int, ...], Packed | None]:
        """The operands that arrive in one form, and its key."""
        make = self.lowering.join if self.lowering else None
        if make is None or (found := make(self.node)) is None:
            return (), None
        return found[0], (tuple([reshaped(self.node.inputs[i]) for i in found[0]]), found[1])

    def attrs(self, binding: Binding) -> dict[str, object]:
        """The attributes, sizes as numbers."""
        if self.inner.fixed:
            return cast("dict[str, object]", self.inner.attrs)
        return {k: interpreter.bind_attr(v, binding) for k, v in self.inner.attrs.items()}


class Plans:
    """The steps of a graph and of every region inside, found once."""

    def __init__(self, graph: Graph) -> None:
        self._steps: dict[int, list[Step]] = {}
        self._leaf: dict[Value, tuple[str, ...]] = {}
        self._visit(graph)
        self.graph = graph

    def _visit(self, graph: Graph) -> None:
        steps = [self._step(n) for n in graph.nodes]
        seen = set(graph.outputs)
        for step in reversed(steps):
            values = dict.fromkeys((*step.node.uses(), *step.node.outputs))
            step.dead = tuple([v for v in values if v not in seen])
            seen.update(values)
        self._steps[id(graph)] = steps
        for node in graph.nodes:
            for region in node.regions.values():
                self._visit(region)

    def _step(self, node: Node) -> Step:
        if (reads := self._leaf_reads(node)) is not None:
            self._leaf.update((v, reads) for v in node.outputs)
            return Step(node, "leaf", reads, ())
        return Step(node, "host" if refusal(node) else "native", (), ())

    def _leaf_reads(self, node: Node) -> tuple[str, ...] | None:
        """The symbols that the outputs of a leaf depend on; None for what is no leaf."""
        own = {*node.reads(), *[s for v in node.outputs for d in v.shape for s in symbols(d)]}
        if is_leaf(node):
            shapes = [d for v in node.inputs for d in v.shape]
            return tuple(sorted(own | {s for d in shapes for s in symbols(d)}))
        if node.regions or node.makes() or not all(v in self._leaf for v in node.inputs):
            return None
        if not all(_small(v) for v in node.outputs):
            return None
        return tuple(sorted(own | {s for v in node.inputs for s in self._leaf[v]}))

    def of(self, graph: Graph) -> list[Step]:
        """The steps of the graph or of one of its regions."""
        return self._steps[id(graph)]

    def all(self) -> Iterator[Step]:
        """Every step."""
        for steps in self._steps.values():
            yield from steps

    def weights(self) -> tuple[list[Value], list[Packed]]:
        """Parameters that kernels read as they are, and those that they read packed."""
        params = {*self.graph.params}
        plain, packed = dict[Value, None](), dict[Packed, None]()
        for step in self.all():
            if step.how != "native":
                continue
            joint = step.joint
            if joint and not all(v in params or array_value(v) is not None for v in joint[0]):
                joint = None
            packed.update({joint: None} if joint else {})
            for i, v in enumerate(step.node.inputs):
                if v in params and not (joint and i in step.joined):
                    key = step.packed.get(i)
                    plain.update({} if key else {v: None})
                    packed.update({key: None} if key else {})
            for region in step.node.regions.values():
                plain.update({v: None for v in region.outputs if v in params and holds(v.dtype)})
        plain.update({v: None for v in self.graph.outputs if v in params and holds(v.dtype)})
        return list(plain), list(packed)

    def fixed(self, made: Mapping[Value, Array], names: Collection[str]) -> dict[Value, Array]:
        """Of these leaves, those that depend on no symbols but `names`."""
        return {v: a for v, a in made.items() if set(self._leaf[v]) <= {*names}}

    def check_room(self, binding: Binding) -> None:
        """Raise for a step whose outputs no machine holds."""
        for step in self._steps[id(self.graph)]:
            size = step.inner.nbytes
            if not isinstance(size, int) and binding.keys() >= step.inner.reads:
                check_room(bind_size(size, binding))


def _small(v: Value) -> bool:
    n = count(v.shape)
    return n <= SMALL if isinstance(n, int) else v.type.rank <= 1


class Leaves:
    """Values that follow from attributes and sizes, on both sides, for recent bindings."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], tuple[Array, ...]] = OrderedDict()
        self._device: dict[int, tuple[Array, mx.array]] = {}

    def host(self, step: Step, inputs: Mapping[Value, Array], binding: Binding
             ) -> tuple[Array, ...]:
        """The outputs of a leaf, read-only: they are kept, and may be outputs of the graph."""
        key = (step.node, *[binding[s] for s in step.reads])
        if (found := self._kept.get(key)) is None:
            found = interpreter.perform(step.inner, inputs, binding)
            for array in found:
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)
            self._kept[key] = found
            if len(self._kept) > KEPT_LEAVES:
                for old in self._kept.popitem(last=False)[1]:
                    self._device.pop(id(old), None)
        return found

    def on_device(self, arrays: Mapping[Value, Array]) -> dict[Value, mx.array]:
        """The MLX arrays of those that have one already."""
        held = self._device
        return {v: held[id(a)][1] for v, a in arrays.items() if id(a) in held}

    def device(self, array: Array) -> mx.array:
        """The MLX array of a leaf's NumPy array, which is made once and kept beside it."""
        if (found := self._device.get(id(array))) is None:
            out = to_mlx(array)
            mx.eval(out)
            found = self._device[id(array)] = (array, out)
        return found[1]


def empty_like(arrays: Sequence[object]) -> bool:
    """Whether one of the arrays has no elements."""
    return any(isinstance(a, mx.array) and not a.size for a in arrays)


