"""Import a whole model: opsets, inputs, initializers, nodes, outputs."""

from __future__ import annotations

from collections.abc import Mapping

from ...declare.arrays import Array
from ...errors import ImportFailure, OperatorError
from ...ir.dims import Size, implied_limit, symbols
from ...ir.graph import Builder, Graph, Value
from ...ir.types import DType, Shape, TensorType
from ...records import dataclass, field
from .conditions import Key
from .context import LateBinding, State
from .importing import BodyImporter, Scope, import_initializers, ordered
from .protocol import onnx
from .reading import Beside, dtype_of
from .report import Failures

IR_VERSIONS = range(1, 15)
CERTAIN = 28
"""The newest operator set of the oldest onnx package that may be installed."""
_VERSIONS = 1 << 16
"""No operator set has so many versions."""
KNOWN_DOMAINS = {"", "ai.onnx.ml", "com.microsoft", "ai.onnx.preview", "ai.onnx.preview.training",
                 "ai.onnx.training"}


@dataclass(slots=True)
class Imported:
    """A graph with the data of its parameters, and remarks made on the way.

    `constants` are the floating initializers of at most one element, constants of the graph.
    """

    graph: Graph
    params: dict[str, Array]
    notes: list[str] = field(default_factory=list[str])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])


@dataclass(frozen=True, slots=True)
class Declared:
    """An input as the file declares it; `shape` is None when the rank is not stated."""

    name: str
    dtype: DType
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the inputs before the graph is built.

    `statics` are values of inputs, `fixed` numbers for symbols, `shapes` whole shapes of inputs
    whose rank the file does not state, `choices` branches that are taken.
    """

    statics: Mapping[str, Array] = field(default_factory=dict[str, Array])
    fixed: Mapping[str, Size] = field(default_factory=dict[str, Size])
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])
    choices: Mapping[Key, bool] = field(default_factory=dict[Key, bool])


def import_model(proto: onnx.ModelProto, beside: Beside, file: str,
                 facts: Facts | None = None) -> Imported:
    """The graph of a model; LateBinding when it depends on facts that are not known yet.

    Where two sizes n and min(n, c) must be equal, the model works only for n <= c: the symbol then
    gets that bound, and the import starts over.
    """
    limits: dict[str, int] = {}
    while True:
        try:
            return _import(proto, beside, file, facts or Facts(), limits)
        except LateBinding as e:
            found = _implied(e)
            if found is None or found[0] in limits:
                raise
            limits[found[0]] = found[1]


def _implied(error: LateBinding) -> tuple[str, int] | None:
    cause = error.__cause__
    while cause is not None:
        sizes = getattr(cause, "sizes", ())
        if sizes:
            return implied_limit(*sizes)
        cause = cause.__cause__
    return None


def _import(proto: onnx.ModelProto, beside: Beside, file: str, facts: Facts,
            limits: Mapping[str, int]) -> Imported:
    opsets = opset_versions(proto, file)
    functions = {("" if f.domain == "ai.onnx" else f.domain, f.name): f for f in proto.functions}
    state = State(file, beside, functions, facts.statics, facts.fixed, limits,
                  choices=facts.choices)
    state.room += 100 * (len(proto.graph.node) + sum([len(f.node) for f in proto.functions]))
    failures = Failures(file)
    body = BodyImporter(state, opsets, failures, Scope())
    with Builder(proto.graph.name or "model") as builder:
        builder.loc = file
        state.add_param = lambda name, t: builder.input(name, t, param=True)
        try:
            _inputs(body, builder, proto.graph, facts.shapes)
            import_initializers(body, proto.graph)
            body.nodes(ordered(proto.graph, file))
            failures.check()
            outputs = _outputs(body, proto.graph)
        except (ImportFailure, OperatorError) as e:
            _postpone(e, state, failures)
            raise
        graph = builder.finish(outputs, [v.name for v in proto.graph.output])
    return Imported(graph, state.params, state.notes, state.constants)


def _postpone(error: ImportFailure | OperatorError, state: State, failures: Failures) -> None:
    """Raise LateBinding instead when knowing more of the inputs may mend the error."""
    told = {x for names in state.witnesses.values() for x in names}
    if failures.rows or not told and not state.input_symbols:
        return
    cause: BaseException | None = error
    wrong: set[str] = set()
    while cause is not None and not wrong:
        wrong = {s for size in getattr(cause, "sizes", ()) for s in symbols(size)}
        cause = cause.__cause__
    sizes = wrong & state.input_symbols or state.input_symbols
    raise LateBinding(f"the graph cannot be built for symbolic sizes: {error.message}",
                      tuple(sorted(told)), sizes) from error


def declared_inputs(proto: onnx.ModelProto, file: str) -> list[Declared]:
    """The inputs that a caller gives, as the file declares them."""
    body = BodyImporter(State(file, Beside(), {}, {}), {}, Failures(file), Scope())
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
    for o in proto.opset_import:
        if not 0 <= o.version < _VERSIONS:
            raise ImportFailure(f"{file}: domain '{o.domain}' has the opset version {o.version}",
                                hint="the file is damaged")
    used = {n.domain for n in proto.graph.node}
    for o in proto.opset_import:
        domain = "" if o.domain == "ai.onnx" else o.domain
        if opsets.setdefault(domain, o.version) != o.version and domain in used:
            raise ImportFailure(f"{file}: domain '{domain or 'ai.onnx'}' is imported as opset "
                                f"{opsets[domain]} and {o.version}")
    if not 1 <= opsets.get("", 1) <= CERTAIN:
        from onnx.defs import onnx_opset_version

        if not 1 <= opsets[""] <= onnx_opset_version():
            raise ImportFailure(
                f"{file}: opset {opsets['']}; 1 to {onnx_opset_version()} are known",
                hint="re-export the model with an older opset")
    return opsets


def _inputs(body: BodyImporter, builder: Builder, graph: onnx.GraphProto,
            shapes: Mapping[str, tuple[int, ...]]) -> None:
    held = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    names = [v.name for v in graph.input]
    if len({*names}) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise ImportFailure(f"{body.state.file}: two graph inputs are called '{twice}'",
                            hint="the file is damaged")
    for v in graph.input:
        if v.name in held:
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
            raise LateBinding(f"the rank of input {v.name} is not stated", ranks=True)
        value = builder.input(v.name, t)
        body.state.input_symbols.update(s for d in t.shape for s in symbols(d))
        body.state.leaves[id(value)] = v.name
        body.scope.values[v.name] = value


def _outputs(body: BodyImporter, graph: onnx.GraphProto) -> list[Value]:
    out: list[Value] = []
    for v in graph.output:
        body.node_name = f"graph output '{v.name}'"
        value = body._input(v.name)
        if value is None:
            raise ImportFailure(f"{body.state.file}: no node gives the graph output '{v.name}'",
                                hint="the file is damaged")
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
