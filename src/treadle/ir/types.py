"""Element types, among them block encodings and host values, and tensor types."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Literal, TypeAlias

from ..errors import OperatorError, ParseError
from ..records import dataclass
from .dims import Size, parse_size

Shape: TypeAlias = tuple[Size, ...]
Sort = Literal["bool", "uint", "int", "float", "complex", "string", "block", "host"]
HostKind = Literal["seq", "opt", "map"]
MOST_AXES = 64
"""NumPy's limit on the rank of an array."""
HOST_DEPTH = 16
"""Deepest nesting of host dtypes that is read."""


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type.

    A block encoding packs `block` elements of the last axis in `bits` bits. A host dtype
    (`seq(f32[2,3])`, `opt(..)`, `map(i64,f32)`) is a Python value held by a rank-0 tensor; `elem`
    is its element type where one is known.
    """

    name: str
    sort: Sort
    bits: int
    numpy: str = ""
    block: int = 1
    elem: TensorType | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def narrow(self) -> bool:
        """Whether arithmetic runs in a wider type and rounds once at the end."""
        return self.sort == "float" and self.bits < 32 or self.bits < 8


_TABLE = """
bool:bool:8:bool  u8:uint:8:uint8  u16:uint:16:uint16  u32:uint:32:uint32  u64:uint:64:uint64
i8:int:8:int8  i16:int:16:int16  i32:int:32:int32  i64:int:64:int64
i4:int:4:int4  u4:uint:4:uint4  i2:int:2:int2  u2:uint:2:uint2
f16:float:16:float16  bf16:float:16:bfloat16  f32:float:32:float32  f64:float:64:float64
f8e4m3fn:float:8:float8_e4m3fn  f8e5m2:float:8:float8_e5m2  f8e8m0fnu:float:8:float8_e8m0fnu
f8e4m3fnuz:float:8:float8_e4m3fnuz  f8e5m2fnuz:float:8:float8_e5m2fnuz
f6e2m3fn:float:6:float6_e2m3fn  f6e3m2fn:float:6:float6_e3m2fn  f4e2m1fn:float:4:float4_e2m1fn
c64:complex:64:complex64  c128:complex:128:complex128  string:string:64:object
"""
_BLOCKS = """
q4_0:18:32 q4_1:20:32 q5_0:22:32 q5_1:24:32 q8_0:34:32 q8_1:36:32 q2_k:84:256 q3_k:110:256
q4_k:144:256 q5_k:176:256 q6_k:210:256 q8_k:292:256 iq1_s:50:256 iq1_m:56:256 iq2_xxs:66:256
iq2_xs:74:256 iq2_s:82:256 iq3_xxs:98:256 iq3_s:110:256 iq4_nl:18:32 iq4_xs:136:256 tq1_0:54:256
tq2_0:66:256 mxfp4:17:32 nvfp4:9:16
"""
"""Name, bytes a block, elements a block: the GGUF layouts (ggml-common.h) and NVFP4."""
_SORTS: dict[str, Sort] = {
    s: s for s in ("bool", "uint", "int", "float", "complex", "string")}


def _row(row: str) -> DType:
    name, sort, bits, numpy = row.split(":")
    return DType(name, _SORTS[sort], int(bits), numpy)


def _block_row(row: str) -> DType:
    name, nbytes, block = row.split(":")
    return DType(name, "block", 8 * int(nbytes), "", int(block))


DTYPES: dict[str, DType] = {d.name: d for d in (
    *map(_row, _TABLE.split()), *map(_block_row, _BLOCKS.split()))}
"""Every element type by name, host types apart."""
BOOL, I8, U8, I32, I64, F16, BF16, F32, F64, STRING = (
    DTYPES[n] for n in ("bool", "i8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64", "string"))
_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


@lru_cache(1024)
def promote(a: DType, b: DType) -> DType:
    """The dtype two operands meet in; encoded tensors and ambiguous pairs are errors."""
    if a is b:
        return a
    if not {a.sort, b.sort} <= _RANK.keys() or min(a.bits, b.bits) < 8:
        raise OperatorError(f"{a} and {b} do not mix", hint="dequantize or cast one of them")
    if _RANK[a.sort] != _RANK[b.sort]:
        wide = max(a, b, key=lambda d: _RANK[d.sort])
        return DTYPES["c128"] if wide.sort == "complex" and F64 in (a, b) else wide
    if a.sort != b.sort:
        signed, unsigned = (a, b) if a.sort == "int" else (b, a)
        if unsigned.bits >= 64:
            raise OperatorError(f"{a} and {b} have no common integer type", hint="cast one of them")
        return DTYPES[f"i{max(signed.bits, 2 * unsigned.bits)}"]
    if a.bits == b.bits:
        return F32  # f16 with bf16, or two float8 formats
    return max(a, b, key=lambda d: d.bits)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Logical shape and element type. Prints as `f32[batch,64]`."""

    shape: Shape
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def nbytes(self) -> Size:
        """Bytes of the packed storage; symbolic when a size is."""
        return (count(self.shape) * self.dtype.bits + 7) // (8 * self.dtype.block)

    def with_(self, *, shape: Shape | None = None, dtype: DType | None = None) -> TensorType:
        """Return the type with another shape or dtype."""
        return TensorType(self.shape if shape is None else shape, dtype or self.dtype)


def count(shape: Shape) -> Size:
    """The number of elements of a shape."""
    total: Size = 1
    for s in shape:
        total = total * s
    return total


def axis_of(axis: int, rank: int) -> int:
    """`axis` counted from 0; out of range is an error."""
    if not -rank <= axis < rank:
        raise OperatorError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """`axes` counted from 0 in increasing order; repeats and out of range are errors."""
    out = sorted(axis_of(a, rank) for a in axes)
    if len(set(out)) != len(out):
        raise OperatorError(f"the axes {tuple(axes)} name one axis twice")
    return tuple(out)


def shape_text(shape: Shape) -> str:
    """A shape as it prints inside a type."""
    return f"[{','.join(map(str, shape))}]"


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """NumPy broadcasting. Two sizes must be equal or one of them 1; nothing is guessed."""
    first = shapes[0]
    if all([s is first or s == first for s in shapes]):
        return first
    return _broadcast(tuple(shapes))


@lru_cache(4096)
def _broadcast(shapes: tuple[Shape, ...]) -> Shape:
    rank = max(map(len, shapes))
    out: list[Size] = []
    for i in range(-rank, 0):
        size: Size = 1
        for s in shapes:
            d = s[i] if -i <= len(s) else 1
            if d == 1 or d == size:
                continue
            if size != 1:
                raise OperatorError(
                    f"{' and '.join(map(shape_text, shapes))} do not broadcast: "
                    f"{size} against {d} on axis {i}",
                    hint="reshape or expand one operand; equal symbols are equal sizes",
                    sizes=(size, d))
            size = d
        out.append(size)
    return tuple(out)


_hosts: dict[str, DType] = {}


def host_dtype(kind: HostKind, elem: TensorType | None = None, text: str = "") -> DType:
    """The dtype of a sequence, optional or map; `text` describes what has no tensor element."""
    name = f"{kind}({elem if elem is not None else text})"
    if (found := _hosts.get(name)) is None:
        found = _hosts.setdefault(name, DType(name, "host", 64, "object", elem=elem))
    return found


def parse_dtype(name: str) -> DType:
    """Read a dtype name, host dtypes included."""
    if (found := DTYPES.get(name) or _hosts.get(name)) is not None:
        return found
    if name.count("(") > HOST_DEPTH:
        raise ParseError(f"a dtype of more than {HOST_DEPTH} levels")
    kind, _, inner = name.partition("(")
    kinds: dict[str, HostKind] = {"seq": "seq", "opt": "opt", "map": "map"}
    if kind not in kinds or not inner.endswith(")"):
        near = ", ".join(get_close_matches(name, DTYPES)) or "f32, bf16, i64, bool, q4_k"
        raise ParseError(f"not a dtype: {name!r}", hint=f"there are {near} and others")
    inner = inner[:-1]
    return (host_dtype(kinds[kind], parse_type(inner)) if inner.endswith("]")
            else host_dtype(kinds[kind], text=inner))


def _split(body: str) -> list[str]:
    depth, start, parts = 0, 0, list[str]()
    for i, ch in enumerate(body + ","):
        depth += (ch == "(") - (ch == ")")
        if ch == "," and not depth:
            parts.append((body + ",")[start:i])
            start = i + 1
    return parts if body.strip() else []


def _axis_size(text: str) -> Size:
    size = parse_size(text)
    if isinstance(size, int) and size < 0:
        raise ParseError(f"the size {size} is negative", hint="sizes are 0 or more")
    return size


@lru_cache(65536)
def parse_type(text: str) -> TensorType:
    """Read a tensor type such as `bf16[batch,past+seq,64]`."""
    depth = 0
    cut = len(text) - 1 if text.endswith("]") else -1
    for i in range(cut, -1, -1):
        depth += (text[i] == "]") - (text[i] == "[")
        if depth == 0:
            cut = i
            break
    if cut <= 0 or depth:
        raise ParseError(f"not a tensor type: {text!r}", hint="write like f32[batch,64]")
    return TensorType(tuple(map(_axis_size, _split(text[cut + 1:-1]))), parse_dtype(text[:cut]))
