"""Lowerings of convolutions: few channels a group as windows of planes, others as products."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from ....codegen.llvm.target import host
from ....codegen.llvm.text import Function, Type, Value
from ....declare.arrays import Array
from ....errors import Declined
from ....ir.graph import Node
from ....ir.graph import Value as GraphValue
from ....memory.views import View
from ..contraction import Epilogue, ExtraOperand
from ..contraction.spec import Place
from ..lowered import Lowered, Packed, Word
from .geometry import Sizes, by_rows, copied, element, merge, windows
from .kernel import emit_convolution
from .pack import pack_filters
from .planes import Planes, emit_planes, plane_chunks
from .spec import Convolution, Window, chunks_for, cut, scratch_bytes

_FEW = 8
"""Filters of a group below which planes are read for each rather than gathered."""
Fixed = Collection[GraphValue]


def _add(_: Function, value: Value, values: Sequence[Value], __: Place) -> Value:
    return value + values[0]


def adding(kind: Type) -> Epilogue:
    """The epilogue that adds a bias to each filter's outputs."""
    return Epilogue("bias", (ExtraOperand("bias", "row", kind),), _add)


def known_shape(w: View) -> tuple[int, ...]:
    """The filter's sizes; raises `Declined` for what no kernel is made for."""
    shape = tuple([n for n in w.shape if isinstance(n, int)])
    if len(shape) != len(w.shape):
        raise Declined("filters of unknown size")
    if 0 in shape:
        raise Declined("empty filters")
    return shape


def bias_of(node: Node, ins: Sequence[View], filters: int, before: list[Lowered]
            ) -> View | None:
    """The bias of each filter as a dense vector."""
    if not node.keys:
        return None
    assert node.keys == ("bias",)
    if ins[2].shape != (filters,):
        raise Declined("a bias of another size than the filters")
    return by_rows(ins[2], before)


def convolution(node: Node, ins: Sequence[View], outs: Sequence[View], fixed: Fixed
                ) -> list[Lowered]:
    """`convolution` and `conv`."""
    before = list[Lowered]()
    x, w, kind = ins[0], ins[1], element(ins[0])
    shape, groups = known_shape(w), cast(int, node.attrs["groups"])
    bias = bias_of(node, ins, shape[0], before)
    x, sizes = by_rows(x, before), Sizes()
    made = windows(node, shape[2:], x, outs[0].shape, sizes)
    epilogue = adding(kind) if bias is not None else None
    if groups > 1 and shape[1] == 1 and shape[0] // groups < _FEW:
        return [*before, *depthwise(x, w, outs[0], bias, made, groups, sizes, epilogue)]
    spec = Convolution(
        sizes.extent(x.shape[0]), groups, shape[0] // groups, shape[1],
        merge(x, made, sizes), sizes.extent(x.strides[0]),
        sizes.extent(x.strides[1]), kind, epilogue=epilogue)
    split = replace(w, shape=(groups, spec.filters, *shape[1:]),
                    strides=(w.strides[0] * spec.filters, *w.strides))
    spec, weights = weights_of(split, len(shape) - 2, spec, fixed, before)
    return [*before, call(spec, sizes, x, weights, outs[0], bias)]


def depthwise(x: View, w: View, y: View, bias: View | None, made: Sequence[Window], groups: int,
              sizes: Sizes, epilogue: Epilogue | None) -> list[Lowered]:
    """A channel for each group: a few filters slide over one plane."""
    before = list[Lowered]()
    if not w.dense:
        w, lowered = copied(w)
        before.append(lowered)
    filters = cast(int, w.shape[0])
    spec = Planes("weighted", sizes.extent(x.shape[0]), filters, filters // groups, tuple(made),
                  sizes.extent(x.strides[0]), sizes.extent(x.strides[1]), element(x), epilogue)
    return [*before, slide(spec, sizes, [x, y, w, *([bias] if bias is not None else [])])]


def slide(spec: Planes, sizes: Sizes, views: Sequence[View]) -> Lowered:
    """One call of the kernel of planes; `views` are x, y and what else it reads."""
    words: list[Word] = [*views, *sizes.words(spec.run_time_words())]
    key = f"planes {replace(spec, epilogue=None)} {spec.epilogue.key if spec.epilogue else ''}"
    return Lowered(key, lambda module, name: emit_planes(module, spec, name), tuple(words),
                   (views[1].base,), lambda b: plane_chunks(spec, sizes.known(b)))


def weights_of(w: View, n: int, spec: Convolution, fixed: Fixed, before: list[Lowered]
               ) -> tuple[Convolution, View | Packed]:
    """Filters (groups, filters.., channels, *kernel of n axes) as the kernel reads them.

    Those of a parameter are packed when the program is made, others laid out by each run.
    """
    if w.base in fixed and all(isinstance(s, int) for s in (*w.strides, w.offset)):
        spec = replace(spec, packed=True)
        plan, shape = cut(spec, host()), [spec.groups, spec.filters, spec.channels, spec.taps]
        return spec, Packed(w, "filters", lambda a: pack_filters(
            np.ascontiguousarray(cast(Array, a)).reshape(shape), plan))
    rank = len(w.shape)
    perm = (*range(rank - n - 1), *range(rank - n, rank), rank - n - 1)
    turned = replace(w, shape=tuple([w.shape[i] for i in perm]),
                     strides=tuple([w.strides[i] for i in perm]))
    if not turned.dense:
        turned, lowered = copied(turned)
        before.append(lowered)
    return replace(spec, packed=False), turned


def call(spec: Convolution, sizes: Sizes, x: View, w: View | Packed, y: View,
         bias: View | None) -> Lowered:
    """One call of the kernel."""
    plan = cut(spec, host())
    words: list[Word] = [x, w, y, *([bias] if bias is not None else [])]
    words += sizes.words(spec.run_time_words())
    shown = replace(spec, epilogue=None), spec.epilogue.key if spec.epilogue else ""
    return Lowered(
        f"convolution {shown}", lambda module, name: emit_convolution(module, spec, name),
        tuple(words), (y.base,), lambda b: chunks_for(spec, plan, sizes.known(b)),
        lambda _: scratch_bytes(spec, plan))


LOWERINGS = {"convolution": convolution, "conv": convolution}
"""Convolutions take the parameters too: filters among them are packed."""
