"""Update rules of optimizers, as ONNX's preview.training domain states them.

R is the learning rate and T the number of updates done, both scalars; the gradient g gains
`norm` * x, that of an L2 penalty. Everything else has the shape of x.
"""

from __future__ import annotations

from ..declare.kinds import composite
from ..declare.opdef import cast_value, full_value
from ..declare.schema import known, sample
from ..ir.graph import Value
from .arithmetic import pow as power
from .compare import gt, where
from .mathfn import sqrt


@composite(samples=[
    known(0.5, 3.0, [1.0], [2.0], [5.0], decay=0.5, eps=0.0, expect=[[1.0 - 0.2 * 2.0 / 3.0],
                                                                     [9.0]]),
    known(0.5, 0.0, [4.0], [2.0], [0.0], norm=0.25, eps=1.0, expect=[[4.0 - 0.5 * 3.0 / 4.0],
                                                                     [9.0]]),
    sample("f32[]", "f32[]", "f32[3]", "f32[3]", "f32[3]", low=0.5)])
def adagrad_update(rate: Value, t: Value, x: Value, g: Value, h: Value, *, decay: float = 0.0,
                   eps: float = 1e-6, norm: float = 0.0) -> tuple[Value, ...]:
    """One step of Adagrad: x and the sum h of squared gradients (Duchi et al., JMLR 12, 2011)."""
    r = rate / (1.0 + cast_value(t, rate.dtype) * decay)
    grad = x * norm + g
    total = h + grad * grad
    return x - r * grad / (sqrt(total) + eps), total


@composite(samples=[
    known(0.1, 0.0, [1.0], [2.0], [0.0], [0.0], alpha=0.5, beta=0.75, eps=0.0,
          expect=[[0.9], [1.0], [1.0]]),
    known(0.1, 1.0, [1.0], [2.0], [1.0], [5.0], alpha=0.5, beta=0.75, eps=0.0, post=0.5,
          expect=[[0.4655876399194157], [1.5], [4.75]]),
    sample("f32[]", "f32[]", "f32[3]", "f32[3]", "f32[3]", "f32[3]", low=1.0)])
def adam_update(rate: Value, t: Value, x: Value, g: Value, v: Value, h: Value, *,
                alpha: float = 0.9, beta: float = 0.999, eps: float = 1e-6, norm: float = 0.0,
                post: float = 0.0) -> tuple[Value, ...]:
    """One step of Adam: x, and the running means v and h of the gradient and its square.

    After the first step the rate is corrected by sqrt(1 - beta^T) / (1 - alpha^T); at last x is
    scaled by 1 - `post` (1412.6980).
    """
    grad, count = x * norm + g, cast_value(t, rate.dtype)
    first = v * alpha + grad * (1.0 - alpha)
    second = h * beta + grad * grad * (1.0 - beta)
    after = gt(count, 0.0)
    safe = where(after, count, 1.0)
    fast, slow = (1.0 - power(full_value(c, rate.dtype), safe) for c in (alpha, beta))
    scale = sqrt(slow) / fast
    r = rate * where(after, scale, 1.0)
    return (x - r * first / (sqrt(second) + eps)) * (1.0 - post), first, second


@composite(samples=[
    known(0.1, 0.0, [1.0], [2.0], [4.0], alpha=0.5, beta=0.25, norm=0.0, expect=[[0.6], [4.0]]),
    known(0.1, 2.0, [1.0], [2.0], [4.0], alpha=0.5, beta=0.25, norm=2.0, nesterov=True,
          expect=[[0.45], [3.0]]),
    sample("f32[]", "i64[]", "f32[3]", "f32[3]", "f32[3]", alpha=0.9, beta=0.1, norm=0.0)])
def momentum_update(rate: Value, t: Value, x: Value, g: Value, v: Value, *, alpha: float,
                    beta: float, norm: float, nesterov: bool = False) -> tuple[Value, ...]:
    """One step of gradient descent with momentum v: x and v. At the first step `beta` is 1."""
    grad = x * norm + g
    share = where(gt(t, 0), beta, full_value(1.0, rate.dtype))
    moved = v * alpha + share * grad
    return x - rate * (grad + moved * alpha if nesterov else moved), moved
