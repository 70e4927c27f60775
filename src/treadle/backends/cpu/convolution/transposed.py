"""Lowerings of transposed convolution: a convolution for each phase of the output.

With step s the outputs o = q * s + r of phase r see the taps t with (r + before - t * gap)
divisible by s, at input q + (r + before - t * gap) / s: an ordinary convolution of step 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import gcd, prod
from typing import cast

from ....declare.scalar import const, substitute, var
from ....errors import Declined
from ....ir.dims import Size
from ....ir.graph import Node, Value
from ....ir.types import Shape, TensorType
from ....memory.views import View, reshape, whole
from ....ops.windows import per_axis
from ....records import dataclass, replace
from ..lowered import Lowered
from ..pointwise import copy, mapped
from ..tails import Tail
from .geometry import Sizes, by_rows, copied, element
from .lowering import Fixed, bias_of, call, epilogue_of, known_shape, tail_of, weights_of
from .spec import Convolution, Window

_MOST_PHASES = 16


@dataclass(frozen=True, slots=True)
class _Axis:
    """A spatial axis: kernel, step, gap, what is cropped before, padding after the output."""

    kernel: int
    step: int
    gap: int
    before: int

    def taps(self, phase: int) -> list[int]:
        """The taps that a phase sees, the one that reads the lowest input first."""
        return [t for t in reversed(range(self.kernel))
                if (phase + self.before - t * self.gap) % self.step == 0]

    def reach(self, phase: int, tap: int) -> int:
        """How far behind its own position an output reads the input at a tap, negated."""
        return (phase + self.before - tap * self.gap) // self.step


@dataclass
class _Transposed:
    """One node's operands."""

    x: View
    w: View
    y: View
    bias: View | None
    axes: list[_Axis]
    groups: int
    fixed: Fixed
    steps: list[Lowered]
    tail: Tail | None = None

    @property
    def filters(self) -> int:
        """Filters of a group."""
        return cast(int, self.w.shape[1])

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return cast(int, self.w.shape[0]) // self.groups

    def filters_view(self, phase: Sequence[int]) -> View:
        """The phase's filters as (groups, filters, channels, *taps)."""
        w, per = self.w, self.channels
        offset, shape, strides = w.offset, list[Size](), list[Size]()
        for i, (a, r) in enumerate(zip(self.axes, phase, strict=True)):
            taps, line = a.taps(r), w.strides[2 + i]
            offset = offset + line * taps[0]
            shape.append(len(taps))
            strides.append(line * (taps[1] - taps[0]) if len(taps) > 1 else 0)
        return View(w.base, (self.groups, self.filters, per, *shape),
                    (w.strides[0] * per, w.strides[1], w.strides[0], *strides), offset)

    def target(self, phase: Sequence[int]) -> View:
        """The phase's outputs."""
        y, offset = self.y, self.y.offset
        shape, strides = list(y.shape), list(y.strides)
        for i, (a, r) in enumerate(zip(self.axes, phase, strict=True)):
            offset = offset + y.strides[2 + i] * r
            shape[2 + i] = (y.shape[2 + i] + (a.step - 1 - r)) // a.step
            strides[2 + i] = y.strides[2 + i] * a.step
        return View(y.base, tuple(shape), tuple(strides), offset)

    def phase(self, phase: Sequence[int]) -> None:
        """A convolution into memory of its own, then a copy to where the phase lies."""
        target = self.target(phase)
        if any(not a.taps(r) for a, r in zip(self.axes, phase, strict=True)):
            self.steps.append(self._untouched(target))
            return
        out = target if prod([a.step for a in self.axes]) == 1 else self._memory(target.shape)
        sizes = Sizes()
        made: list[Window] = []
        for i, (a, r) in enumerate(zip(self.axes, phase, strict=True)):
            taps = a.taps(r)
            made.append(Window(
                sizes.extent(self.x.shape[2 + i]), sizes.extent(out.shape[2 + i]),
                sizes.extent(self.x.strides[2 + i]), len(taps), 1, a.gap // gcd(a.step, a.gap),
                -a.reach(r, taps[0])))
        self._convolve(self.filters_view(phase), self.filters, made, sizes, out, self.bias)
        if out is not target:
            self.steps.append(copy(out, target))

    def _memory(self, shape: Shape) -> View:
        return whole(Value(TensorType(shape, self.y.base.dtype)))

    def _untouched(self, target: View) -> Lowered:
        """Outputs that no tap reaches: the bias, or zero."""
        dtype = self.y.base.dtype
        tail = tail_of(self.tail, self.bias, target.shape) or Tail(var(0, dtype))
        views = tail.views
        args = [const(0.0, dtype), *(var(i, v.base.dtype) for i, v in enumerate(views))]
        return mapped(views, [target], [substitute(tail.root, args)])

    def _convolve(self, w: View, filters: int, made: list[Window], sizes: Sizes, out: View,
                  bias: View | None) -> None:
        x, kind = self.x, element(self.x)
        tail = tail_of(self.tail, bias, out.shape)
        depth = self.channels * prod([m.kernel for m in made])
        epilogue, extras = epilogue_of(tail, out, sizes, depth)
        spec = Convolution(
            sizes.extent(x.shape[0]), self.groups, filters, self.channels, tuple(made),
            sizes.extent(x.strides[0]), sizes.extent(x.strides[1]), kind, epilogue=epilogue)
        spec, weights = weights_of(w, len(self.axes), spec, self.fixed, self.steps)
        self.steps.append(call(spec, sizes, x, weights, out, extras))

    @property
    def tiled(self) -> bool:
        """Whether each input makes a block of outputs of its own."""
        return self.groups == 1 and all(
            a.kernel == a.step and a.gap == 1 and a.before == 0
            and self.y.shape[2 + i] == self.x.shape[2 + i] * a.step
            for i, a in enumerate(self.axes))

    def tiles(self) -> None:
        """All phases as filters of one product, then a copy of each to where it lies."""
        w, steps = self.w, [a.step for a in self.axes]
        ones = (1,) * len(steps)
        view = View(w.base, (1, *steps, self.filters, self.channels, *ones),
                    (0, *w.strides[2:], w.strides[1], w.strides[0], *(0,) * len(ones)), w.offset)
        filters, sizes = prod(steps) * self.filters, Sizes()
        space = self.x.shape[2:]
        out = self._memory((self.x.shape[0], filters, *space))
        made = [Window(sizes.extent(n), sizes.extent(n), sizes.extent(s), 1)
                for n, s in zip(space, self.x.strides[2:], strict=True)]
        self._convolve(view, filters, made, sizes, out, self._repeated(prod(steps)))
        parts = reshape(out, (self.x.shape[0], prod(steps), self.filters, *space))
        assert parts is not None
        for at, phase in enumerate(product(*map(range, steps))):
            source = View(out.base, (parts.shape[0], *parts.shape[2:]),
                          (parts.strides[0], *parts.strides[2:]), parts.strides[1] * at)
            self.steps.append(copy(source, self.target(phase)))

    def _repeated(self, times: int) -> View | None:
        if self.bias is None:
            return None
        again = replace(self.bias, shape=(times, *self.bias.shape),
                        strides=(0, *self.bias.strides))
        made, lowered = copied(again)
        self.steps.append(lowered)
        return reshape(made, (times * self.filters,))


def transposed(node: Node, ins: Sequence[View], outs: Sequence[View], fixed: Fixed,
               tail: Tail | None = None) -> list[Lowered]:
    """`transposed_convolution` and `conv_transpose`. Sizes tell what `output_padding` means."""
    if tail is not None and tail.views:
        raise Declined("a transposed convolution finishes with expressions of its result alone")
    steps = list[Lowered]()
    shape, n = known_shape(ins[1]), len(ins[1].shape) - 2
    groups = cast(int, node.attrs["groups"])

    def attr(name: str, count: int, default: int) -> Shape:
        return per_axis(name, cast(Shape, node.attrs[name]), count, default)

    before = [p for p in attr("pads", 2 * n, 0)[:n] if isinstance(p, int)]
    if len(before) < n:
        raise Declined("margins of unknown size")
    axes = [_Axis(k, cast(int, s), cast(int, d), p) for k, s, d, p in zip(
        shape[2:], attr("strides", n, 1), attr("dilations", n, 1), before, strict=True)]
    if prod([a.step for a in axes]) > _MOST_PHASES:
        raise Declined(f"more than {_MOST_PHASES} phases of the output")
    element(ins[0])
    bias = bias_of(node, ins, shape[1] * groups, steps)
    made = _Transposed(by_rows(ins[0], steps), ins[1], outs[0], bias, axes, groups, fixed, steps,
                       tail)
    if made.tiled and prod([a.step for a in axes]) > 1:
        made.tiles()
    else:
        for phase in product(*[range(a.step) for a in axes]):
            made.phase(phase)
    return steps


LOWERINGS = {"transposed_convolution": transposed, "conv_transpose": transposed}
"""They take the parameters too: filters among them are packed."""
