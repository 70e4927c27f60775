"""Import a whole model: opsets, inputs, initializers, nodes, outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from ...declare.arrays import Array
from ...errors import ImportFailure, OperatorError
from ...ir.graph import Builder, Graph, Value
from ...ir.types import DType, Shape, TensorType
from .context import LateBinding, State
from .importing import BodyImporter, Scope, import_initializers, ordered
from .reading import dtype_of
from .report import Failures

IR_VERSIONS = range(1, 15)
KNOWN_DOMAINS = {"", "ai.onnx.ml", "com.microsoft", "ai.onnx.preview", "ai.onnx.preview.training",
                 "ai.onnx.training"}


@dataclass(slots=True)
class Imported:
    """A graph with the data of its parameters, and remarks made on the way."""

    graph: Graph
    params: dict[str, Array]
    notes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Declared:
    """An input as the file declares it; `shape` is None when the rank is not stated."""

    name: str
    dtype: DType
    shape: Shape | None


def import_model(proto: onnx.ModelProto, folder: Path | None, file: str, *,
                 statics: Mapping[str, Array] | None = None,
                 shapes: Mapping[str, tuple[int, ...]] | None = None) -> Imported:
    """The graph of a model.

    `statics` are inputs whose values are known now, `shapes` fixes the shapes of inputs. Raises
    LateBinding when the graph depends on more of either.
    """
    statics, shapes = statics or {}, shapes or {}
    opsets = opset_versions(proto, file)
    functions = {("" if f.domain == "ai.onnx" else f.domain, f.name): f for f in proto.functions}
    state = State(file, folder, functions, statics)
    failures = Failures(file)
    body = BodyImporter(state, opsets, failures, Scope())
    with Builder(proto.graph.name or "model") as builder:
        builder.loc = file
        state.add_param = lambda name, t: builder.input(name, t, param=True)
        try:
            _inputs(body, builder, proto.graph, shapes)
            import_initializers(body, proto.graph)
            body.nodes(ordered(proto.graph, file))
            failures.check()
            outputs = _outputs(body, proto.graph)
        except (ImportFailure, OperatorError) as e:
            symbolic = any(not isinstance(s, int) for v in builder.graph.inputs
                           for s in v.type.shape)
            told = {x for names in state.witnesses.values() for x in names}
            if failures.rows or not told and (shapes or not symbolic):
                raise
            raise LateBinding(f"the graph cannot be built for symbolic sizes: {e.message}",
                              tuple(sorted(told)), symbolic) from e
        graph = builder.finish(outputs, [v.name for v in proto.graph.output])
    return Imported(graph, state.params, state.notes)


def declared_inputs(proto: onnx.ModelProto, file: str) -> list[Declared]:
    """The inputs that a caller gives, as the file declares them."""
    body = BodyImporter(State(file, None, {}, {}), {}, Failures(file), Scope())
    held = {t.name for t in proto.graph.initializer}
    out: list[Declared] = []
    for v in proto.graph.input:
        if v.name in held:
            continue
        t = body.type_proto(v.type, v.name)
        if t is None:
            out.append(Declared(v.name, dtype_of(v.type.tensor_type.elem_type, v.name), None))
        else:
            out.append(Declared(v.name, t.dtype, t.shape))
    return out


def opset_versions(proto: onnx.ModelProto, file: str) -> dict[str, int]:
    """Opset versions by domain; the same domain twice is accepted when the versions agree."""
    if proto.ir_version not in IR_VERSIONS:
        raise ImportFailure(f"{file}: IR version {proto.ir_version}; 1 to {IR_VERSIONS[-1]} are "
                            "known", hint="save the model with an older onnx package")
    opsets: dict[str, int] = {}
    used = {n.domain for n in proto.graph.node}
    for o in proto.opset_import:
        domain = "" if o.domain == "ai.onnx" else o.domain
        if opsets.setdefault(domain, o.version) != o.version and domain in used:
            raise ImportFailure(f"{file}: domain '{domain or 'ai.onnx'}' is imported as opset "
                                f"{opsets[domain]} and {o.version}")
    if opsets.get("", 1) < 1 or opsets.get("", 1) > onnx.defs.onnx_opset_version():
        raise ImportFailure(
            f"{file}: opset {opsets['']}; 1 to {onnx.defs.onnx_opset_version()} are known",
            hint="re-export the model with an older opset")
    return opsets


def _inputs(body: BodyImporter, builder: Builder, graph: onnx.GraphProto,
            shapes: Mapping[str, tuple[int, ...]]) -> None:
    held = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    for v in graph.input:
        if v.name in held or v.name in body.scope.values:
            continue
        if v.name in body.state.statics:
            body.scope.values[v.name] = body.constant(body.state.statics[v.name], v.name)
            continue
        if v.name in shapes and v.type.HasField("tensor_type"):
            dtype = dtype_of(v.type.tensor_type.elem_type, v.name)
            t: TensorType | None = TensorType(shapes[v.name], dtype)
        else:
            t = body.type_proto(v.type, v.name)
        if t is None:
            raise LateBinding(f"the rank of input {v.name} is not stated", shapes=True)
        value = builder.input(v.name, t)
        body.state.leaves[id(value)] = v.name
        body.scope.values[v.name] = value


def _outputs(body: BodyImporter, graph: onnx.GraphProto) -> list[Value]:
    out: list[Value] = []
    for v in graph.output:
        body.node_name = f"graph output '{v.name}'"
        value = body._input(v.name)
        assert value is not None, "failures were checked"
        _compare(body, v, value.type)
        out.append(value)
    return out


def _compare(body: BodyImporter, declared: onnx.ValueInfoProto, found: TensorType) -> None:
    """Note where the file's declared output type contradicts what its operators give."""
    if not declared.type.HasField("tensor_type"):
        return
    tensor = declared.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    wrong = tensor.elem_type and dtype_of(tensor.elem_type, declared.name) is not found.dtype
    if tensor.HasField("shape"):
        wrong = wrong or len(dims) != found.rank or any(
            isinstance(a, int) and b is not None and b >= 0 and a != b
            for a, b in zip(found.shape, dims, strict=False))
    if wrong:
        shown = ",".join("?" if d is None else str(d) for d in dims)
        body.state.notes.append(f"output {declared.name} is declared [{shown}], its operators "
                                f"give {found}")
