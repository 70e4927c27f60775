"""Reverse-mode differentiation, one rule per kind of operator.

Elementwise operators give `map` nodes that carry the derived partial; linear operators and views
their transpose, reductions and structured operators their `vjp`; composites are opened and
differentiated through their bodies. Control flow is in `grad_control`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from ..declare.derive import derivative, differentiable, simplify
from ..declare.opdef import OpDef, cast_value
from ..declare.scalar import Scalar, cast_to, is_const, make, var, walk
from ..declare.scalar import substitute as compose
from ..declare.scalar_text import text
from ..errors import Declined, OperatorError
from ..ir.graph import Builder, Graph, Node, Value, current
from ..ir.types import TensorType
from ..ops.library import REGISTRY
from ..ops.reduce import sum_to
from .inline import inline, record_leaves

Grads: TypeAlias = "Sequence[Value | None]"


def grad(graph: Graph, wrt: Sequence[str] | None = None) -> Graph:
    """`graph` with the gradients of its first output, a scalar, after its outputs.

    `wrt` names inputs and parameters, by default all floating ones; the gradient of `w` is called
    `grad_w` and has its type. Raises OperatorError when the output is no scalar, Declined when an
    operator on the way has no derivative rule.
    """
    with Builder(f"{graph.name}_grad", lambda _: True) as b:
        args = record_leaves(b, graph)
        outputs = inline(graph, args)
        loss = outputs[0].type
        if loss.rank or not differentiable(loss.dtype):
            raise OperatorError(f"grad needs a floating scalar as the first output, got {loss}",
                                hint="sum it, or use vjp() with a cotangent")
        wanted = _wanted(args, wrt)
        found = backward(b.graph.nodes, {outputs[0]: full(1.0, loss)}, wanted)
        return _finish(b, graph, outputs, wanted, found)


def vjp(graph: Graph, wrt: Sequence[str] | None = None) -> Graph:
    """`graph` with a cotangent input for every floating output, and the gradients as outputs.

    The cotangents follow the inputs, called `cotangent_` and the output's name or number.
    """
    with Builder(f"{graph.name}_vjp", lambda _: True) as b:
        args = record_leaves(b, graph)
        outputs = inline(graph, args)
        names = graph.output_names or [str(i) for i in range(len(outputs))]
        seeds: dict[Value, Value] = {}
        for out, name in zip(outputs, names, strict=True):
            if differentiable(out.dtype):
                g = b.input(f"cotangent_{name}", out.type)
                seeds[out] = _plus(seeds.get(out), g)
        wanted = _wanted(args, wrt)
        return _finish(b, graph, outputs, wanted, backward(b.graph.nodes, seeds, wanted))


def _finish(b: Builder, graph: Graph, outputs: Sequence[Value], wanted: Sequence[Value],
            found: Mapping[Value, Value]) -> Graph:
    grads = [or_zeros(found.get(a), a.type) for a in wanted]
    names = graph.output_names or [f"output_{i}" for i in range(len(outputs))]
    return b.finish([*outputs, *grads], [*names, *[f"grad_{a.name}" for a in wanted]])


def _wanted(args: Sequence[Value], wrt: Sequence[str] | None) -> list[Value]:
    if wrt is None:
        return [a for a in args if differentiable(a.dtype)]
    by_name = {a.name: a for a in args}
    for name in wrt:
        if name not in by_name:
            raise OperatorError(f"there is no input or parameter '{name}'",
                                hint=f"there are {', '.join(by_name)}")
        if not differentiable(by_name[name].dtype):
            raise OperatorError(f"'{name}' is {by_name[name].type}, which has no gradient")
    return [by_name[n] for n in wrt]


def full(value: float, type_: TensorType) -> Value:
    """One number in every element."""
    return cast(Value, REGISTRY["full"](value=value, shape=type_.shape, dtype=type_.dtype))


def or_zeros(g: Value | None, type_: TensorType) -> Value:
    """The cotangent, or zeros where nothing arrived."""
    return g if g is not None else full(0.0, type_)


def _plus(a: Value | None, b: Value) -> Value:
    return b if a is None else a + b


def backward(nodes: Sequence[Node], seeds: Mapping[Value, Value], wanted: Iterable[Value]
             ) -> dict[Value, Value]:
    """Cotangents of everything between `wanted` and the seeded values, by value."""
    live, path, found = set(wanted), list[Node](), dict(seeds)
    for node in nodes:
        if not live.isdisjoint(node.uses()):
            live.update([v for v in node.outputs if differentiable(v.dtype)])
            path.append(node)
    builder = current()
    for node in reversed(path):
        gs = [found.get(v) for v in node.outputs]
        if all([g is None for g in gs]):
            continue
        with builder.at(node.loc):
            for x, g in node_grads(node, gs, live):
                if g is not None and x in live and differentiable(x.dtype):
                    found[x] = _plus(found.get(x), g)
    return found


def node_grads(node: Node, gs: Grads, live: set[Value]) -> list[tuple[Value, Value | None]]:
    """Cotangents of the values that a node reads, or an error that names the missing rule."""
    op = REGISTRY[node.op]
    if op.kind == "elementwise":
        return [(x, _elementwise(op, node, gs, i) if x in live else None)
                for i, x in enumerate(node.inputs)]
    if op.kind == "composite":
        return _composite(op, node, gs, live)
    if node.regions:
        from .grad_control import region_grads

        return region_grads(node, gs, live)
    rule = op.rules.get("transpose") or op.rules.get("vjp")
    if rule is None:
        raise Declined(f"{op.name} has no derivative rule",
                       hint=f"declare vjp= or transpose= where {op.name} is declared, or put "
                            "stop_gradient before it")
    filled = [or_zeros(g, v.type) for g, v in zip(gs, node.outputs, strict=True)]
    operands, given = node.operands()
    named = {k: given.get(k) for k in op.schema.optional}
    out = rule(*filled, *op.group(operands), **named, **node.attrs)
    grads = [out] if out is None or isinstance(out, Value) else list(cast("Grads", out))
    if len(grads) != len(node.inputs):
        raise Declined(f"the derivative rule of {op.name} gives {len(grads)} cotangents for "
                       f"{len(node.inputs)} operands")
    return [*zip(node.inputs, grads, strict=True)]


def _composite(op: OpDef, node: Node, gs: Grads, live: set[Value]
               ) -> list[tuple[Value, Value | None]]:
    """Through the body, recorded once more."""
    nodes = current().graph.nodes
    mark = len(nodes)
    outputs = inline(op.body_graph(node), node.inputs)
    seeds: dict[Value, Value] = {}
    for v, g in zip(outputs, gs, strict=True):
        if g is not None:
            seeds[v] = _plus(seeds.get(v), g)
    wanted = {v for v in node.inputs if v in live}
    found = backward(nodes[mark:], seeds, wanted)
    return [(v, found.get(v)) for v in dict.fromkeys(node.inputs)]


def _elementwise(op: OpDef, node: Node, gs: Grads, i: int) -> Value | None:
    """The sum over the outputs of g times the derived partial, as one node."""
    x, n = node.inputs[i], len(node.inputs)
    if not differentiable(x.dtype):
        return None
    roots = op.scalars(node.attrs, tuple([v.dtype for v in node.inputs]))
    used: list[Value] = []
    total: Scalar | None = None
    for root, g in zip(roots, gs, strict=True):
        partial = _partial(root, i)
        if g is None or is_const(partial, 0.0) or is_const(partial, 0):
            continue
        term = _scaled(cast_to(var(n + len(used), g.dtype), partial.dtype), partial)
        used.append(g)
        total = term if total is None else make("add", total, term)
    if total is None:
        return None
    result = _record(simplify(cast_to(total, x.dtype)), [*node.inputs, *used])
    return sum_to(result, x.shape)


def _partial(root: Scalar, i: int) -> Scalar:
    """The partial in the dtype the operator computes in, before it rounds to a narrow one."""
    narrow = root.op == "cast" and root.dtype.narrow and differentiable(root.args[0].dtype)
    return derivative(root.args[0] if narrow else root, i)


def _scaled(g: Scalar, partial: Scalar) -> Scalar:
    return g if is_const(partial, 1.0) else make("mul", g, partial)


def _record(root: Scalar, operands: Sequence[Value]) -> Value:
    """A `map` node on the operands that `root` reads; none when it is one operand, cast."""
    indices = sorted({cast(int, s.value) for s in walk(root) if s.op == "var"})
    if root.op == "var":
        return operands[indices[0]]
    if root.op == "cast" and root.args[0].op == "var":
        return cast_value(operands[indices[0]], root.dtype)
    values = [operands[k] for k in indices]
    place = {k: var(j, operands[k].dtype) for j, k in enumerate(indices)}
    spread = [place.get(k, var(0, v.dtype)) for k, v in enumerate(operands)]
    return cast(Value, REGISTRY["map"](values, expr=text(compose(root, spread))))
