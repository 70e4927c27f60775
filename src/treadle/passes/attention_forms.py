"""Attention read out of primitives: what leads from q kT to the softmax, and shared key heads."""

from __future__ import annotations

from ..ir.graph import Node, Value
from ..records import dataclass, replace
from .forms import number
from .raising import Trail


@dataclass(frozen=True, slots=True)
class Fill:
    """Scores replaced by a number where `mask` does not hold, or where it does."""

    mask: Value
    visible: bool
    number: float


@dataclass(frozen=True, slots=True)
class Scores:
    """cap(scale q kT) + biases, or with a fill; `raw` is the value before biases and fill."""

    q: Value
    kt: Value
    raw: Value
    scale: float = 1.0
    cap: float | None = None
    biases: tuple[Value, ...] = ()
    fill: Fill | None = None
    halves: bool = False
    """Whether a bias is added in half precision."""


def weights(value: Value, trail: Trail) -> tuple[Node, bool] | None:
    """The softmax over the last axis that `value` is, and whether NaN becomes 0 after it."""
    guard = False
    while (node := trail.through(value, "cast", "where", "identity")) is not None:
        if node.op != "where":
            value = node.inputs[0]
            continue
        test = trail.through(node.inputs[0], "isnan")
        if guard or test is None or test.inputs[0] is not node.inputs[2] or (
                number(node.inputs[1]) != 0.0):
            return None
        guard, value = True, node.inputs[2]
    node = trail.through(value, "softmax")
    if node is None or node.attrs["axis"] not in (-1, value.type.rank - 1):
        return None
    return node, guard


def scores(value: Value, trail: Trail) -> Scores | None:
    """What the softmax is taken of, followed down to a product of two matrices."""
    node = value.producer
    if node is None:
        return None
    mark = len(trail.nodes)
    if node.op == "matmul":
        trail.through(value, "matmul")
        q, kt = node.inputs
        return Scores(q, kt, value)
    if (step := STEPS.get(node.op)) is None:
        return None
    trail.through(value, node.op)
    found = step(node, trail)
    if found is None:
        trail.back(mark)
    return found


def _cast(node: Node, trail: Trail) -> Scores | None:
    x, out = node.inputs[0], node.outputs[0]
    if x.dtype.sort != "float" or out.dtype.bits < x.dtype.bits:
        return None
    found = scores(x, trail)
    return None if found is None else _raw(found, node)


def _raw(found: Scores, node: Node) -> Scores:
    """The same, seen one step later, if no bias or fill came yet."""
    plain = not found.biases and found.fill is None
    return replace(found, raw=node.outputs[0]) if plain else found


def _scaled(node: Node, trail: Trail) -> Scores | None:
    """A product with a number, below everything else."""
    for x, c in (node.inputs, node.inputs[::-1]) if node.op == "mul" else (node.inputs,):
        by = number(c)
        found = None if not by else scores(x, trail)
        if by and found is not None and found.cap is None and found.raw is x:
            scale = found.scale * by if node.op == "mul" else found.scale / by
            return _raw(replace(found, scale=scale), node)
    return None


def _capped(node: Node, trail: Trail) -> Scores | None:
    found, cap = scores(node.inputs[0], trail), node.attrs["cap"]
    if found is None or found.cap is not None or found.raw is not node.inputs[0]:
        return None
    assert isinstance(cap, float)
    return _raw(replace(found, cap=cap), node)


def _biased(node: Node, trail: Trail) -> Scores | None:
    for x, bias in (node.inputs, node.inputs[::-1]):
        found = scores(x, trail)
        if found is not None and found.fill is None and x.type == node.outputs[0].type:
            return replace(found, biases=(*found.biases, bias),
                           halves=found.halves or x.dtype.narrow)
    return None


def _filled(node: Node, trail: Trail) -> Scores | None:
    mask, a, b = node.inputs
    for x, other, visible in ((a, b, True), (b, a, False)):
        c = number(other)
        found = None if c is None else scores(x, trail)
        if c is not None and found is not None and found.fill is None and (
                x.type == node.outputs[0].type):
            return replace(found, fill=Fill(mask, visible, c))
    return None


STEPS = {"cast": _cast, "mul": _scaled, "div": _scaled, "softcap": _capped, "add": _biased,
         "where": _filled}
"""What may stand between the product and the softmax."""


def factor(value: Value, trail: Trail) -> tuple[Value, float]:
    """`value` before products with numbers, and their product."""
    total = 1.0
    while (node := trail.alone(value, "mul", "div")) is not None:
        a, b = node.inputs
        for x, c in ((a, number(b)), (b, number(a) if node.op == "mul" else None)):
            if c and x.type == value.type:
                total, value = total * c if node.op == "mul" else total / c, x
                break
        else:
            trail.back(len(trail.nodes) - 1)
            break
    return value, total


def swapped(value: Value, trail: Trail) -> Value | None:
    """The x of x with its last two axes exchanged."""
    node, n = value.producer, value.type.rank
    if node is None or node.op != "transpose" or (
            node.attrs["perm"] != (*range(n - 2), n - 1, n - 2)):
        return None
    trail.through(value, "transpose")
    return node.inputs[0]


def unrepeated(value: Value, trail: Trail) -> tuple[Value, int]:
    """Key heads before each was repeated for the query heads that share it, and how often.

    [N,H,L,D] gains an axis behind H, expands along it to G, and is regrouped to [N,H*G,L,D].
    """
    mark, shape = len(trail.nodes), value.shape
    last = trail.through(value, "reshape")
    wide = None if last is None else trail.through(last.inputs[0], "expand")
    first = None if wide is None else trail.through(wide.inputs[0], "unsqueeze", "reshape")
    if first is not None and wide is not None and len(shape) == 4:
        x, many = first.inputs[0], wide.outputs[0].shape
        if len(x.shape) == 4 and len(many) == 5:
            n, h, length, d = x.shape
            group = many[2]
            if isinstance(h, int) and isinstance(group, int) and (
                    first.outputs[0].shape == (n, h, 1, length, d)
                    and many == (n, h, group, length, d)
                    and shape == (n, h * group, length, d)):
                return x, group
    trail.back(mark)
    return value, 1
