"""Elementwise work that a product or convolution does on its results before they leave the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from ...codegen.llvm.scalars import constant, primitive
from ...codegen.llvm.text import BF16, F16, F32, F64, I32, Function, Type, Value
from ...declare.scalar import Scalar, cast_to, fold, rebuild, substitute, var, walk
from ...declare.scalar_text import text
from ...errors import Declined
from ...ir.dims import Size, bounds
from ...ir.graph import Value as GraphValue
from ...ir.types import DTYPES, DType, Shape, TensorType
from ...loops.functions import open_functions
from ...memory.views import View, dense_strides, reshape, whole
from ...records import dataclass, field, replace
from .contraction import Epilogue, ExtraOperand
from .contraction.spec import Place, Transform
from .lowered import Lowered, check
from .pointwise import copy, spread

ELEMENTS: dict[str, Type] = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "i32": I32}
EARLY = 12
"""Most operations of an epilogue that runs in a tile's registers; longer ones would spill."""
DEEP = 192
"""Products of a sum from which an epilogue runs once the tile is stored."""


@dataclass
class Tail:
    """`root` over variable 0, the kernel's result, and variables 1.. for `views` of its shape.

    Views broadcast by stride 0. Those that lie otherwise than a kernel can read are copied
    `before` it; a `strict` tail is `Declined` instead.
    """

    root: Scalar
    views: list[View] = field(default_factory=list[View])
    strict: bool = False
    before: list[Lowered] = field(default_factory=list[Lowered])

    def under(self, shape: Shape) -> Tail:
        """The tail of a result that has as many elements under another shape."""
        views: list[View] = []
        for v in self.views:
            found = reshape(v, shape)
            if found is None:
                found = reshape(self.copied(v), shape)
            assert found is not None
            views.append(found)
        return replace(self, views=views)

    def plus(self, bias: View) -> Tail:
        """The tail whose result has `bias`, of the result's shape, added first."""
        n = len(self.views) + 1
        args = [var(0, bias.base.dtype) + var(n, bias.base.dtype)]
        args += [var(i + 1, v.base.dtype) for i, v in enumerate(self.views)]
        return replace(self, root=substitute(self.root, args), views=[*self.views, bias])

    def copied(self, view: View) -> View:
        """A dense copy."""
        if self.strict:
            raise Declined("an operand that lies otherwise than the result")
        made = whole(GraphValue(TensorType(view.shape, view.base.dtype), view.base.name))
        self.before.append(copy(view, made))
        return made

    def epilogue(self, operands: Sequence[ExtraOperand], accumulator: DType,
                 depth: Size = 0) -> Epilogue:
        """The tail as an epilogue of sums of `depth` products in `accumulator`.

        A late one costs a load and a store for each sum; many products hide that, and tiles of
        different epilogues then share their code.
        """
        root = prepared(self.root, accumulator)
        opened = settled(open_functions([root])[0])
        check([opened])
        cost = sum(bool(e.args) for e in walk(opened))
        fits = ELEMENTS[self.root.dtype.name].size == ELEMENTS[accumulator.name].size
        return Epilogue(f"{accumulator} {text(root)}", tuple(operands), emitting(opened),
                        fits and (cost > EARLY or bounds(depth)[0] >= DEEP))


def stored(dtype: DType, accumulator: DType) -> DType:
    """The dtype in which templates give values beside an accumulator; `Declined` if none holds."""
    real = accumulator if accumulator.sort == "float" else DTYPES["f32"]
    if dtype.name in ELEMENTS and dtype.sort == "float" and dtype.bits <= real.bits:
        return real
    if dtype is accumulator:
        return dtype
    raise Declined(f"an operand or result of {dtype} beside sums in {accumulator}")


def prepared(root: Scalar, accumulator: DType) -> Scalar:
    """`root` on values as templates give them: the sum, and operands widened."""
    found = {cast(int, e.value): e.dtype for e in walk(root) if e.op == "var"}
    args: list[Scalar] = []
    for i in range(max(found, default=0) + 1):
        dtype = found.get(i, accumulator)
        args.append(cast_to(var(i, stored(dtype, accumulator) if i else accumulator), dtype))
    return cast_to(substitute(root, args), stored(root.dtype, accumulator))


def settled(root: Scalar) -> Scalar:
    """`root` without roundings of operands, which are exact in the wider type they come in."""
    def op(e: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        if e.op == args[0].op == "cast":
            given = args[0].args[0]
            if given.op == "var" and given.value != 0 and given.dtype is e.dtype:
                return given
        return rebuild(e, args)

    return fold([root], lambda s: s, op)[0]


def emitting(root: Scalar) -> Transform:
    """Writes an expression on vectors: variable 0 is the value, others are the operands."""
    def emit(f: Function, value: Value, values: Sequence[Value], _: Place) -> Value:
        lanes, given = value.type.lanes, (value, *values)
        known: dict[Scalar, Value] = {}
        for e in walk(root):
            if e.op == "var":
                known[e] = given[cast(int, e.value)]
            elif e.op == "const":
                one = constant(f, e)
                kind = one.type.vector(lanes)
                known[e] = Value(f, f"splat ({one.type} {one.name})", kind)
            else:
                known[e] = primitive(f, e, [known[a] for a in e.args])
        return known[root]

    return emit


def laid(view: View, shape: Shape) -> View:
    """A view broadcast to `shape`."""
    return View(view.base, shape, spread(view, shape), view.offset)


Kind = Literal["column", "row", "matrix", "scalar"]


def by_strides(row: Size, column: Size) -> Kind | None:
    """How an operand with these steps lies along a product; None for columns apart."""
    if column == 0:
        return "scalar" if row == 0 else "row"
    if column != 1:
        return None
    return "column" if row == 0 else "matrix"


def lies_as(view: View, shape: Shape) -> bool:
    """Whether a view has every element of a dense result at the same place."""
    return view.strides == dense_strides(shape)


def element_of(view: View) -> Type:
    """The elements of an operand."""
    found = ELEMENTS.get(view.base.dtype.name)
    if found is None:
        raise Declined(f"an operand of {view.base.dtype}")
    return found
