"""LSTM with 8-bit weights, as ONNX Runtime defines it."""

from __future__ import annotations

from typing import Literal

from ..declare.kinds import composite
from ..declare.opdef import cast_value
from ..declare.schema import sample
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import F32, shape_text
from .contract import matmul_integer
from .movement import narrow, reshape
from .quantize import dynamic_quantize_linear
from .recurrent import lstm_layers
from .recurrent_activations import Activation


def _direction(x: Value, d: int) -> Value:
    return reshape(narrow(x, axis=0, start=d, length=1), shape=x.shape[1:])


def _product(weight: Value, scale: Value, zero: Value) -> Activation:
    """v -> v times a quantised weight [in, 4 H], v rounded to u8 over its own range."""
    def apply(v: Value) -> Value:
        q, by, offset = dynamic_quantize_linear(v)
        total = matmul_integer(q, weight, a_zero=offset, b_zero=zero)
        return cast_value(total, F32) * (by * scale)

    return apply


def _check(name: str, w: Value, scale: Value, zero: Value, directions: int) -> None:
    if w.type.rank != 3 or w.shape[0] != directions:
        raise OperatorError(f"{name} {w.type} must be [{directions}, in, 4 * H]")
    for p in (scale, zero):
        if p.shape not in ((directions,), (directions, w.shape[2])):
            raise OperatorError(f"a parameter of {name} has shape {shape_text(p.shape)}",
                                hint="it holds one number for a direction, or for a column")


@composite(samples=[
    sample("f32[4,1,3]", "i8[1,3,8]", "i8[1,2,8]", "f32[1]", "i8[1]", "f32[1,8]", "i8[1,8]",
           bias="f32[1,16]", low=0, high=4, expect="tests.oracles.recurrent:dynamic_quantized_lstm",
           rtol=1e-4),
    sample("f32[4,1,3]", "u8[2,3,8]", "u8[2,2,8]", "f32[2,8]", "u8[2,8]", "f32[2]", "u8[2]",
           direction="bidirectional", low=0, high=4,
           expect="tests.oracles.recurrent:dynamic_quantized_lstm", rtol=1e-5)])
def dynamic_quantized_lstm(
        x: Value, w: Value, r: Value, w_scale: Value, w_zero: Value, r_scale: Value,
        r_zero: Value, *, bias: Value | None = None, sequence_lens: Value | None = None,
        initial_h: Value | None = None, initial_c: Value | None = None,
        peephole: Value | None = None,
        direction: Literal["forward", "reverse", "bidirectional"] = "forward",
        activations: tuple[str, ...] = (), alpha: tuple[float, ...] = (),
        beta: tuple[float, ...] = (), clip: float | None = None, input_forget: bool = False
        ) -> tuple[Value, ...]:
    """LSTM over 8-bit weights w[D, I, 4 H] and r[D, H, 4 H] (com.microsoft DynamicQuantizeLSTM).

    The input as a whole, and the hidden state at every step, are rounded to u8 over their own
    range, so that both products are exact in i32. Scales and zero points are [D] or [D, 4 H];
    the other operands and the outputs are those of lstm.
    """
    directions = 2 if direction == "bidirectional" else 1
    _check("w", w, w_scale, w_zero, directions)
    _check("r", r, r_scale, r_zero, directions)

    def products(d: int) -> tuple[Activation, Activation]:
        one, other = ([_direction(v, d) for v in row]
                      for row in ((w, w_scale, w_zero), (r, r_scale, r_zero)))
        return _product(*one), _product(*other)

    return lstm_layers(x, r.shape[1], products, bias, sequence_lens, (initial_h, initial_c),
                       peephole, direction, (activations, alpha, beta), clip, input_forget, 0)
