"""Lowerings of convolutions: few channels a group as windows of planes, others as products."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod
from typing import cast

import numpy as np

from ....codegen.llvm.target import host
from ....declare.arrays import Array
from ....declare.scalar import var
from ....errors import Declined
from ....ir.dims import Size
from ....ir.graph import Node
from ....ir.graph import Value as GraphValue
from ....ir.types import Shape, count
from ....memory.views import View, reshape
from ..contraction import Epilogue, ExtraOperand
from ..lowered import Lowered, Packed, Word
from ..products import Product
from ..tails import Tail, element_of, laid, lies_as
from .direct import direct_band, direct_chunks, direct_scratch, emit_direct, pack_direct
from .geometry import Sizes, by_rows, copied, element, merge, windows
from .kernel import emit_convolution
from .pack import pack_filters
from .planes import Planes, emit_planes, plane_chunks
from .sliding import emit_slide, slide_chunks, slide_scratch, slides
from .spec import Convolution, Window, chunks_for, cut, scratch_bytes

_FEW = 8
"""Filters of a group below which planes are read for each rather than gathered."""
Fixed = Collection[GraphValue]


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


def tail_of(tail: Tail | None, bias: View | None, y: Shape) -> Tail | None:
    """What is left to do with sums of shape `y` = (batch, filters, ..): the bias, then `tail`."""
    if bias is None:
        return tail
    column = replace(bias, shape=(*bias.shape, *(1,) * (len(y) - 2)),
                     strides=(*bias.strides, *(0,) * (len(y) - 2)))
    dtype = bias.base.dtype
    return (tail or Tail(var(0, dtype))).plus(laid(column, y))


def epilogue_of(tail: Tail | None, y: View, sizes: Sizes, depth: int
                ) -> tuple[Epilogue | None, list[View]]:
    """A tail as the epilogue of a kernel that writes `y`, sums of `depth`, and its operands."""
    if tail is None:
        return None, []
    if tail.root.dtype is not y.base.dtype:
        raise Declined(f"results of {tail.root.dtype} from windows of {y.base.dtype}")
    operands, views = list[ExtraOperand](), list[View]()
    for i, v in enumerate(tail.under(y.shape).views):
        channelled = all(s == 0 for s in v.strides[2:])
        if not channelled and not lies_as(v, y.shape):
            v = tail.copied(v)
        views.append(v)
        if not channelled:
            operands.append(ExtraOperand(f"e{i}", "matrix", element_of(v)))
            continue
        batch = None if v.strides[0] == 0 else (sizes.extent(v.strides[0]),)
        operands.append(ExtraOperand(f"e{i}", "row", element_of(v), sizes.extent(v.strides[1]),
                                     batch))
    return tail.epilogue(operands, y.base.dtype, depth), views


def convolution(node: Node, ins: Sequence[View], outs: Sequence[View], fixed: Fixed,
                tail: Tail | None = None) -> list[Lowered]:
    """`convolution` and `conv`."""
    before = list[Lowered]()
    x, w, y, kind = ins[0], ins[1], outs[0], element(ins[0])
    shape, groups = known_shape(w), cast(int, node.attrs["groups"])
    tail = tail_of(tail, bias_of(node, ins, shape[0], before), y.shape)
    if groups == 1 and (found := _single(node, x, w, y)) is not None:
        return [*before, *Product(*found, fixed, tail).lower()]
    x, sizes = by_rows(x, before), Sizes()
    made = windows(node, shape[2:], x, y.shape, sizes)
    epilogue, extras = epilogue_of(tail, y, sizes, prod(shape[1:]))
    before += tail.before if tail else ()
    if groups > 1 and shape[1] == 1 and shape[0] // groups < _FEW:
        return [*before, *depthwise(x, w, y, extras, made, groups, sizes, epilogue)]
    spec = Convolution(
        sizes.extent(x.shape[0]), groups, shape[0] // groups, shape[1],
        merge(x, made, sizes), sizes.extent(x.strides[0]),
        sizes.extent(x.strides[1]), kind, epilogue=epilogue)
    split = replace(w, shape=(groups, spec.filters, *shape[1:]),
                    strides=(w.strides[0] * spec.filters, *w.strides))
    spec, weights = weights_of(split, len(shape) - 2, spec, fixed, before)
    return [*before, call(spec, sizes, x, weights, y, extras)]


def _single(node: Node, x: View, w: View, y: View) -> tuple[View, View, View] | None:
    """The matrices of a convolution whose only window is all of x, if it is one."""
    moved = any(p != 0 for p in cast("tuple[Size, ...]", node.attrs["pads"]))
    if moved or x.shape[2:] != w.shape[2:] or any(n != 1 for n in y.shape[2:]):
        return None
    depth = count(w.shape[1:])
    a, b = reshape(x, (x.shape[0], depth)), reshape(w, (w.shape[0], depth))
    c = reshape(y, y.shape[:2])
    if a is None or b is None or c is None:
        return None
    return a, replace(b, shape=b.shape[::-1], strides=b.strides[::-1]), c


def depthwise(x: View, w: View, y: View, extras: Sequence[View], made: Sequence[Window],
              groups: int, sizes: Sizes, epilogue: Epilogue | None) -> list[Lowered]:
    """A channel for each group: a few filters slide over one plane."""
    before = list[Lowered]()
    if not w.dense:
        w, lowered = copied(w)
        before.append(lowered)
    filters = cast(int, w.shape[0])
    spec = Planes("weighted", sizes.extent(x.shape[0]), filters, filters // groups, tuple(made),
                  sizes.extent(x.strides[0]), sizes.extent(x.strides[1]), element(x), epilogue)
    return [*before, slide(spec, sizes, [x, y, w, *extras])]


def slide(spec: Planes, sizes: Sizes, views: Sequence[View]) -> Lowered:
    """One call of the kernel of planes; `views` are x, y and what else it reads."""
    words: list[Word] = [*views, *sizes.words(spec.run_time_words())]
    if slides(spec):
        return Lowered(f"slide {spec}", lambda module, name: emit_slide(module, spec, name),
                       tuple(words), (views[1].base,), lambda b: slide_chunks(spec, sizes.known(b)),
                       lambda _: slide_scratch(spec))
    return Lowered(f"planes {spec}", lambda module, name: emit_planes(module, spec, name),
                   tuple(words), (views[1].base,), lambda b: plane_chunks(spec, sizes.known(b)))


def weights_of(w: View, n: int, spec: Convolution, fixed: Fixed, before: list[Lowered]
               ) -> tuple[Convolution, View | Packed]:
    """Filters (groups, filters.., channels, *kernel of n axes) as the kernel reads them.

    Those of a parameter are packed when the program is made, others laid out by each run.
    """
    if w.base in fixed and all(isinstance(s, int) for s in (*w.strides, w.offset)):
        spec = replace(spec, packed=True)
        plan, shape = cut(spec, host()), [spec.groups, spec.filters, spec.channels, spec.taps]
        pack, key = (pack_filters, "filters") if direct_band(spec) is None else (
            pack_direct, "direct filters")
        return spec, Packed(w, key, lambda a: pack(
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
         extras: Sequence[View] = ()) -> Lowered:
    """One call of the kernel."""
    plan = cut(spec, host())
    words: list[Word] = [x, w, y, *extras]
    words += sizes.words(spec.run_time_words())
    if (band := direct_band(spec)) is not None:
        return Lowered(
            f"direct {spec}", lambda module, name: emit_direct(module, spec, band, name),
            tuple(words), (y.base,), lambda b: direct_chunks(spec, band, sizes.known(b)),
            lambda _: direct_scratch(spec, band))
    return Lowered(
        f"convolution {spec}", lambda module, name: emit_convolution(module, spec, name),
        tuple(words), (y.base,), lambda b: chunks_for(spec, plan, sizes.known(b)),
        lambda _: scratch_bytes(spec, plan))


LOWERINGS = {"convolution": convolution, "conv": convolution}
"""Convolutions take the parameters too: filters among them are packed."""
