"""The meaning of operators on NumPy arrays: the reference interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import OperatorError, RunError
from ..ir.dims import Dim, symbol_name, symbols
from ..ir.dims import evaluate as bind_size
from ..ir.graph import Attr, Graph, Node, Value
from ..ir.types import BOOL, DType, TensorType
from . import scalar
from .arrays import Array, Encoded, np_dtype, type_of
from .opdef import REGISTRY, OpDef
from .room import LARGEST, SMALL, array_bytes, check_room
from .schema import canonical

Binding: TypeAlias = dict[str, int]
Env: TypeAlias = dict[Value, Array]
Watch: TypeAlias = Callable[[Node, Sequence[Array]], None]


class Step:
    """One node with what need not be found again at every run."""

    __slots__ = ("attrs", "dead", "fixed", "makes", "nbytes", "node", "op", "reads")

    def __init__(self, node: Node) -> None:
        if node.op not in REGISTRY:
            raise OperatorError(f"there is no operator '{node.op}'")
        self.node, self.op = node, REGISTRY[node.op]
        self.fixed = not node.reads()
        self.attrs = dict(node.attrs)
        self.makes = bool(node.makes())
        size = 0 if self.makes else sum([array_bytes(v.type) for v in node.outputs])
        self.nbytes = 0 if isinstance(size, int) and size < SMALL else size
        self.reads = {*symbols(self.nbytes)}
        self.dead: tuple[Value, ...] = ()


def bind_attr(value: Attr, binding: Mapping[str, int]) -> Attr:
    """`value` with symbolic sizes replaced by numbers."""
    if isinstance(value, tuple):
        return tuple([bind_attr(v, binding) for v in value])
    return bind_size(value, binding) if isinstance(value, Dim) else value


def bind_shapes(types: Sequence[TensorType], arrays: Sequence[Array], binding: Binding) -> None:
    """Let symbols that are an axis of `types` take the size the arrays have there."""
    for t, a in zip(types, arrays, strict=True):
        for size, n in zip(t.shape, a.shape, strict=False):
            if (name := symbol_name(size)) is not None:
                binding[name] = n


_plans: WeakKeyDictionary[Graph, list[Step]] = WeakKeyDictionary()


def plan(graph: Graph) -> list[Step]:
    """The steps of `graph`, each with the values that nothing reads after it."""
    if (done := _plans.get(graph)) is None or len(done) != len(graph.nodes):
        done = [Step(n) for n in graph.nodes]
        seen = set(graph.outputs)
        for step in reversed(done):
            values = dict.fromkeys((*step.node.uses(), *step.node.outputs))
            step.dead = tuple([v for v in values if v not in seen])
            seen.update(values)
        _plans[graph] = done
    return done


def run(graph: Graph, arrays: Sequence[Array], outer: Mapping[Value, Array], binding: Binding,
        watch: Watch | None = None) -> tuple[Array, ...]:
    """Evaluate `graph`; a region also reads what it captures from `outer`.

    `binding` gains the sizes that steps make. `watch` sees every node's outputs.
    """
    env: Env = {v: outer[v] for v in graph.captures}
    leaves = (*graph.inputs, *graph.params)
    env.update(zip(leaves, arrays, strict=True))
    bind_shapes([v.type for v in leaves], arrays, binding)
    for step in plan(graph):
        node = step.node
        out = perform(step, env, binding)
        if step.makes:
            bind_shapes([v.type for v in node.outputs], out, binding)
        env.update(zip(node.outputs, out, strict=True))
        if watch is not None:
            watch(node, out)
        for v in step.dead:
            del env[v]
    return tuple([env[v] for v in graph.outputs])


def perform(step: Step, env: Mapping[Value, Array], binding: Binding,
            region: RegionMaker | None = None) -> tuple[Array, ...]:
    """Run one step; an error gains the operator, its operands and where it came from.

    `region` makes the callables of regions, for those who run them otherwise.
    """
    node = step.node
    try:
        attrs = step.attrs if step.fixed else {
            k: bind_attr(v, binding) for k, v in step.attrs.items()}
        if step.nbytes != 0 and binding.keys() >= step.reads:
            check_room(bind_size(step.nbytes, binding))
        return apply(node, step.op, [env[v] for v in node.inputs], attrs, env, binding, region)
    except RunError:
        raise
    except OperatorError as e:
        raise RunError(f"{_where(node, env)}: {e.message}", hint=e.hint) from None
    except MemoryError as e:
        raise RunError(f"{_where(node, env)}: out of memory: {e}",
                       hint="bind smaller sizes to the symbolic dims") from None
    except (ValueError, IndexError, TypeError, OverflowError, ArithmeticError, KeyError) as e:
        if wrong := _impossible(node, binding):
            raise RunError(f"{_where(node, env)}: {wrong}") from None
        raise RunError(f"{_where(node, env)}: {e.__class__.__name__}: {e}") from e


def _impossible(node: Node, binding: Binding) -> str:
    """Which result no array can be, or nothing."""
    for v in node.outputs:
        if not {s for d in v.shape for s in symbols(d)} <= binding.keys():
            continue
        shape = [bind_size(d, binding) for d in v.shape]
        if min(shape, default=0) < 0 or math.prod(filter(None, shape)) > LARGEST:
            return f"the result {v.type} would have the shape {shape}"
    return ""


def _where(node: Node, env: Mapping[Value, Array]) -> str:
    shown = ", ".join(str(type_of(env[v])) for v in node.inputs)
    return f"{node.op}({shown})" + (f" at {node.loc}" if node.loc else "")


def apply(node: Node, op: OpDef, arrays: Sequence[Array], attrs: Mapping[str, Attr],
          env: Mapping[Value, Array], binding: Binding, region: RegionMaker | None = None
          ) -> tuple[Array, ...]:
    """Evaluate one node whose attributes hold numbers."""
    if op.kind == "elementwise":
        return _elementwise(op, arrays, attrs)
    if op.kind == "composite":
        inner = Node(op.name, tuple([Value(type_of(a)) for a in arrays]), attrs, keys=node.keys,
                     loc=node.loc)
        return run(op.body_graph(inner), arrays, {}, dict(binding))
    split = len(arrays) - len(node.keys)
    named = dict(zip(node.keys, arrays[split:], strict=True))
    make = region or RegionCall
    regions = {k: make(g, env, binding) for k, g in node.regions.items()}
    out = op.body(*op.group(arrays[:split]), **named, **attrs, **regions)
    many = isinstance(out, tuple | list)
    return _exact(cast("Sequence[object]", out) if many else (out,), node)


def _exact(outputs: Sequence[object], node: Node) -> tuple[Array, ...]:
    """Outputs as arrays; NumPy gives scalars back for rank 0."""
    if node.outputs and len(outputs) != len(node.outputs):
        raise OperatorError(f"its body gave {len(outputs)} outputs, not {len(node.outputs)}")
    return tuple([cast(Array, a) if isinstance(a, np.ndarray | Encoded) else np.asarray(a)
                  for a in outputs])


class RegionCall:
    """A region as the body of its operator sees it: a callable on arrays."""

    __slots__ = ("binding", "graph", "outer")

    def __init__(self, graph: Graph, outer: Mapping[Value, Array], binding: Binding) -> None:
        self.graph, self.outer, self.binding = graph, outer, binding

    def __call__(self, *args: Array) -> tuple[Array, ...]:
        """The outputs of one run; sizes that it makes stay inside."""
        return run(self.graph, args, self.outer, dict(self.binding))

    def blank(self, index: int) -> Array:
        """Zeros of the type of output `index`; sizes that only a run could tell are 0."""
        t = self.graph.outputs[index].type
        known = {**{s: 0 for d in t.shape for s in symbols(d)}, **self.binding}
        return np.zeros(tuple([max(bind_size(d, known), 0) for d in t.shape]), np_dtype(t.dtype))


RegionMaker: TypeAlias = Callable[[Graph, Mapping[Value, Array], Binding], RegionCall]


def _elementwise(op: OpDef, arrays: Sequence[Array], attrs: Mapping[str, Attr]
                 ) -> tuple[Array, ...]:
    dtypes = tuple([type_of(a).dtype for a in arrays])
    roots = op.scalars(attrs, dtypes)
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    out = scalar.evaluate(roots, arrays)
    return tuple([a if a.shape == shape else np.broadcast_to(a, shape) for a in out])


def eager(op: OpDef, args: Sequence[object], kw: Mapping[str, object]) -> object:
    """Call an operator on arrays: the same promotion and type rule, then the body."""
    named, attrs, bodies = op.bind(kw)
    op.check_call(len(args), attrs, bodies)
    out = _arrays(op, [*args, *named.values()])
    if op.kind == "elementwise":
        targets = op.meet([type_of(a).dtype for a in out])
        out = [a.astype(np_dtype(d)) for a, d in zip(out, targets, strict=True)]
    node = Node(op.name, tuple([Value(type_of(a)) for a in out]), attrs, keys=tuple(named))
    if bodies:
        result: object = op.body(*op.group(out[:len(args)]), **named, **attrs, **bodies)
        return result
    types = op.infer_node(node)
    if all([isinstance(d, int) for t in types for d in t.shape]):
        check_room(sum([bind_size(array_bytes(t), {}) for t in types]))
    done = apply(node, op, out, attrs, {}, {})
    return done[0] if len(done) == 1 else done


def _arrays(op: OpDef, args: Sequence[object]) -> list[Array]:
    """Python numbers take the dtype of the first array."""
    arrays = [cast(Array, a) for a in args if isinstance(a, np.ndarray | Encoded)] or [
        np.asarray(cast(object, a)) for a in args if isinstance(a, np.generic)]
    dtypes = [type_of(a).dtype for a in arrays]
    beside = next((d for d in dtypes if d is not BOOL), BOOL if dtypes else None)
    return [cast(Array, a) if isinstance(a, np.ndarray | Encoded) else _number(op, a, beside)
            for a in args]


def _number(op: OpDef, value: object, dtype: DType | None) -> Array:
    if not isinstance(value, int | float | complex | np.generic) or dtype is None:
        raise OperatorError(f"{op.name}: {value!r} is no operand",
                            hint="operands are NumPy arrays, and numbers beside an array")
    number = scalar.const(cast(float, canonical(cast(object, value))), dtype)
    return np.asarray(number.value).astype(np_dtype(dtype))
