"""Signatures as schemas: operands, attributes and samples read off a Python function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from types import FunctionType
from typing import TypeAlias, cast

import numpy as np

from ..errors import DeclarationError, OperatorError
from ..ir.dims import Dim
from ..ir.graph import Attr, Blob, Node, Value
from ..ir.types import DType
from ..records import dataclass, field
from .arrays import Array, blob

Tensor: TypeAlias = "Value | Array"
"""An optional operand as written in a signature: `mask: Tensor | None = None`."""
Region: TypeAlias = "Callable[..., object]"
"""A region as written in a signature; callers pass a closure."""
MISSING = object()
_PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (float, int), "bool": (bool,), "str": (str,), "DType": (DType,),
    "complex": (complex,), "Size": (int, Dim), "Blob": (Blob,), "None": (type(None),)}
OPTIONAL_NOTES = ("Tensor | None", "Array | None", "Value | None")


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """One attribute: its annotation, default, and the check both imply."""

    name: str
    annotation: str
    default: object
    check: Callable[[object], bool]
    floats: bool = False

    def coerce(self, value: object) -> Attr:
        """`value` in canonical form, or an error that names the annotation."""
        value = canonical(value)
        if isinstance(value, np.ndarray) and "Blob" in self.annotation:
            value = blob(cast("Array", cast(object, value)))
        if not self.check(cast(object, value)):
            raise OperatorError(f"attribute {self.name}={value!r} is not {self.annotation}")
        if self.floats and isinstance(value, int):
            value = float(value)
        return cast(Attr, value)


def canonical(value: object) -> object:
    """Lists become tuples and NumPy scalars Python numbers, so that equal attributes are equal."""
    if isinstance(value, list | tuple):
        return tuple([canonical(v) for v in cast("Sequence[object]", value)])
    return cast("object", value.item()) if isinstance(value, np.generic) else value


def _split_union(annotation: str) -> list[str]:
    if "|" not in annotation:
        return [annotation]
    depth, parts = 0, [""]
    for ch in annotation:
        depth += (ch == "[") - (ch == "]")
        if ch == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += ch
    return [p.strip() for p in parts]


def checker(annotation: str) -> Callable[[object], bool]:
    """The test that an attribute annotation stands for; unknown annotations are errors."""
    parts = _split_union(annotation)
    if len(parts) > 1:
        tests = [checker(p) for p in parts]
        return lambda v: any(t(v) for t in tests)
    if annotation.startswith("Literal["):
        allowed: object = ast.literal_eval(f"({annotation[8:-1]},)")
        return lambda v: isinstance(allowed, tuple) and v in allowed
    if annotation.startswith("tuple[") and annotation.endswith(", ...]"):
        item = checker(annotation[6:-6])
        return lambda v: isinstance(v, tuple) and all(map(item, cast("tuple[object, ...]", v)))
    if annotation == "Shape":
        return checker("tuple[Size, ...]")
    if annotation not in _PLAIN:
        raise DeclarationError(f"attributes cannot be {annotation}",
                               hint=f"use {', '.join(_PLAIN)}, Literal[..], tuple[X, ...]")
    kinds = _PLAIN[annotation]
    return lambda v: isinstance(v, kinds) and (bool in kinds or not isinstance(v, bool))


@dataclass(frozen=True, slots=True)
class Schema:
    """The operands, attributes and regions that a signature declares.

    A last operand annotated `Sequence[..]` is `variadic`: callers pass a list, `concat([a, b])`.
    """

    operands: tuple[str, ...]
    variadic: bool
    optional: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    attrs: Mapping[str, AttrSpec] = field(default_factory=dict[str, AttrSpec])

    @property
    def keywords(self) -> set[str]:
        """Every keyword a call may give."""
        return {*self.optional, *self.regions, *self.attrs}

    def misfit(self, node: Node) -> str:
        """Why a node that no call has made, such as one read from text, is not of this schema."""
        n, want = len(node.inputs) - len(node.keys), len(self.operands)
        if n < want - self.variadic or (n > want and not self.variadic):
            return f"it takes {want} operands ({', '.join(self.operands)}), got {n}"
        if tuple([k for k in self.optional if k in node.keys]) != node.keys:
            return (f"its optional operands are {', '.join(self.optional) or 'none'}, in this "
                    f"order, got {', '.join(node.keys)}")
        for what, own, given in (("region", set(self.regions), set(node.regions)),
                                 ("attribute", set(self.attrs), set(node.attrs))):
            if own != given:
                word = "lacks" if own - given else "does not know"
                return f"it {word} the {what} {min(own - given or given - own)}"
        for name, spec in self.attrs.items():
            if not spec.check(node.attrs[name]):
                return f"attribute {name}={node.attrs[name]!r} is not {spec.annotation}"
        return ""


def read_schema(fn: FunctionType) -> Schema:
    """Read the schema off `fn`: positional = operands, keyword-only = the rest by annotation."""
    code, notes, defaults = fn.__code__, fn.__annotations__, fn.__kwdefaults__ or {}
    n = code.co_argcount
    names = code.co_varnames[:n + code.co_kwonlyargcount]
    optional, regions, attrs = list[str](), list[str](), dict[str, AttrSpec]()
    for name in names[n:]:
        if (note := notes.get(name)) is None:
            raise DeclarationError(f"{fn.__name__}: attribute '{name}' has no annotation")
        if note in OPTIONAL_NOTES:
            optional.append(name)
        elif note == "Region":
            regions.append(name)
        else:
            try:
                kinds = _split_union(note)
                floats = "float" in kinds and not {"int", "bool", "Size"} & {*kinds}
                attrs[name] = AttrSpec(name, note, defaults.get(name, MISSING), checker(note),
                                       floats)
            except DeclarationError as e:
                raise DeclarationError(f"{fn.__name__}: attribute '{name}': {e}") from None
    if fn.__defaults__ or code.co_flags & 4:
        raise DeclarationError(f"{fn.__name__}: operands have no defaults and no star",
                               hint="optional ones are keyword-only: `mask: Tensor | None`; "
                                    "any number of them is `xs: Sequence[Array]`")
    lists = [i for i in range(n) if notes.get(names[i], "").startswith("Sequence[")]
    if lists not in ([], [n - 1]):
        raise DeclarationError(f"{fn.__name__}: only the last operand may be a Sequence")
    return Schema(names[:n], bool(lists), tuple(optional), tuple(regions), attrs)


@dataclass(frozen=True, slots=True)
class Sample:
    """Operand types and attributes to test with; data is drawn from [low, high], ends included.

    `expect` is the answer, written down independently of the body: a list of outputs, or
    `module:function`. That oracle is called as `function(*operands, **optional, **attrs)`: the
    operand arrays, the variadic ones spread out; then by keyword the optional operands that are
    present and the attributes that the sample states. It returns an array, or a list with one
    entry an output. Oracles outside `tests` are given floats as f64. The result must agree
    within `rtol`, or one unit in the last place of an output narrower than f32; integers, bool
    and text exactly.
    """

    types: tuple[str, ...]
    attrs: Mapping[str, object]
    low: float = -2.0
    high: float = 2.0
    data: Sequence[object] | None = None
    expect: Sequence[object] | str | None = None
    rtol: float = 1e-6


@dataclass(frozen=True, slots=True)
class Typed:
    """Literal sample data of a stated dtype."""

    data: object
    dtype: str


def arr(data: object, dtype: str) -> Typed:
    """Sample data of a dtype: `arr([1, 2], "i32")`."""
    return Typed(data, dtype)


def sample(*types: str, low: float = -2.0, high: float = 2.0, expect: str | None = None,
           rtol: float = 1e-6, **attrs: object) -> Sample:
    """A random sample: `sample("f32[4,8]", axis=0, expect="scipy.special:erf")`.

    Optional operands are given as types, variadic ones as further types.
    """
    return Sample(types, attrs, low, high, expect=expect, rtol=rtol)


def known(*data: object, expect: Sequence[object], rtol: float = 1e-6, **attrs: object) -> Sample:
    """A sample with its answer: floats are f32, integers i64, unless `arr` says otherwise."""
    return Sample((), attrs, data=data, expect=expect, rtol=rtol)


def misfit(fn: Callable[..., object], *args: object, **kw: object) -> str:
    """Why a function of the user's cannot be called like this, or nothing."""
    try:
        signature(fn).bind(*args, **kw)
    except TypeError as e:
        return str(e)
    return ""


def check_rule(owner: str, what: str, fn: Callable[..., object], extra: int, schema: Schema
               ) -> None:
    """A rule or lowering takes exactly the schema, after `extra` leading arguments."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return
    n, k = code.co_argcount, code.co_kwonlyargcount
    keywords = set(code.co_varnames[n:n + k])
    where = f"{owner}: {what} {fn.__name__}"
    if keywords != schema.keywords:
        missing, surplus = schema.keywords - keywords, keywords - schema.keywords
        parts = [f"{word} {', '.join(sorted(s))}" for word, s in
                 (("lacks", missing), ("does not know", surplus)) if s]
        raise DeclarationError(f"{where} {' and '.join(parts)}",
                               hint="take every attribute by name; decline what you cannot do")
    if not (code.co_flags & 4) and n != extra + len(schema.operands):
        raise DeclarationError(f"{where} takes {n} operands, not {extra + len(schema.operands)}")
