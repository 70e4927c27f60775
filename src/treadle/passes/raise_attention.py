"""Find scaled dot-product attention that an exporter opened."""

from __future__ import annotations

import math
from typing import ClassVar

from ..ir.graph import Node, Value
from ..ops.attention import attention
from ..ops.compare import logical_not
from ..ops.contract import swap_last
from ..ops.movement import reshape, unsqueeze
from ..records import dataclass
from .attention_forms import Scores, factor, scores, swapped, unrepeated, weights
from .bounds import Bounds
from .forms import number
from .raising import Found, Match, Near, Raise, Trail, View

UNDERFLOW = {"f64": 800.0}
"""How far below the maximum a score has weight 0; 200 for the narrower dtypes."""
SHARED = ("transpose", "reshape", "expand", "unsqueeze")


@dataclass(frozen=True, slots=True)
class RaiseAttention(Raise):
    """Records attention of softmax(scale q kT + bias) v, with its softcap and shared key heads.

    What is added to the scores becomes the bias, whatever it means, so a row without a visible
    key gives what it gave. A mask that fills in a number becomes `mask` only where it is certain
    that the number has weight 0 and that every row sees a key. A guard that turns NaN into 0
    goes only where no score can be NaN, or where it stands for rows without a key; `Bounds`
    proves that. Holds for every operand; halves round once.
    """

    name: ClassVar[str] = "raise_attention"
    anchors: ClassVar[frozenset[str]] = frozenset({"matmul"})

    def match(self, node: Node, view: View) -> Match:
        """The attention whose product with the values is `node`."""
        trail = Trail(view, node)
        if (found := weights(node.inputs[0], trail)) is None:
            return _other_guard(node.inputs[0])
        soft, guard = found
        parts = scores(soft.inputs[0], trail)
        if parts is None:
            return Near("its scores are no product of matrices with a scale and a mask", (soft,))
        rank = node.outputs[0].type.rank
        if not 2 <= rank <= 4 or {t.type.rank for t in (parts.q, parts.kt, node.inputs[1])} != {
                rank}:
            return Near(f"operands of rank {rank} that broadcast", (soft,))
        visible = _visibility(parts, soft, guard, view)
        if isinstance(visible, str):
            return Near(visible, (soft,))
        return _found(parts, visible, node, trail)


def _other_guard(value: Value) -> Match:
    """Weights that a condition other than NaN replaces."""
    node = value.producer
    if node is None or node.op != "where":
        return None
    soft = [v.producer for v in node.inputs[1:]
            if v.producer is not None and v.producer.op == "softmax"]
    return Near("a condition replaces some of its weights", soft) if soft else None


@dataclass(frozen=True, slots=True)
class Visible:
    """The operands mask and bias; the mask may need negation."""

    mask: Value | None = None
    holds: bool = True
    biases: tuple[Value, ...] = ()


def _visibility(parts: Scores, soft: Node, guard: bool, view: View) -> Visible | str:
    """How the masks of the export become operands, or why they do not."""
    if parts.halves:
        return "a mask added in half precision, where rows without a key depend on rounding"
    if parts.fill is not None:
        return _from_fill(parts, guard, view)
    if not guard or view.once(Bounds).of(soft.inputs[0]) is not None:
        return Visible(biases=parts.biases)
    for i, bias in enumerate(parts.biases):
        mask = _from_bias(bias)
        rest = (*parts.biases[:i], *parts.biases[i + 1:])
        if mask is not None and all([view.once(Bounds).of(v) is not None
                                     for v in (parts.raw, *rest)]):
            return Visible(mask[0], mask[1], rest)
    return "NaN becomes 0 after the softmax, and nothing bounds the scores"


def _from_bias(bias: Value) -> tuple[Value, bool] | None:
    """A mask written as 0 where it holds and -inf elsewhere, or the other way round."""
    node = bias.producer
    if node is None or node.op != "where" or node.inputs[0].dtype.sort != "bool":
        return None
    pair = (number(node.inputs[1]), number(node.inputs[2]))
    if pair == (0.0, -math.inf):
        return node.inputs[0], True
    return (node.inputs[0], False) if pair == (-math.inf, 0.0) else None


def _from_fill(parts: Scores, guard: bool, view: View) -> Visible | str:
    fill = parts.fill
    assert fill is not None
    terms = [view.once(Bounds).of(v) for v in (parts.raw, *parts.biases)]
    known = [t for t in terms if t is not None]
    if len(known) < len(terms):
        return "a mask fills in scores that nothing bounds"
    if fill.number > -(sum(known) + UNDERFLOW.get(parts.raw.dtype.name, 200.0)):
        return f"the number {fill.number:g} that a mask fills in may have weight"
    if not (guard and fill.number == -math.inf) and not (
            fill.visible and _some_visible(fill.mask, view)):
        return "a mask fills in scores, and a row may have no visible key"
    return Visible(fill.mask, fill.visible, parts.biases)


def _some_visible(mask: Value, view: View) -> bool:
    """Whether every row of a constant mask holds somewhere, even if its last columns are cut."""
    node, cut = mask.producer, False
    while node is not None and node.op in ("slice", "narrow", "unsqueeze", "expand", "reshape"):
        if node.op == "reshape" and node.outputs[0].shape[-1:] != node.inputs[0].shape[-1:]:
            return False
        if node.op == "expand" and node.inputs[0].shape[-1:] == (1,):
            return False
        if node.op in ("slice", "narrow"):
            if not _from_start(node):
                return False
            cut = True
        mask, node = node.inputs[0], node.inputs[0].producer
    data = view.data(mask)
    if data is None or data.dtype != bool or not data.ndim or not data.size:
        return False
    return bool(data[..., 0].all() if cut else data.any(-1).all())


def _from_start(node: Node) -> bool:
    """Whether a slice of the last axis begins with its first element."""
    rank = node.outputs[0].type.rank
    if node.op == "narrow":
        return node.attrs["axis"] not in (-1, rank - 1) or node.attrs["start"] == 0
    axes, starts, steps = (node.attrs[k] for k in ("axes", "starts", "steps"))
    assert isinstance(axes, tuple) and isinstance(starts, tuple) and isinstance(steps, tuple)
    return all([a not in (-1, rank - 1) or (s == 0 and t == 1)
                for a, s, t in zip(axes, starts, steps, strict=True)])


def _found(parts: Scores, visible: Visible, node: Node, trail: Trail) -> Match:
    q, by_q = factor(parts.q, trail)
    kt, by_k = factor(parts.kt, trail)
    straight = swapped(kt, trail)
    k, v, group = kt if straight is None else straight, node.inputs[1], 1
    if straight is not None:
        few, group = unrepeated(straight, trail)
        fewer, other = unrepeated(v, trail)
        k, v = (few, fewer) if group == other else (k, v)
    masks = () if visible.mask is None else (visible.mask,)
    scale, out = parts.scale * by_q * by_k, node.outputs[0]

    def record(q: Value, k: Value, v: Value, *rest: Value) -> tuple[Value, ...]:
        rank = q.type.rank
        heads = [_heads(t, rank) for t in (q, swap_last(k) if straight is None else k, v)]
        mask, bias = None, None
        for t in rest[:len(masks)]:
            mask = _heads(t if visible.holds else logical_not(t), rank)
        for t in rest[len(masks):]:
            bias = _heads(t, rank) if bias is None else bias + _heads(t, rank)
        y = attention(*heads, mask=mask, bias=bias, scale=scale, softcap=parts.cap)
        return (y if rank == 4 else reshape(y, shape=out.shape),)

    inner = [n for n in trail.nodes if n.op not in SHARED]
    shared = [n for n in trail.nodes if n.op in SHARED]
    return Found("attention", (node,), (q, k, v, *masks, *visible.biases), record, inner, shared)


def _heads(x: Value, rank: int) -> Value:
    """`x`, which broadcasts with tensors of this rank, as [N,H,S,D]: leading sizes are 1."""
    short = rank - x.type.rank
    if short:
        x = unsqueeze(x, axes=tuple(range(short)))
    if rank == 4:
        return x
    return unsqueeze(x, axes=(1,) if rank == 3 else (0, 1))
