"""Copy a graph node by node, letting a function replace nodes on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ..declare.opdef import infer
from ..ir.dims import Dim, Size, substitute, symbol_name
from ..ir.graph import Attr, Attrs, Builder, Graph, Node, Value
from ..ir.types import TensorType

Visit: TypeAlias = Callable[[Node], "Sequence[Value] | None"]
"""Given a copied node that is not recorded yet: values to use instead, or None to record it.

The copy reads the new graph's values and its regions are rebuilt already. A visitor may record
other nodes in the open builder; they get the node's source location.
"""


class Rebuild:
    """One copy of a graph and its regions.

    A size symbol entered in `sizes` is replaced in every node that follows; output types are
    inferred again where an input's type, a region or an attribute changed. Unless all is to be
    `fresh`, leaves and nodes that read nothing new stand in both graphs.
    """

    __slots__ = ("changed", "env", "expand", "fresh", "sizes", "visit")

    def __init__(self, visit: Visit, expand: Callable[[Node], bool] = lambda _: False,
                 fresh: bool = False) -> None:
        self.visit, self.expand, self.fresh = visit, expand, fresh
        self.env: dict[Value, Value] = {}
        self.sizes: dict[str, Size] = {}
        self.changed = False

    def graph(self, old: Graph) -> Graph:
        """The copy of `old`; what it captures is read through the values copied so far."""
        with Builder(old.name, self.expand) as b:
            self.leaves(old, b)
            for node in old.nodes:
                self._node(node, b)
            return b.finish([self.env.get(v, v) for v in old.outputs], old.output_names)

    def leaves(self, old: Graph, b: Builder) -> None:
        """Give the copy its inputs and parameters."""
        for v in old.inputs:
            self.env[v] = made = self._leaf(v)
            b.graph.inputs.append(made)
        for v in old.params:
            made = self._leaf(v)
            b.graph.params.append(made)
            self.env[v] = self.param(made)

    def _leaf(self, v: Value) -> Value:
        type_ = self.type(v.type)
        return v if type_ is v.type and not self.fresh else Value(type_, v.name)

    def _region(self, old: Graph) -> Graph:
        """The copy of a region; the region itself where nothing in it is new."""
        new = self.graph(old)
        same = not self.fresh and new.outputs == old.outputs and new.nodes == old.nodes and (
            new.inputs == old.inputs and new.params == old.params)
        return old if same else new

    def param(self, value: Value) -> Value:
        """What stands for a parameter; a subclass may record another value."""
        return value

    def type(self, type_: TensorType) -> TensorType:
        """`type_` under the sizes that have been replaced."""
        if not self.sizes or all([isinstance(d, int) for d in type_.shape]):
            return type_
        return type_.with_(shape=tuple([substitute(d, self.sizes) for d in type_.shape]))

    def _node(self, node: Node, b: Builder) -> None:
        copy = self._copy(node)
        b.loc = node.loc
        found = self.visit(copy)
        if found is None:
            b.graph.nodes.append(copy)
            found = copy.outputs
            if copy is node:
                for v in found:
                    self.env[v] = v
                return
        else:
            self.changed = True
            keep_names(node.outputs, found)
        for old, new in zip(node.outputs, found, strict=True):
            self.env[old] = new
            if new.type is not old.type and new.type != old.type:
                self._learn(node, old, new)

    def _learn(self, node: Node, old: Value, new: Value) -> None:
        """A size that only `node` made has another name or a number now."""
        makes = node.makes()
        for before, after in zip(old.type.shape, new.type.shape, strict=True):
            if before != after and (name := symbol_name(before)) in makes and name is not None:
                self.sizes[name] = after

    def _copy(self, node: Node) -> Node:
        env = self.env
        inputs = tuple([env.get(v, v) for v in node.inputs])
        regions = node.regions and {k: self._region(g) for k, g in node.regions.items()}
        attrs = self._attrs(node)
        if not self.fresh and inputs == node.inputs and regions == node.regions and (
                attrs is node.attrs):
            return node
        copy = Node(node.op, inputs, attrs, (), node.keys, regions, node.loc)
        types = [v.type for v in node.outputs]
        if regions or attrs is not node.attrs or any([
                a.type is not b.type and a.type != b.type
                for a, b in zip(node.inputs, inputs, strict=True)]):
            types = infer(copy)
        copy.outputs = tuple([Value(t, v.name, copy, v.index)
                              for t, v in zip(types, node.outputs, strict=True)])
        return copy

    def _attrs(self, node: Node) -> Attrs:
        if not self.sizes or self.sizes.keys().isdisjoint(node.reads()):
            return node.attrs
        return {k: substitute_attr(v, self.sizes) for k, v in node.attrs.items()}


def keep_names(old: Sequence[Value], new: Sequence[Value]) -> None:
    """Let nameless values that replace others take their names."""
    for a, b in zip(old, new, strict=True):
        if a.name and not b.name:
            b.name = a.name


def substitute_attr(value: Attr, sizes: Mapping[str, Size]) -> Attr:
    """`value` with size symbols replaced."""
    if isinstance(value, tuple):
        return tuple([substitute_attr(v, sizes) for v in value])
    return substitute(value, sizes) if isinstance(value, Dim) else value


def rebuild(graph: Graph, visit: Visit) -> Graph:
    """`graph` with the nodes that `visit` replaces; `graph` itself when there is none."""
    work = Rebuild(visit)
    new = work.graph(graph)
    return new if work.changed else graph


def clone(graph: Graph) -> Graph:
    """A copy that shares no value or node with `graph`."""
    return Rebuild(lambda _: None, fresh=True).graph(graph)


def bind_sizes(graph: Graph, sizes: Mapping[str, Size]) -> Graph:
    """`graph` with size symbols replaced by numbers or other sizes, inputs included."""
    work = Rebuild(lambda _: None, fresh=True)
    work.sizes.update(sizes)
    return work.graph(graph)
