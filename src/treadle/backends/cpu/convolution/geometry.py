"""What lowerings of windows share: attributes as windows over views, sizes as words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ....codegen.llvm.text import F32, F64, Type
from ....errors import Declined
from ....ir.dims import Size, evaluate
from ....ir.graph import Node, Value
from ....ir.types import Shape, TensorType
from ....memory.views import View, whole
from ....ops.windows import per_axis
from ....records import dataclass, field
from ..contraction import Extent
from ..lowered import Binding, Lowered
from ..pointwise import copy
from .spec import Window

ELEMENTS: dict[str, Type] = {"f32": F32, "f64": F64}


@dataclass
class Sizes:
    """Names of the sizes that each run supplies."""

    names: dict[Size, str] = field(default_factory=dict[Size, str])

    def extent(self, size: Size) -> Extent:
        """A size as templates see it."""
        return size if isinstance(size, int) else self.names.setdefault(
            size, f"n{len(self.names)}")

    def words(self, names: Sequence[str]) -> list[Size]:
        """The sizes behind names."""
        found = {name: size for size, name in self.names.items()}
        return [found[name] for name in names]

    def known(self, binding: Binding) -> dict[str, int]:
        """All sizes as numbers."""
        return {name: evaluate(size, binding) for size, name in self.names.items()}


def element(*views: View) -> Type:
    """The common element type; raises `Declined` for what the templates do not compute."""
    dtype = views[0].base.dtype
    if dtype.name not in ELEMENTS:
        raise Declined(f"no window template for {dtype}")
    return ELEMENTS[dtype.name]


def copied(view: View) -> tuple[View, Lowered]:
    """The same elements row by row, and the copy that makes them so."""
    made = whole(Value(TensorType(view.shape, view.base.dtype), view.base.name))
    return made, copy(view, made)


def by_rows(x: View, before: list[Lowered]) -> View:
    """`x` with neighbours of the last axis side by side; `before` gains a copy if need be.

    Axes of size 1 do not count: `merge` drops them.
    """
    long = [s for n, s in zip(x.shape, x.strides, strict=True) if n != 1]
    if not long or long[-1] == 1:
        return x
    made, lowered = copied(x)
    before.append(lowered)
    return made


def windows(node: Node, kernel: Sequence[int], x: View, out: Shape, sizes: Sizes) -> list[Window]:
    """The spatial axes of x[N, C, ..] under the node's strides, dilations and pads."""
    n = len(kernel)

    def attr(name: str, count: int, default: int) -> Shape:
        return per_axis(name, cast(Shape, node.attrs[name]), count, default)

    steps, gaps, pads = attr("strides", n, 1), attr("dilations", n, 1), attr("pads", 2 * n, 0)
    return [Window(sizes.extent(x.shape[2 + i]), sizes.extent(out[2 + i]),
                   sizes.extent(x.strides[2 + i]), kernel[i], cast(int, steps[i]),
                   cast(int, gaps[i]), sizes.extent(pads[i])) for i in range(n)]


def merge(x: View, made: Sequence[Window], sizes: Sizes) -> tuple[Window, ...]:
    """Windows of one position: axes of size 1 vanish, neighbours without gaps become one axis."""
    spans = [(w, x.shape[2 + i], x.strides[2 + i]) for i, w in enumerate(made)]
    kept = [s for s in spans if not (s[0].trivial and s[1] == 1)] or spans[-1:]
    for i in reversed(range(len(kept) - 1)):
        (a, n, outer), (b, m, inner) = kept[i:i + 2]
        if a.trivial and b.trivial and outer == inner * m:
            size = n * m
            joined = Window(sizes.extent(size), sizes.extent(size), sizes.extent(inner), 1)
            kept[i:i + 2] = [(joined, size, inner)]
    return tuple([w for w, _, _ in kept])
