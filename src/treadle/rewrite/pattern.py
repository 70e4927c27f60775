"""Equations that read as algebra: `rule("mul_one", lambda x: x * 1, lambda x: x)`.

The left side is traced once over pattern variables. A variable used as an operand stands for a
value, one used as an attribute for an attribute; twice the same variable means the same thing
twice. A number stands for a constant whose every element is that number. Attributes that are not
written have their defaults, as in a call. The right side is ordinary code: it runs on what the
variables matched and records nodes. A parameter named `out` of the right side or the condition is
the value to be replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from ..declare.schema import canonical
from ..errors import DeclarationError
from ..ir.arithmetic import Arithmetic
from ..ir.graph import Node, Value
from ..ops.library import REGISTRY
from ..records import dataclass, field
from .constants import number_of

Domain = Literal["exact", "finite", "fast"]
DOMAINS: tuple[Domain, ...] = ("exact", "finite", "fast")
"""Where an equation holds. exact: bit for bit, for every input; NaNs count as equal.
finite: equal as numbers wherever neither side has a NaN or an infinity on the way.
fast: equal up to rounding."""
Binding: TypeAlias = "dict[str, Any]"
Side: TypeAlias = "Callable[..., Any]"
CONSTANTS = frozenset({"full", "constant"})
COMMUTATIVE = frozenset({"add", "mul", "max", "min", "eq", "ne", "bitwise_and", "bitwise_or",
                         "bitwise_xor", "logical_and", "logical_or", "logical_xor"})


class Expr(Arithmetic["Expr"]):
    """A pattern: a variable, a number, or an operator applied to patterns."""

    __slots__ = ()

    def _apply(self, op: str, *args: object) -> Expr:
        return application(op, args, {})

    def match(self, value: Value, binding: Binding) -> bool:
        """Whether `value` has this form; `binding` gains what the variables stand for."""
        raise NotImplementedError


class Var(Expr):
    """Any value, or any attribute."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def match(self, value: object, binding: Binding) -> bool:
        """Bind, or compare with what is bound."""
        seen = binding.setdefault(self.name, value)
        return seen is value or (not isinstance(value, Value) and same(seen, value))


class Lit(Expr):
    """A constant with this number in every element."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value

    def match(self, value: Value, binding: Binding) -> bool:  # noqa: ARG002
        """Compare the constant; 0.0 and -0.0 differ."""
        found = number_of(value)
        return found is not None and same_number(found, self.value)


class App(Expr):
    """An operator with one output applied to patterns."""

    __slots__ = ("args", "attrs", "keys", "makers", "op", "orders")

    def __init__(self, op: str, args: tuple[Expr, ...], keys: tuple[str, ...],
                 attrs: Mapping[str, object]) -> None:
        self.op, self.args, self.keys, self.attrs = op, args, keys, attrs
        swaps = op in COMMUTATIVE and len(args) == 2 and type(args[0]) is not type(args[1])
        swaps = swaps or (op in COMMUTATIVE and any(isinstance(a, App) for a in args))
        orders = [(0, 1), (1, 0)] if swaps else [tuple(range(len(args)))]
        # Numbers and applications first: they fail fast, variables match anything.
        self.orders = [sorted(enumerate(o), key=lambda p: isinstance(args[p[0]], Var))
                       for o in orders]
        makers = [None if isinstance(a, Var) else {a.op} if isinstance(a, App) else CONSTANTS
                  for a in args]
        self.makers = [[(j, m) for i, j in o if (m := makers[i]) is not None] for o in self.orders]

    def fits(self, makers: Sequence[str]) -> bool:
        """Whether operands made by these operators may match; cheap, and false mostly."""
        if len(makers) != len(self.args):
            return False
        return any([all([makers[j] in m for j, m in order]) for order in self.makers])

    def match(self, value: Value, binding: Binding) -> bool:
        """Match the producer; the operands of commutative operators in either order."""
        node = value.producer
        return node is not None and node.op == self.op and self.match_node(node, binding)

    def match_node(self, node: Node, binding: Binding) -> bool:
        """Match a node of this operator."""
        if len(node.inputs) != len(self.args) or node.keys != self.keys or (
                len(node.outputs) != 1):
            return False
        if not all(want.match(node.attrs[k], binding) if isinstance(want, Var)
                   else same(want, node.attrs[k]) for k, want in self.attrs.items()):
            return False
        for order in self.orders:
            trial = dict(binding)
            if all(self.args[i].match(node.inputs[j], trial) for i, j in order):
                binding.update(trial)
                return True
        return False


def same_number(a: complex, b: complex) -> bool:
    """Equality that tells -0.0 from 0.0 and true from 1."""
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if a == 0 and b == 0 and not isinstance(a, complex) and not isinstance(b, complex):
        return math.copysign(1, a) == math.copysign(1, b)
    return a == b


def same(a: object, b: object) -> bool:
    """Equality of attributes."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, bool | int | float) and isinstance(b, bool | int | float):
        return same_number(a, b)
    return a == b


def application(name: str, args: Sequence[object], kw: Mapping[str, object]) -> App:
    """The pattern of calling an operator; unknown names and attributes are errors."""
    if (op := REGISTRY.get(name)) is None:
        raise DeclarationError(f"a pattern uses '{name}', which is no operator")
    flat = op.flatten(tuple(args)) if op.schema.variadic else args
    named = {k: kw[k] for k in op.schema.optional if k in kw}
    attrs: dict[str, object] = dict(op.defaults)
    for key in kw.keys() - named.keys():
        if (spec := op.schema.attrs.get(key)) is None:
            raise DeclarationError(f"a pattern gives {name} an attribute '{key}'")
        attrs[key] = kw[key] if isinstance(kw[key], Var) else spec.coerce(canonical(kw[key]))
    if missing := op.schema.attrs.keys() - attrs.keys():
        raise DeclarationError(f"a pattern of {name} lacks the attribute '{min(missing)}'")
    operands = [a if isinstance(a, Expr) else Lit(a) for a in (*flat, *named.values())]  # type: ignore[arg-type]
    return App(name, tuple(operands), tuple(named), attrs)


class _Operators:
    """Every operator as an attribute, on patterns and on values: `op.transpose(x, perm=p)`."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: object, **kw: object) -> object:
            flat = [b for a in args
                    for b in (cast("list[object]", a) if isinstance(a, list) else [a])]
            if any(isinstance(a, Expr) for a in (*flat, *kw.values())):
                return application(name, args, kw)
            return REGISTRY[name](*args, **kw)

        return call


op = _Operators()


@dataclass(frozen=True, slots=True)
class Equation:
    """`left` may be replaced by `right` where `when` holds and the types agree.

    `examples` gives, for the tests, what each variable may stand for: tensor types such as
    `T[2,3]`, T being every dtype, and attributes. Without examples operands are vectors.
    """

    name: str
    left: App
    right: Side
    domain: Domain = "exact"
    when: Side | None = None
    examples: tuple[Mapping[str, object], ...] = ()
    variables: tuple[str, ...] = ()
    _wants: tuple[tuple[str, ...], tuple[str, ...]] = field(default=((), ()), repr=False)

    def match(self, node: Node) -> Binding | None:
        """What the variables stand for when `node` has the form of the left side."""
        binding: Binding = {"out": node.outputs[0]} if node.outputs else {}
        if not self.left.match_node(node, binding):
            return None
        if self.when is not None and not self.when(*[binding[n] for n in self._wants[1]]):
            return None
        return binding

    def build(self, binding: Binding) -> Value:
        """Record the right side in the open builder."""
        return self.right(*[binding[n] for n in self._wants[0]])


EQUATIONS: dict[str, Equation] = {}
"""Every equation by name; `equations.load()` fills it."""


def parameters(fn: Side) -> tuple[str, ...]:
    """The names of the parameters of a function that have no defaults."""
    return fn.__code__.co_varnames[:fn.__code__.co_argcount - len(fn.__defaults__ or ())]


def rule(name: str, left: Side, right: Side, *, domain: Domain = "exact", when: Side | None = None,
         examples: Sequence[Mapping[str, object]] = ()) -> Equation:
    """Declare an equation."""
    if name in EQUATIONS:
        raise DeclarationError(f"the equation {name} is declared twice")
    names = parameters(left)
    pattern = left(*map(Var, names))
    if not isinstance(pattern, App):
        raise DeclarationError(f"the left side of {name} is no operator")
    wants = (parameters(right), parameters(when) if when else ())
    if unknown := {*wants[0], *wants[1]} - {*names, "out"}:
        raise DeclarationError(f"{name} uses '{min(unknown)}', which its left side does not bind")
    made = Equation(name, pattern, right, domain, when, tuple(examples), names, wants)
    EQUATIONS[name] = made
    return made
