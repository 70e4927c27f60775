"""Import the nodes of a graph or function body through the entry table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from ...declare.arrays import Array, type_of
from ...errors import Declined, ImportFailure, OperatorError
from ...ir.graph import Value, current
from ...ir.types import TensorType
from .attributes import check_type, plain
from .context import Context, LateBinding, State
from .functions import bind_attributes, has_body, schema_function
from .protocol import AttributeProto, onnx
from .reading import tensor_array
from .registry import Importer, find
from .report import Failures

NAME_SHOWN = 200
"""Characters of a node's name that messages show."""
_INLINE_DEPTH = 32
"""Deepest nesting of functions and regions."""


_WRONG: dict[type[Exception], str] = {
    IndexError: "an operand, result or list has fewer parts than are needed",
    ZeroDivisionError: "a number or size must not be 0",
    OverflowError: "a number is too large"}
"""What a malformed node lacks when its entry stumbles over it."""
_STUMBLES = (*_WRONG, TypeError, ValueError, AttributeError, KeyError, AssertionError, MemoryError)


class Scope:
    """Names visible in a body: its own, then the enclosing ones."""

    def __init__(self, parent: Scope | None = None) -> None:
        self.values: dict[str, Value | None] = {}
        self.parent = parent

    def find(self, name: str) -> Value | None:
        """The value of a name; a KeyError when there is none, None when its node failed."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        raise KeyError(name)


class BodyImporter(Context):
    """Imports one body; regions and functions get importers of their own."""

    def __init__(self, state: State, opsets: Mapping[str, int], failures: Failures, scope: Scope,
                 depth: int = 0) -> None:
        super().__init__(state, opsets)
        self.failures, self.scope, self.depth = failures, scope, depth
        self.attributes: Mapping[str, AttributeProto] = {}
        if depth > _INLINE_DEPTH:
            raise ImportFailure(f"{state.file}: bodies nested deeper than {_INLINE_DEPTH}",
                                hint="a function that calls itself, or a damaged file")

    def nodes(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Import nodes in order."""
        self.state.room -= len(nodes)
        if self.state.room < 0:
            raise ImportFailure(f"{self.state.file}: its functions and bodies open into too many "
                                "nodes", hint="a damaged file, or functions that call each other "
                                "again and again")
        for node in nodes:
            domain = "" if node.domain == "ai.onnx" else node.domain
            name = (node.name or next((o for o in node.output if o), "?"))[:NAME_SHOWN]
            self.node_name = f"node {name} ({node.op_type})"
            with current().at(f"{self.state.file}: {self.node_name}"):
                self._node(node, domain)

    def _node(self, node: onnx.NodeProto, domain: str) -> None:
        inputs = [None if not n else self._input(n) for n in node.input]
        if any(n and v is None for n, v in zip(node.input, inputs, strict=True)):
            self._report_unknown(node, domain)  # an operand failed already
            self._define(node, [None] * len(node.output))
            return
        try:
            outputs = self._call(node, domain, inputs)
        except Declined as e:
            self.failures.add(domain, node.op_type, self.opsets.get(domain, 0), self.node_name, e)
            outputs = [None] * len(node.output)
        except LateBinding:
            raise
        except OperatorError as e:
            raise ImportFailure(f"{self.state.file}: {self.node_name}: {e.message}",
                                hint=e.hint) from e
        except _STUMBLES as e:
            shown = ", ".join(["-" if v is None else str(v.type) for v in inputs])
            raise ImportFailure(f"{self.state.file}: {self.node_name}: malformed, on ({shown}): "
                                f"{_WRONG.get(type(e), e)}", hint="the file is damaged, or "
                                "the operator is of a version that is not known here") from e
        self._define(node, outputs)

    def _report_unknown(self, node: onnx.NodeProto, domain: str) -> None:
        op, version = node.op_type, self.opsets.get(domain, 0)
        if not ((domain, op) in self.state.functions or find(domain, op, version)
                or has_body(domain, op, version)):
            reason = _no_importer(domain, op, version)
            self.failures.add(domain, op, version, self.node_name, reason)

    def _input(self, name: str) -> Value | None:
        try:
            return self.scope.find(name)
        except KeyError:
            raise ImportFailure(
                f"{self.state.file}: {self.node_name} reads '{name}', which no node, input or "
                "initializer gives",
                hint="the file is damaged: an initializer is missing") from None

    def _define(self, node: onnx.NodeProto, outputs: Sequence[Value | None]) -> None:
        for name, value in zip(node.output, outputs, strict=False):
            if not name:
                continue
            if name in self.scope.values:
                raise ImportFailure(f"{self.state.file}: {self.node_name} gives '{name}', which "
                                    "is there already", hint="the file is damaged: every name "
                                    "is given once")
            if value is not None and not value.name:
                value.name = name
            self.scope.values[name] = value
        for name in node.output[len(outputs):]:
            if name:
                raise ImportFailure(f"{self.state.file}: {self.node_name} has no output '{name}'")

    def _call(self, node: onnx.NodeProto, domain: str, inputs: list[Value | None]
              ) -> Sequence[Value | None]:
        self.version, self.outputs = self.opsets.get(domain, 0), tuple(node.output)
        if (fn := self.state.functions.get((domain, node.op_type))) is not None:
            return self._inline(fn, node, inputs)
        entry = find(domain, node.op_type, self.version)
        if entry is None:
            types = [None if v is None else v.type for v in inputs]
            fn = schema_function(self._resolved(node), domain, self.version, types)
            if fn is None:
                raise _no_importer(domain, node.op_type, self.version)
            return self._inline(fn, node, inputs)
        return self._entry(entry, node, inputs)

    def _resolved(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """`node` with the values that its references to attributes of a function stand for."""
        if not any(a.ref_attr_name for a in node.attribute):
            return node
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.attribute[:]
        for a in node.attribute:
            if not a.ref_attr_name or a.ref_attr_name in self.attributes:
                copy.attribute.add().CopyFrom(self.attributes[a.ref_attr_name]
                                              if a.ref_attr_name else a)
                copy.attribute[-1].name = a.name
        return copy

    def _entry(self, entry: Importer, node: onnx.NodeProto, inputs: list[Value | None]
               ) -> Sequence[Value | None]:
        if len(inputs) > entry.inputs and not entry.variadic:
            raise Declined(f"{node.op_type} with {len(inputs)} inputs; {entry.inputs} are known")
        inputs = inputs + [None] * (entry.inputs - len(inputs))
        for i, (need, v) in enumerate(zip(entry.required, inputs, strict=False)):
            if need and v is None:
                raise ImportFailure(f"{self.state.file}: {self.node_name} lacks its input {i}")
        if entry.whole and (not inputs or None in inputs[entry.inputs:]):
            raise ImportFailure(f"{self.state.file}: {self.node_name} lacks one of its inputs")
        attrs = {a.name: self._attribute(a) for a in node.attribute
                 if not a.ref_attr_name or a.ref_attr_name in self.attributes}
        if unknown := sorted(attrs.keys() - entry.attrs.keys()):
            raise Declined(f"the attribute '{unknown[0]}' of {node.op_type} is not supported")
        if missing := sorted(k for k, (_, need) in entry.attrs.items() if need and k not in attrs):
            raise ImportFailure(f"{self.state.file}: {self.node_name} lacks its attribute "
                                f"'{missing[0]}'")
        for name, value in attrs.items():
            check_type(value, entry.annotations[name],
                       f"{self.state.file}: {self.node_name}: attribute '{name}'")
        out = entry.fn(self, *inputs, **{entry.attrs[k][0]: v for k, v in attrs.items()})
        if out is None:
            return [None] * len(node.output)
        return list(out) if isinstance(out, tuple | list) else [out]

    def _attribute(self, proto: AttributeProto) -> object:
        if proto.ref_attr_name:
            proto = self.attributes[proto.ref_attr_name]
        where = f"{self.state.file}: {self.node_name}: attribute '{proto.name}'"
        t = AttributeProto
        if proto.type == t.TENSOR:
            return tensor_array(proto.t, self.state.beside, where)
        if proto.type == t.TYPE_PROTO:
            return self.type_proto(proto.tp, "type")
        if proto.type == t.GRAPH:
            return RegionImporter(self, proto.g)
        if proto.type in (t.SPARSE_TENSOR, t.TENSORS):
            return proto.sparse_tensor if proto.type == t.SPARSE_TENSOR else tuple(
                tensor_array(x, self.state.beside, where) for x in proto.tensors)
        return plain(proto, where)

    def _inline(self, fn: onnx.FunctionProto, node: onnx.NodeProto, inputs: list[Value | None]
                ) -> Sequence[Value | None]:
        opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in fn.opset_import}
        body = BodyImporter(self.state, {**self.opsets, **opsets}, self.failures, Scope(),
                            self.depth + 1)  # published bodies may leave their own imports out
        body.reached = self.reached
        body.attributes = bind_attributes(fn, node, self.attributes)
        inner = body.scope.values
        for i, name in enumerate(fn.input):
            if i < len(inputs) and inputs[i] is not None:
                inner[name] = inputs[i]
        absent = {n for n in fn.input if n not in inner}
        kept = [_without(n, absent) for n in fn.node]
        body.nodes(kept)
        for i, name in enumerate(fn.output[:len(node.output)]):
            if node.output[i] and name not in inner:
                raise ImportFailure(f"{self.state.file}: {self.node_name}: the function gives no "
                                    f"'{name}'", hint="the file is damaged")
        return [inner.get(name) for name in fn.output]


def _no_importer(domain: str, op: str, version: int) -> Declined:
    return Declined(f"no importer for {domain or 'ai.onnx'}::{op} at opset {version}")


def _without(node: onnx.NodeProto, absent: set[str]) -> onnx.NodeProto:
    """`node` with inputs that the caller left out spelled as absent."""
    if not absent.intersection(node.input):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = ["" if n in absent else n for n in node.input]
    return copy


class RegionImporter:
    """A graph attribute: call it with values, inside an open builder, to record its body."""

    def __init__(self, outer: BodyImporter, graph: onnx.GraphProto) -> None:
        self.outer, self.graph = outer, graph
        self.reached: tuple[tuple[Value, bool], ...] = ()
        self.inputs = tuple(v.name for v in graph.input)
        self.outputs = tuple(v.name for v in graph.output)

    def output_type(self, index: int) -> TensorType | None:
        """The declared type of a body output, or None when its rank is not stated."""
        proto = self.graph.output[index]
        return self.outer.type_proto(proto.type, proto.name) if proto.HasField("type") else None

    def __call__(self, *args: Value) -> tuple[Value, ...]:
        """Record the body on these values; what it reads from outside is captured."""
        outer = self.outer
        body = BodyImporter(outer.state, outer.opsets, outer.failures, Scope(outer.scope),
                            outer.depth + 1)
        body.attributes, body.reached = outer.attributes, (*outer.reached, *self.reached)
        body.node_name = outer.node_name
        if len(args) != len(self.inputs):
            raise ImportFailure(f"{outer.state.file}: {outer.node_name}: its body takes "
                                f"{len(self.inputs)} values, the operator gives {len(args)}")
        body.scope.values.update(zip(self.inputs, args, strict=True))
        import_initializers(body, self.graph)
        body.nodes(ordered(self.graph, body.state.file))
        found = [body._input(name) for name in self.outputs]
        if any(v is None for v in found):
            raise Declined("its body uses what is not supported")
        return tuple(v for v in found if v is not None)


def import_initializers(body: BodyImporter, graph: onnx.GraphProto) -> None:
    """Make the initializers of a graph known; large or floating ones become parameters."""
    for proto in graph.initializer:
        where = f"{body.state.file}: initializer '{proto.name}'"
        body.scope.values[proto.name] = _initializer(
            body, proto.name, tensor_array(proto, body.state.beside, where))
    for sparse in graph.sparse_initializer:
        from .sparse import dense

        name = sparse.values.name
        body.scope.values[name] = _initializer(body, name, dense(sparse, body.state, name))


def _initializer(body: BodyImporter, name: str, array: Array) -> Value:
    trained = type_of(array).dtype.sort == "float"
    if not trained or array.size <= 1:
        if trained and not body.depth:
            body.state.constants[name] = array
        return body.constant(array, name)
    unique = name if name not in body.state.params else body.state.fresh(name)
    return body.param(unique, array)


def ordered(graph: onnx.GraphProto, file: str) -> list[onnx.NodeProto]:
    """Nodes in an order where operands come first; a cycle is an error that names it."""
    made = {o: i for i, n in enumerate(graph.node) for o in n.output if o}
    reads = [{made[x] for x in _reads(n) if x in made} for n in graph.node]
    if all(j < i for i, js in enumerate(reads) for j in js):
        return list(graph.node)
    readers: dict[int, list[int]] = {}
    for i, js in enumerate(reads):
        for j in js:
            readers.setdefault(j, []).append(i)
    missing = [len(js) for js in reads]
    ready = [i for i, n in enumerate(missing) if not n]
    out: list[int] = []
    while ready:
        out.append(i := heappop(ready))
        for k in readers.get(i, ()):
            missing[k] -= 1
            if not missing[k]:
                heappush(ready, k)
    if len(out) < len(reads):
        names = ", ".join([n.name or n.op_type for n, m in zip(graph.node, missing, strict=True)
                           if m][:5])
        raise ImportFailure(f"{file}: the graph is cyclic; no order for the nodes {names[:200]}")
    return [graph.node[i] for i in out]


def _reads(node: onnx.NodeProto) -> set[str]:
    names = {n for n in node.input if n}
    for a in node.attribute:
        for g in ([a.g] if a.type == AttributeProto.GRAPH else []):
            own = {v.name for v in (*g.input, *g.initializer)}
            own.update(o for n in g.node for o in n.output)
            inner = {x for n in g.node for x in _reads(n)} | {v.name for v in g.output}
            names |= inner - own
    return names
