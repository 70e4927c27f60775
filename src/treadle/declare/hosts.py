"""The types of host values: what a sequence, optional or map is known to hold.

`seq(f32[2,_])` holds tensors of one rank, `_` standing for a size that each element has for
itself; `seq(f32)` holds tensors of any rank; `seq(f32.none)` is empty. `opt(T)` holds a `T` or
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import OperatorError
from ..ir.dims import sym, symbols
from ..ir.types import DTYPES, DType, HostKind, TensorType, host_dtype
from ..records import dataclass

ANY = sym("_")
"""The size of an axis whose size differs from element to element."""


@dataclass(frozen=True, slots=True)
class Elem:
    """What is known of the elements: their dtype, their type, or that there are none."""

    dtype: DType | None
    type: TensorType | None = None
    empty: bool = False

    def host(self, kind: HostKind) -> TensorType:
        """The type of the host value that holds such elements."""
        if self.type is not None:
            return TensorType((), host_dtype(kind, self.type))
        text = (self.dtype.name if self.dtype else "") + (".none" if self.empty else "")
        return TensorType((), host_dtype(kind, text=text))


def elem_of(t: TensorType, kind: HostKind) -> Elem:
    """What a host type says of its elements; a tensor or another kind is an error."""
    name = t.dtype.name
    if not name.startswith(kind + "("):
        words = {"seq": "a sequence", "opt": "an optional", "map": "a map"}
        raise OperatorError(f"{words[kind]} is needed, got {t}")
    if t.dtype.elem is not None:
        return Elem(t.dtype.elem.dtype, t.dtype.elem)
    inner, empty = name[4:-1].removesuffix(".none"), name.endswith(".none)")
    return Elem(DTYPES.get(inner), None, empty or not inner)


def join_elems(a: Elem, b: Elem) -> Elem:
    """What is known of an element that is one of the two."""
    if a.empty or b.empty:
        other = b if a.empty else a
        return Elem(other.dtype or a.dtype or b.dtype, other.type, a.empty and b.empty)
    if a.type is not None and b.type is not None and is_host(a.type) and is_host(b.type):
        both = join(a.type, b.type)
        return Elem(both.dtype, both)
    if a.dtype is not b.dtype:
        raise OperatorError(f"the elements are {a.dtype} and {b.dtype}", hint="cast one of them")
    if a.type is None or b.type is None or a.type.rank != b.type.rank:
        return Elem(a.dtype)
    sizes = zip(a.type.shape, b.type.shape, strict=True)
    return Elem(a.dtype, a.type.with_(shape=tuple([x if x == y else ANY for x, y in sizes])))


def join(a: TensorType, b: TensorType) -> TensorType:
    """The host type that covers both; types without a common one are an error.

    A sequence is also an optional that holds it, because both are the same value at run time.
    """
    if a == b:
        return a
    a, b = _as_optional(a, b), _as_optional(b, a)
    for kind in ("seq", "opt"):
        if all(t.dtype.name.startswith(kind + "(") for t in (a, b)):
            return join_elems(elem_of(a, kind), elem_of(b, kind)).host(kind)
    raise OperatorError(f"{a} and {b} have no common type")


def _as_optional(a: TensorType, other: TensorType) -> TensorType:
    if a.dtype.name.startswith("seq(") and other.dtype.name.startswith("opt("):
        return Elem(a.dtype, a).host("opt")
    return a


def hide(t: TensorType, hidden: Callable[[str], bool]) -> TensorType:
    """A host type in which a size that depends on a hidden symbol is `_`."""
    name, elem = t.dtype.name, t.dtype.elem
    if elem is None:
        return t
    inner = hide(elem, hidden) if is_host(elem) else elem.with_(shape=tuple([
        ANY if any(map(hidden, symbols(d))) else d for d in elem.shape]))
    kind: HostKind = "opt" if name.startswith("opt") else "seq"
    return Elem(inner.dtype, inner).host(kind)


def sized(t: TensorType, fresh: str) -> TensorType:
    """One element's type: `_` on axis i becomes the symbol `{fresh}_{i}`."""
    if ANY not in t.shape:
        return t
    if not fresh:
        raise OperatorError(f"the sizes of {t} depend on the run",
                            hint='name them: fresh="item1"')
    return t.with_(shape=tuple([sym(f"{fresh}_{i}") if d is ANY else d
                                for i, d in enumerate(t.shape)]))


def is_host(t: TensorType) -> bool:
    """Whether a value of this type is a sequence, optional or map."""
    return t.dtype.sort == "host"
