"""The lowering of the `attention` operator: every operand and attribute, or a reason why not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from ....codegen.llvm.scalars import MEMORY
from ....codegen.llvm.target import host
from ....codegen.llvm.text import BF16, F32, F64, Type
from ....declare.scalar import Scalar
from ....errors import Declined
from ....ir.dims import Size, evaluate
from ....ir.graph import Node
from ....ir.types import DTYPES, Shape
from ....loops.functions import open_functions
from ....memory.views import View
from ....ops.library import REGISTRY
from ....records import dataclass, field
from ..contraction.tiles import tile_for
from ..convolution.geometry import copied
from ..lowered import Binding, Lowered, Word
from ..pointwise import Lowering, spread
from .kernel import emit_attention
from .spec import Attention, Extent, Operand, blocks, chunks_for

_FLOATS = ("f16", "bf16", "f32", "f64")
_WIDEST = 512
"""Head sizes whose blocks fit a second-level cache."""


@dataclass
class _Call:
    """Views on their way to a kernel call: copies come first, sizes get names."""

    before: list[Lowered] = field(default_factory=list[Lowered])
    names: dict[Size, str] = field(default_factory=dict[Size, str])
    views: list[View] = field(default_factory=list[View])

    def extent(self, size: Size) -> Extent:
        return size if isinstance(size, int) else self.names.setdefault(
            size, f"n{len(self.names)}")

    def operand(self, name: str, view: View, strides: Sequence[Size] | None = None) -> Operand:
        self.views.append(view)
        dtype = view.base.dtype
        found = tuple([self.extent(s) for s in (view.strides if strides is None else strides)])
        return Operand(name, _element(view), found, dtype.sort != "uint")

    def by_rows(self, view: View) -> View:
        """The view, or a copy, whose last axis has its neighbours side by side."""
        if view.strides[-1] == 1 or view.shape[-1] == 1:
            return view
        made, lowered = copied(view)
        self.before.append(lowered)
        return made


def _element(view: View) -> Type:
    dtype = view.base.dtype
    return BF16 if dtype.name == "bf16" else MEMORY[dtype.name]


def attention(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """One kernel, after copies of operands that do not lie row by row."""
    call = _Call()
    q, k, v = ins[:3]
    more = dict(zip(node.keys, ins[3:], strict=True))
    acc = _accumulator(q, k, v)
    q, v, y = call.by_rows(q), call.by_rows(v), outs[0]
    columns = k.strides[2] == 1 and k.strides[3] != 1
    k = k if columns else call.by_rows(k)
    depth, width = _number(q.shape[3]), _number(v.shape[3])
    scores: Shape = (*q.shape[:3], k.shape[2])
    named = (call.operand("q", q), call.operand("k", k), call.operand("v", v))
    optional = tuple([_optional(call, name, view, scores) for name, view in more.items()])
    written = call.operand("y", y)
    scale, cap = cast("float | None", node.attrs["scale"]), node.attrs["softcap"]
    spec = Attention(
        *named, written, optional, acc, call.extent(q.shape[0]), call.extent(k.shape[1]),
        _group(q, k), call.extent(q.shape[2]), call.extent(k.shape[2]), depth, width, columns,
        1.0 / math.sqrt(max(depth, 1)) if scale is None else scale, cast("float | None", cap),
        call.extent(cast(Size, node.attrs["start"])), cast("int | None", node.attrs["left"]),
        cast("int | None", node.attrs["right"]))
    return [*call.before, _lowered(call, spec, y)]


def _accumulator(*views: View) -> Type:
    for x in views:
        if x.base.dtype.name not in _FLOATS:
            raise Declined(f"no attention template for {x.base.dtype}")
    wide = F64 if views[0].base.dtype.name == "f64" else F32
    if wide == F32 and any(x.base.dtype.name == "f64" for x in views):
        raise Declined("keys or values of more bits than the queries")
    return wide


def _number(size: Size) -> int:
    if not isinstance(size, int) or size > _WIDEST:
        raise Declined(f"a head size of {size}; the template takes known ones up to {_WIDEST}")
    return size


def _group(q: View, k: View) -> int:
    many, few = q.shape[1], k.shape[1]
    if many == few:
        return 1
    assert isinstance(many, int) and isinstance(few, int)
    return many // few


def _optional(call: _Call, name: str, view: View, scores: Shape) -> Operand:
    """An optional operand with strides along what it is read by."""
    if name in ("mask", "bias"):
        if name == "bias" and view.base.dtype.name not in _FLOATS:
            raise Declined(f"a bias of {view.base.dtype}")
        strides = spread(view, scores)
        if strides[3] not in (0, 1):
            made, lowered = copied(view)
            call.before.append(lowered)
            view, strides = made, spread(made, scores)
        return call.operand(name, view, strides)
    if name == "sink":
        return call.operand(name, view)
    per_batch = view.strides[0] if view.shape and view.shape != (1,) else 0
    return call.operand(name, view, (per_batch,))


def _lowered(call: _Call, spec: Attention, y: View) -> Lowered:
    tile = tile_for(host(), spec.accumulator)
    sizes = {name: size for size, name in call.names.items()}
    words: list[Word] = [*call.views, *(sizes[n] for n in spec.run_time_words())]
    scratch = blocks(spec, tile).total * spec.accumulator.size
    cap = _cap(spec)

    def known(binding: Binding) -> dict[str, int]:
        return {name: evaluate(size, binding) for name, size in sizes.items()}

    return Lowered(f"{spec}", lambda module, name: emit_attention(module, spec, cap, name),
                   tuple(words), (y.base,), lambda b: chunks_for(spec, tile, known(b)),
                   lambda _: scratch)


def _cap(spec: Attention) -> Scalar | None:
    """The capped score as the operator `softcap` says it."""
    if spec.softcap is None:
        return None
    dtype = DTYPES["f64" if spec.accumulator == F64 else "f32"]
    return open_functions(REGISTRY["softcap"].scalars({"cap": spec.softcap}, (dtype,)))[0]


LOWERINGS: dict[str, Lowering] = {"attention": attention}
