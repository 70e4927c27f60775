"""Find products and look-ups of weights that a device keeps quantised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from ..ir.graph import Builder, Node, Value
from ..ir.types import F32
from ..ops.quantized_products import (
    quantized_gather,
    quantized_grouped_matmul,
    quantized_matmul,
)
from ..records import dataclass
from .raising import Found, Match, Near, Raise, Trail, View

Build: TypeAlias = Callable[..., tuple[Value, ...]]


@runtime_checkable
class Keeper(Protocol):
    """A device that may keep weights quantised."""

    def keeps(self, node: Node) -> str:
        """Why it does not keep the weight of a product or look-up; empty when it does."""
        ...


@dataclass(frozen=True, slots=True)
class RaiseQuantized(Raise):
    """Records products and look-ups of dequantised parameters, where the device keeps such.

    Elsewhere folding dequantises frozen weights once, as it does what the device declines.
    Holds for every operand: halves are summed in f32 and rounded once, a bias included.
    """

    name: ClassVar[str] = "raise_quantized"
    anchors: ClassVar[frozenset[str]] = frozenset({
        "add", "cast", "dequantize_linear", "gather", "grouped_matmul", "matmul"})

    def match(self, node: Node, view: View) -> Match:
        """A node that ends a product or look-up."""
        if not isinstance(view.ctx.legaliser, Keeper):
            return None
        trail = Trail(view, node)
        if node.op in ("gather", "dequantize_linear"):
            found = _look_up(node) if node.op == "gather" else _rows(node)
            return None if found is None else _kept(found, trail, ())
        return _product(node, trail)


class Weight(NamedTuple):
    """A dequantised weight: its operands, the attributes of its layout, and its dtype."""

    operands: tuple[Value, ...]
    attrs: dict[str, object]
    node: Node


class Site(NamedTuple):
    """What is recorded: `build` on operands of which the last ones are the weight's."""

    what: str
    operands: tuple[Value, ...]
    weight: tuple[Value, ...]
    build: Build


def _weight(node: Node) -> Weight:
    return Weight(node.inputs, {"axis": node.attrs["axis"],
                                "block_size": node.attrs["block_size"]}, node)


def _look_up(node: Node) -> Site | None:
    """Rows of a dequantised table."""
    table = node.inputs[0].producer
    if table is None or table.op != "dequantize_linear" or node.attrs["axis"] != 0:
        return None
    w = _weight(table)
    dtype = table.outputs[0].dtype

    def build(at: Value, q: Value, scale: Value, zero: Value | None = None) -> tuple[Value, ...]:
        return (cast(Value, quantized_gather(q, scale, at, zero=zero, dtype=dtype, **w.attrs)),)  # type: ignore[arg-type]

    return Site("quantized_gather", (node.inputs[1],), w.operands, build)


def _rows(node: Node) -> Site | None:
    """Rows of a table and of its parameters, dequantised."""
    taken = [v.producer for v in node.inputs]
    first = taken[0]
    if first is None or any([p is None or p.op != "gather" or p.attrs["axis"] != 0
                             or p.inputs[1] is not first.inputs[1] for p in taken]):
        return None
    sources = tuple([p.inputs[0] for p in taken if p is not None])
    last = node.inputs[0].type.rank - 1
    block = cast(int, node.attrs["block_size"])
    if not block or node.attrs["axis"] not in (-1, last) or sources[0].type.rank != 2:
        return None
    dtype = node.outputs[0].dtype

    def build(at: Value, q: Value, scale: Value, zero: Value | None = None) -> tuple[Value, ...]:
        return (quantized_gather(q, scale, at, zero=zero, block_size=block, dtype=dtype),)

    return Site("quantized_gather", (first.inputs[1],), sources, build)


def _product(node: Node, trail: Trail) -> Match:
    """A product, the bias added to it and the rounding of its f32 result."""
    value, inner, half, bias = node.outputs[0], list[Node](), None, None
    if node.op == "cast":
        half, value = value.dtype, node.inputs[0]
        if half.bits != 16 or value.dtype is not F32:
            return None
    if (total := trail.alone(value, "add")) is not None and value.dtype is F32:
        inner.append(total)
        sides = [v for v in total.inputs if v.producer and v.producer.op == "matmul"]
        if len(sides) != 1:
            return None
        value, bias = sides[0], total.inputs[total.inputs[0] is sides[0]]
    product = trail.alone(value, "matmul", "grouped_matmul")
    if product is None:
        return None
    inner.append(product)
    count = len(trail.nodes)
    site = _site(product, half is not None, bias, trail)
    if site is None or site.operands[0].dtype is not (half or value.dtype):
        return None
    views = trail.nodes[count:]
    return _kept(site, trail, [n for n in inner if n is not node], views)


def _site(product: Node, narrow: bool, bias: Value | None, trail: Trail) -> Site | None:
    """The product of x with a dequantised weight; of `narrow` ones both were widened."""
    found = _layout(product.inputs[1], trail)
    x = _narrow(product.inputs[0], trail) if narrow else product.inputs[0]
    if found is None or x is None or found[0].node.outputs[0].dtype is not x.dtype:
        return None
    w, swapped = found
    if bias is not None:
        if bias.shape != product.outputs[0].shape[-1:] or product.op != "matmul":
            return None
        short = _narrow(bias, trail)
        bias = bias if short is None else short
    given = [v for v in (bias, *product.inputs[2:]) if v is not None]

    def build(a: Value, *rest: Value) -> tuple[Value, ...]:
        extra, (q, scale, *zeros) = rest[:len(given)], rest[len(given):]
        zero = zeros[0] if zeros else None
        if product.op == "grouped_matmul":
            return (quantized_grouped_matmul(a, q, scale, extra[0], zero=zero,
                                             transposed=swapped, **w.attrs),)  # type: ignore[arg-type]
        return (quantized_matmul(a, q, scale, zero=zero, bias=extra[0] if extra else None,
                                 transposed=swapped, **w.attrs),)  # type: ignore[arg-type]

    name = "quantized_matmul" if product.op == "matmul" else "quantized_grouped_matmul"
    return Site(name, (x, *given), w.operands, build)


def _layout(value: Value, trail: Trail) -> tuple[Weight, bool] | None:
    """A dequantised weight, and whether its last two axes were exchanged."""
    swapped = False
    while (node := trail.through(value, "transpose", "cast", "dequantize_linear")) is not None:
        if node.op == "dequantize_linear":
            return _weight(node), swapped
        value = node.inputs[0]
        n = value.type.rank
        if node.op == "cast":
            if value.dtype.bits != 16 or node.outputs[0].dtype is not F32:
                return None
        elif node.attrs["perm"] != (*range(n - 2), n - 1, n - 2):
            return None
        else:
            swapped = not swapped
    return None


def _narrow(value: Value, trail: Trail) -> Value | None:
    """A half that was widened to f32."""
    node = trail.through(value, "cast")
    return node.inputs[0] if node is not None and node.inputs[0].dtype.bits == 16 else None


def _kept(site: Site, trail: Trail, inner: Sequence[Node], views: Sequence[Node] = ()) -> Match:
    """The match, if the device keeps the weight."""
    keeper, view = trail.view.ctx.legaliser, trail.view
    assert isinstance(keeper, Keeper)
    roots = [reshaped(v) for v in site.weight]
    if any([v not in view.graph.params and view.data(v) is None for v in roots]):
        return None
    operands = (*site.operands, *site.weight)
    with Builder("trial"):
        node = site.build(*operands)[0].producer
    assert node is not None
    if why := keeper.keeps(node):
        return Near(f"dequantised: {why}", inner)
    return Found(site.what, (trail.root,), operands, site.build, inner, views)


def reshaped(value: Value) -> Value:
    """What a value is a reshape of."""
    while value.producer is not None and value.producer.op == "reshape":
        value = value.producer.inputs[0]
    return value
