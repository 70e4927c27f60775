"""An operator at run time: binding, promotion, type inference, recording."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache, reduce
from types import FunctionType
from typing import Literal, cast

import numpy as np

from ..errors import DeclarationError, OperatorError, ParseError
from ..ir.dims import Dim, Size
from ..ir.graph import (
    NO_REGIONS,
    Attr,
    Attrs,
    Builder,
    Graph,
    Node,
    Value,
    caller,
    current,
    set_operator_hook,
)
from ..ir.types import BOOL, F32, DType, TensorType, broadcast, promote
from .arrays import compute_dtype
from .rules import attr_key, checked, reduction_type, trace_region
from .scalar import Scalar, cast_to, const, make, var
from .schema import MISSING, Sample, canonical, check_rule, read_schema

Kind = Literal["elementwise", "reduction", "view", "linear", "composite", "structured"]
Rule = Callable[..., object]
REGISTRY: dict[str, OpDef] = {}
"""Every declared operator by name."""
_ALL = 2**31
"""More operands than any call has, the variadic ones included."""
_CACHE = 512
"""Bodies and expressions kept per operator; a full table is dropped, not grown."""


class OpDef:
    """One operator. Call it on values to record, on scalars to inline, on arrays to evaluate."""

    def __init__(self, kind: Kind, fn: Rule, samples: Sequence[Sample], rules: Mapping[str, Rule],
                 keep: tuple[str, ...] = ()) -> None:
        assert isinstance(fn, FunctionType)
        self.name = fn.__name__.rstrip("_")
        self.kind, self.body, self.samples, self.rules = kind, cast(Rule, fn), samples, rules
        self.schema = read_schema(fn)
        self.keep: Collection[int] = range(_ALL) if "*" in keep else {
            i for i, n in enumerate(self.schema.operands) if n in keep}
        self._check_declaration(fn)
        self.__doc__ = self.doc = cast(str, fn.__doc__)
        self.__wrapped__ = fn  # where `help` and `inspect.signature` look
        self.defaults = {k: s.coerce(s.default) for k, s in self.schema.attrs.items()
                         if s.default is not MISSING}
        self._scalars: dict[object, tuple[Scalar, ...]] = {}
        self._bodies: dict[object, Graph] = {}
        self._results: dict[tuple[DType, ...], tuple[DType, ...]] = {}
        REGISTRY[self.name] = self

    def _check_declaration(self, fn: FunctionType) -> None:
        if not fn.__doc__:
            raise DeclarationError(f"{self.name}: no docstring")
        if not self.samples:
            raise DeclarationError(f"{self.name}: no samples",
                                   hint='give one, such as samples=[sample("f32[4,8]")]')
        if self.name in REGISTRY:
            raise DeclarationError(f"{self.name}: declared twice",
                                   hint=f"the first is in {REGISTRY[self.name].body.__module__}")
        for what, rule in self.rules.items():
            if what not in ("derivative", "args", "settle"):
                check_rule(self.name, f"{what} rule", rule, what != "types", self.schema)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"

    @property
    def derived(self) -> bool:
        """Whether the operator is a primitive of its own, because it overrides its derivative."""
        return "derivative" in self.rules

    def __call__(self, *args: object, **kw: object) -> object:
        """Record, inline or evaluate, by what the operands are."""
        flat = self.flatten(args) if self.schema.variadic else args
        for a in flat:
            if a.__class__ is Value:
                return self._record(flat, kw)
            if a.__class__ is Scalar:
                return self._inline(args, kw)
        if not flat or (kw and any([v.__class__ is Value for v in kw.values()])):
            return self._record(flat, kw)
        from .evaluate import eager

        return eager(self, flat, kw)

    def flatten(self, args: tuple[object, ...]) -> tuple[object, ...]:
        """Positional arguments with the variadic list spread out."""
        n = len(self.schema.operands)
        if len(args) != n or not isinstance(args[-1], list | tuple):
            raise OperatorError(f"{self.name} takes a list as its last operand",
                                hint=f"write {self.name}([a, b], ...)")
        return (*args[:-1], *cast("Sequence[object]", args[-1]))

    def group(self, args: Sequence[object]) -> tuple[object, ...]:
        """The inverse of `flatten`: what the body and the rules are called with."""
        n = len(self.schema.operands)
        return (*args[:n - 1], list(args[n - 1:])) if self.schema.variadic else tuple(args)

    def _inline(self, args: tuple[object, ...], kw: Mapping[str, object]) -> object:
        if self.kind != "elementwise":
            raise OperatorError(f"{self.name} is no elementwise operator, so a scalar body "
                                "cannot call it", hint="make the caller a composite")
        if self.derived:
            attrs = self.bind(kw)[1]
            return make(self.name, *cast("tuple[Scalar, ...]", args),
                        value=tuple(attrs.items()) or None)
        return self.body(*args, **kw)

    def _record(self, args: tuple[object, ...], kw: dict[str, object]) -> object:
        builder = current()
        named, attrs, bodies = self.bind(kw) if kw else ({}, self.defaults, {})
        self.check_call(len(args), attrs, bodies)
        values = self._lift((*args, *named.values()))
        if self.kind == "elementwise":
            values = self._promote(values)
        regions = self._trace_regions(bodies, values, tuple(named), attrs, builder) if (
            bodies) else NO_REGIONS
        node = Node(self.name, values, attrs, (), tuple(named), regions,
                    caller() if builder.loc is None else builder.loc)
        if self.kind == "composite" and builder.expand(node):
            optional = dict(zip(named, values[len(args):], strict=True))
            return self.body(*self.group(values[:len(args)]), **optional, **attrs)
        outputs = builder.emit(node, self.infer_node(node))
        return outputs[0] if len(outputs) == 1 else outputs

    def fits(self, n: int) -> bool:
        """Whether `n` operands, the variadic ones spread out, may be given."""
        want = len(self.schema.operands)
        return n >= want - 1 if self.schema.variadic else n == want

    def check_call(self, n: int, attrs: Attrs, bodies: Mapping[str, Rule]) -> None:
        """Raise OperatorError unless `n` operands and every attribute and region are given."""
        schema = self.schema
        if len(attrs) != len(schema.attrs):
            missing = sorted(schema.attrs.keys() - attrs.keys())
            raise OperatorError(f"{self.name}: attribute '{missing[0]}' is missing")
        if len(bodies) != len(schema.regions):
            missing = [r for r in schema.regions if r not in bodies]
            raise OperatorError(f"{self.name}: the region '{missing[0]}' is missing",
                                hint="give a closure that takes and returns graph values")
        if not self.fits(n):
            raise OperatorError(f"{self.name} takes {len(schema.operands)} operands "
                                f"({', '.join(schema.operands)}), got {n}")

    def _trace_regions(self, bodies: Mapping[str, Rule], values: Sequence[Value],
                       keys: tuple[str, ...], attrs: Attrs, builder: Builder
                       ) -> dict[str, Graph]:
        """Trace each closure on the types that the `args` rule states, or on nothing.

        A `settle(region, **attrs)` rule may then ask for other input types: the first region is
        traced again until they stay, and further regions get the same types.
        """
        split = len(values) - len(keys)
        types = [v.type for v in values]
        named = dict(zip(keys, types[split:], strict=True))
        rule, settle = self.rules.get("args"), self.rules.get("settle")
        args = cast("Sequence[TensorType]", rule(*self.group(types[:split]), **named, **attrs)
                    ) if rule else ()
        regions = dict[str, Graph]()
        for key in self.schema.regions:
            if (body := bodies.get(key)) is None:
                continue
            regions[key] = trace_region(key, body, args, builder)
            while settle and len(regions) == 1:
                wider = cast("Sequence[TensorType]", settle(regions[key], **attrs))
                if tuple(wider) == tuple(args):
                    break
                args = wider
                regions[key] = trace_region(key, body, args, builder)
        return regions

    def bind(self, kw: Mapping[str, object]
             ) -> tuple[dict[str, object], dict[str, Attr], dict[str, Rule]]:
        """Split keywords into optional operands, attributes and regions; check each."""
        named: dict[str, object] = {}
        attrs, bodies = dict(self.defaults), dict[str, Rule]()
        for key, value in kw.items():
            if (spec := self.schema.attrs.get(key)) is not None:
                try:
                    attrs[key] = spec.coerce(value)
                except OperatorError as e:
                    raise OperatorError(f"{self.name}: {e}") from None
            elif key in self.schema.optional:
                if value is not None:
                    named[key] = value
            elif key in self.schema.regions:
                if not callable(value):
                    raise OperatorError(f"{self.name}: the region '{key}' is a closure, "
                                        f"got {value!r}")
                bodies[key] = value
            else:
                raise OperatorError(f"{self.name} has no attribute '{key}'",
                                    hint=f"it takes {', '.join(sorted(self.schema.keywords))}")
        ordered = {k: named[k] for k in self.schema.optional if k in named}
        return ordered, {k: attrs[k] for k in self.schema.attrs if k in attrs}, bodies

    def _lift(self, args: tuple[object, ...]) -> tuple[Value, ...]:
        if all([a.__class__ is Value for a in args]):
            return cast("tuple[Value, ...]", args)
        dtypes = [a.type.dtype for i, a in enumerate(args)
                  if isinstance(a, Value) and i not in self.keep]
        return tuple([a if isinstance(a, Value) else self._lift_one(a, dtypes) for a in args])

    def _lift_one(self, value: object, dtypes: Sequence[DType]) -> Value:
        """A Python number as a constant of the dtype beside it."""
        value = canonical(value)
        if isinstance(value, np.ndarray):
            raise OperatorError(f"{self.name}: a NumPy array meets a graph value",
                                hint="record it with constant(array), or make it a parameter")
        if not isinstance(value, int | float | complex):
            raise OperatorError(f"{self.name}: {value!r} is no operand",
                                hint="operands are graph values and numbers")
        dtype = next((d for d in dtypes if d is not BOOL), dtypes[0] if dtypes else F32)
        return full_value(value, dtype)

    def _promote(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        if not values:
            return values
        first = values[0].type.dtype
        if all([v.type.dtype is first for v in values]):
            return values
        return tuple(map(cast_value, values, self.meet([v.type.dtype for v in values])))

    def meet(self, dtypes: Sequence[DType]) -> list[DType]:
        """The dtype each operand is cast to: kept operands stay, the others promote."""
        free = [d for i, d in enumerate(dtypes) if i not in self.keep]
        if not free:
            return list(dtypes)
        target = reduce(promote, free)
        return [d if i in self.keep else target for i, d in enumerate(dtypes)]

    def scalars(self, attrs: Attrs, dtypes: tuple[DType, ...]) -> tuple[Scalar, ...]:
        """The expressions of an elementwise operator for operands of these dtypes.

        Narrow operands are widened, and a result in the wide type rounds back once, unless the
        operator keeps its operands as they are.
        """
        key = (dtypes, attr_key(attrs))
        if (done := self._scalars.get(key)) is None:
            if len(self._scalars) >= _CACHE:
                self._scalars.clear()
            done = self._scalars[key] = self._trace_scalars(attrs, dtypes)
        return done

    def _trace_scalars(self, attrs: Attrs, dtypes: tuple[DType, ...]) -> tuple[Scalar, ...]:
        free = {d for i, d in enumerate(dtypes) if i not in self.keep}
        operands = [var(i, d) if i in self.keep else cast_to(var(i, d), compute_dtype(d))
                    for i, d in enumerate(dtypes)]
        if self.derived:
            out: object = make(self.name, *operands, value=tuple(attrs.items()) or None)
        else:
            out = self.body(*self.group(operands), **attrs)
        roots = cast("tuple[Scalar, ...]", out if isinstance(out, tuple) else (out,))
        narrow = next((d for d in free if d.narrow), None)
        if narrow is None:
            return roots
        wide = compute_dtype(narrow)
        return tuple([cast_to(r, narrow) if r.dtype is wide else r for r in roots])

    def body_graph(self, node: Node) -> Graph:
        """The body of a composite for this node's operand types and attributes."""
        types = tuple([v.type for v in node.inputs])
        key = (types, node.keys, attr_key(node.attrs))
        if (done := self._bodies.get(key)) is None:
            if len(self._bodies) >= _CACHE:
                self._bodies.clear()
            split = len(types) - len(node.keys)
            names = [*(f"x{i}" for i in range(split)), *node.keys]
            with Builder(self.name) as b:
                b.loc = node.loc
                args = [b.input(n, t) for n, t in zip(names, types, strict=True)]
                named = dict(zip(node.keys, args[split:], strict=True))
                out = self.body(*self.group(args[:split]), **named, **node.attrs)
                done = b.finish(cast(Value, out))
            self._bodies[key] = done
        return done

    def infer_node(self, node: Node) -> Sequence[TensorType]:
        """Output types of `node`; an error names the operator, its operands and the source."""
        types = [v.type for v in node.inputs]
        try:
            if self.kind == "elementwise":
                return self._elementwise_types(types, node.attrs)
            if self.kind == "composite":
                return [v.type for v in self.body_graph(node).outputs]
            split = len(types) - len(node.keys)
            named = dict(zip(node.keys, types[split:], strict=True))
            rule = self.rules.get("types", cast(Rule, reduction_type))
            self._check_tensors(types)
            out = rule(*self.group(types[:split]), **named, **node.attrs, **node.regions)
            return checked((out,) if isinstance(out, TensorType) else
                            cast("Sequence[TensorType]", out))
        except (OperatorError, ParseError) as e:
            if e.message.startswith(f"{self.name}("):
                raise
            sizes = e.sizes if isinstance(e, OperatorError) else ()
            raise self._refusal(node, e.message, e.hint, sizes) from None
        except IndexError as e:
            problem = "an operand has fewer axes than are needed"
            raise self._refusal(node, problem, " ".join(self.doc.split())) from e

    def _refusal(self, node: Node, message: str, hint: str, sizes: tuple[object, ...] = ()
                 ) -> OperatorError:
        shown = f"{self.name}({', '.join([str(v.type) for v in node.inputs])})"
        at = f"\n  at {node.loc}" if node.loc else ""
        return OperatorError(f"{shown}: {message}{at}", hint=hint, sizes=sizes)

    def _check_tensors(self, types: Sequence[TensorType]) -> None:
        """Views, linear operators and reductions know neither host values nor encoded tensors."""
        if self.kind != "structured":
            for t in types:
                if t.dtype.sort in ("host", "block"):
                    raise OperatorError(f"plain tensors are needed, got {t}")

    def _elementwise_types(self, types: list[TensorType], attrs: Attrs) -> Sequence[TensorType]:
        first = types[0] if types else _scalar_type(F32)
        shape = first.shape if len(types) < 2 else broadcast([t.shape for t in types])
        return [first if dtype is first.dtype and shape is first.shape else TensorType(shape, dtype)
                for dtype in self._result_dtypes(attrs, tuple([t.dtype for t in types]))]

    def _result_dtypes(self, attrs: Attrs, dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
        """The dtypes of the outputs; calls without attributes are remembered by dtype alone."""
        plain = attrs is self.defaults
        if not plain or (done := self._results.get(dtypes)) is None:
            done = tuple([r.dtype for r in self.scalars(attrs, dtypes)])
            if plain and len(self._results) < _CACHE:
                self._results[dtypes] = done
        return done


def full_value(value: complex | Size, dtype: DType) -> Value:
    """A scalar constant in the open graph; a symbolic size is read at run time."""
    if not isinstance(value, Dim):
        const(value, dtype)  # an error when it does not fit
    node = Node("full", (), {"value": value, "shape": (), "dtype": dtype})
    return current().emit(node, (_scalar_type(dtype),))[0]


@lru_cache(256)
def _scalar_type(dtype: DType) -> TensorType:
    return TensorType((), dtype)


def cast_value(x: Value, dtype: DType) -> Value:
    """`x` in `dtype`, by a cast node when it differs."""
    return x if x.type.dtype is dtype else cast(Value, REGISTRY["cast"](x, dtype=dtype))


def wide(x: Value) -> Value:
    """`x` in f32 when it is narrower: what norms and sums of half precision compute in."""
    return cast_value(x, F32) if x.type.dtype.sort == "float" and x.type.dtype.bits < 32 else x


def infer(node: Node) -> Sequence[TensorType]:
    """Output types of any node; the rule that `verify` takes."""
    op = find(node.op)
    if problem := op.schema.misfit(node):
        raise OperatorError(f"{node.op}: {problem}")
    return op.infer_node(node)


def find(name: str) -> OpDef:
    """The operator of a name; an unknown one is an error that names similar ones."""
    if (op := REGISTRY.get(name)) is None:
        near = " or ".join(get_close_matches(name, REGISTRY))
        raise OperatorError(f"there is no operator '{name}'",
                            hint=f"did you mean {near}?" if near else "")
    return op


set_operator_hook(lambda name, args: cast(Value, REGISTRY[name](*args)))
