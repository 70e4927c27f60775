"""Gradients and optimizers of ai.onnx.preview.training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....errors import Declined
from ....ir.graph import Value, current
from ....ops.optimizers import adagrad_update, adam_update, momentum_update
from ....transforms.grad import backward, full, or_zeros
from ..context import Context
from ..importing import BodyImporter
from ..registry import importer

TRAINING = "ai.onnx.preview.training"


def _each(update: Callable[[Sequence[Value]], tuple[Value, ...]], operands: Sequence[Value],
          kinds: int) -> list[Value]:
    """One update for each tensor; all tensors come first, then all of each kind of state."""
    if not operands or len(operands) % kinds:
        raise Declined(f"{len(operands)} operands, which are no groups of {kinds}")
    n = len(operands) // kinds
    rows = [update(operands[i::n]) for i in range(n)]
    return [row[k] for k in range(len(rows[0])) for row in rows]


@importer("Adagrad", domain=TRAINING)
def adagrad(ctx: Context, rate: Value, t: Value, *operands: Value, decay_factor: float = 0.0,
            epsilon: float = 1e-6, norm_coefficient: float = 0.0) -> object:
    """Tensors, gradients, sums of squares."""
    return _each(lambda row: adagrad_update(rate, t, *row, decay=decay_factor, eps=epsilon,
                                            norm=norm_coefficient), operands, 3)


@importer("Adam", domain=TRAINING)
def adam(ctx: Context, rate: Value, t: Value, *operands: Value, alpha: float = 0.9,
         beta: float = 0.999, epsilon: float = 1e-6, norm_coefficient: float = 0.0,
         norm_coefficient_post: float = 0.0) -> object:
    """Tensors, gradients, means, means of squares."""
    return _each(lambda row: adam_update(rate, t, *row, alpha=alpha, beta=beta, eps=epsilon,
                                         norm=norm_coefficient, post=norm_coefficient_post),
                 operands, 4)


@importer("Momentum", domain=TRAINING)
def momentum(ctx: Context, rate: Value, t: Value, *operands: Value, alpha: float, beta: float,
             mode: str, norm_coefficient: float) -> object:
    """Tensors, gradients, momenta."""
    if mode not in ("standard", "nesterov"):
        raise Declined(f"Momentum with mode={mode!r}")
    return _each(lambda row: momentum_update(rate, t, *row, alpha=alpha, beta=beta,
                                             norm=norm_coefficient,
                                             nesterov=mode == "nesterov"), operands, 3)


@importer("Gradient", domain=TRAINING)
def gradient(ctx: Context, *inputs: Value, xs: tuple[str, ...], y: str, zs: tuple[str, ...] = ()
             ) -> object:
    """Gradients of the sum of y with respect to the tensors xs, where the graph computes them."""
    assert isinstance(ctx, BodyImporter)
    try:
        target, *named = (ctx.scope.find(name) for name in (y, *xs, *zs))
    except KeyError as e:
        raise Declined(f"Gradient of {e}, which the graph does not compute before it") from None
    if list(inputs) != named or target is None:
        raise Declined("Gradient at other tensors than those that xs and zs name")
    nodes = list(current().graph.nodes)
    found = backward(nodes, {target: full(1.0, target.type)}, inputs[:len(xs)])
    return [or_zeros(found.get(x), x.type) for x in inputs[:len(xs)]]
