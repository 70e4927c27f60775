"""The decorators that declare operators.

A body is written in one language: `Scalar` for elementwise operators, `Value` for composites,
`Array` for the rest. The decorated name is called with values, arrays or, when elementwise,
scalars, and returns what its operands are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from ..ir.graph import Value
from .arrays import Array
from .opdef import REGISTRY, Kind, OpDef, Rule
from .scalar import PRIMS, Num, Prim, Scalar
from .schema import Sample

P = ParamSpec("P")
T = TypeVar("T", Value, Scalar, Array)
B = TypeVar("B", Scalar, Value, Array)


class Op0(Protocol[P]):
    """An operator without operands."""

    def __call__(self, *args: P.args, **kw: P.kwargs) -> Value:
        """Record in the open builder."""
        ...


class Op1(Protocol[P]):
    """An operator with one operand."""

    def __call__(self, x: T, /, *args: P.args, **kw: P.kwargs) -> T:
        """Record, inline or evaluate."""
        ...


class Op1n(Protocol[P]):
    """An operator with one operand and several outputs."""

    def __call__(self, x: T, /, *args: P.args, **kw: P.kwargs) -> tuple[T, ...]:
        """Record or evaluate."""
        ...


class Op2(Protocol[P]):
    """An operator with two operands."""

    def __call__(self, x: T, y: T | float, /, *args: P.args, **kw: P.kwargs) -> T:
        """Record, inline or evaluate."""
        ...


class Op2n(Protocol[P]):
    """An operator with two operands and several outputs."""

    def __call__(self, x: T, y: T, /, *args: P.args, **kw: P.kwargs) -> tuple[T, ...]:
        """Record or evaluate."""
        ...


class Op3(Protocol[P]):
    """An operator with three operands."""

    def __call__(self, x: T, y: T | float, z: T | float, /, *args: P.args, **kw: P.kwargs) -> T:
        """Record, inline or evaluate."""
        ...


class OpList(Protocol[P]):
    """An operator whose operands are a list."""

    def __call__(self, xs: Sequence[T], /, *args: P.args, **kw: P.kwargs) -> T:
        """Record or evaluate."""
        ...


class OpListN(Protocol[P]):
    """An operator whose operands are a list, with several outputs."""

    def __call__(self, xs: Sequence[T], /, *args: P.args, **kw: P.kwargs) -> tuple[T, ...]:
        """Record or evaluate."""
        ...


class OpMany(Protocol):
    """An operator with another number of operands; the generated stub has its exact types."""

    def __call__(self, x: T, /, *args: object, **kw: object) -> T:
        """Record or evaluate."""
        ...


class OpManyN(Protocol):
    """An operator with another number of operands, and several outputs."""

    def __call__(self, x: T, /, *args: object, **kw: object) -> tuple[T, ...]:
        """Record or evaluate."""
        ...


class Declarer(Protocol[B]):
    """Turns a body in language `B` into a callable operator."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Sequence[B], P], B], /) -> OpList[P]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Sequence[B], P], tuple[B, ...]], /
                 ) -> OpListN[P]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[B, B, B, P], B], /) -> Op3[P]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[B, B, P], B], /) -> Op2[P]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[B, P], B], /) -> Op1[P]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[B, B, P], tuple[B, ...]], /) -> Op2n[P]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[B, P], tuple[B, ...]], /) -> Op1n[P]: ...
    @overload
    def __call__(self, fn: Callable[..., B], /) -> OpMany: ...
    @overload
    def __call__(self, fn: Callable[..., tuple[B, ...]], /) -> OpManyN: ...
    def __call__(self, fn: Rule, /) -> object:
        """Declare `fn`."""
        ...


def _declare(kind: Kind, samples: Sequence[Sample], *, keep: tuple[str, ...] = (),
             **rules: Rule | None) -> Rule:
    given = {k: r for k, r in rules.items() if r is not None}

    def wrap(fn: Rule) -> OpDef:
        op = OpDef(kind, fn, samples, given, keep)
        if (derivative := given.get("derivative")) is not None and op.name not in PRIMS:
            PRIMS[op.name] = Prim("derived", None, cast("Callable[..., Scalar]", op.body),
                                  cast("Callable[..., Sequence[Num]]", derivative),
                                  len(op.schema.operands))
        return op

    return wrap


def elementwise(*, samples: Sequence[Sample], keep: tuple[str, ...] = (),
                derivative: Callable[..., Sequence[Num]] | None = None) -> Declarer[Scalar]:
    """One output element from one element of each operand. Everything else is derived.

    `derivative(*operands, **attrs)` overrides the derived partials, here and wherever other
    bodies call this one. Operands promote to one dtype, except those named in `keep` ("*": all).
    """
    wrap = _declare("elementwise", samples, keep=keep, derivative=derivative)
    return cast("Declarer[Scalar]", wrap)


def reduction(*, samples: Sequence[Sample], types: Rule | None = None, vjp: Rule | None = None,
              jvp: Rule | None = None) -> Declarer[Array]:
    """A fold over `axes`, with `keepdims`; its type rule is derived unless the dtype changes."""
    return cast("Declarer[Array]", _declare("reduction", samples, types=types, vjp=vjp, jvp=jvp))


def view(*, types: Rule, samples: Sequence[Sample], transpose: Rule | None = None,
         vmap: Rule | None = None) -> Declarer[Array]:
    """The same elements in another order or shape."""
    return cast("Declarer[Array]", _declare("view", samples, types=types, transpose=transpose,
                                            vmap=vmap))


def linear(*, types: Rule, samples: Sequence[Sample], transpose: Rule | None = None,
           vmap: Rule | None = None) -> Declarer[Array]:
    """Linear in each operand. `transpose(g, *operands)` maps back to each operand."""
    return cast("Declarer[Array]", _declare("linear", samples, types=types, transpose=transpose,
                                            vmap=vmap))


def composite(*, samples: Sequence[Sample]) -> Declarer[Value]:
    """A body of other operators: types, derivative and every backend come through it."""
    return cast("Declarer[Value]", _declare("composite", samples))


def structured(*, types: Rule, samples: Sequence[Sample], vjp: Rule | None = None,
               jvp: Rule | None = None, vmap: Rule | None = None, args: Rule | None = None,
               settle: Rule | None = None) -> Declarer[Array]:
    """An operator whose rules nothing can derive.

    `vjp(g.., *operands)`, `jvp(t.., *operands)` and `vmap` are optional. `args(*operand types,
    **attrs)` types the inputs of its regions; `settle(region, **attrs)` gives the types that they
    need after a look at what the region makes of them.
    """
    wrap = _declare("structured", samples, types=types, vjp=vjp, jvp=jvp, vmap=vmap, args=args,
                    settle=settle)
    return cast("Declarer[Array]", wrap)


def leaf(*, types: Rule, samples: Sequence[Sample]) -> Callable[[Callable[P, Array]], Op0[P]]:
    """A value made from attributes alone."""
    return cast("Callable[[Callable[P, Array]], Op0[P]]",
                _declare("structured", samples, types=types))


def opdef(name: str) -> OpDef:
    """The definition behind an operator's name."""
    return REGISTRY[name]
