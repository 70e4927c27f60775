"""Two readings of a model with 8-bit weights: ONNX Runtime without saturation, and f64.

On x86 processors without VNNI ONNX Runtime adds pairs of u8 x s8 products in 16 bits, saturating
(its documentation of quantization, "When and why do I need to try U8U8?"), and is wrong there by
up to 1.3 in logits of at most 8. `unsigned` makes the same model with u8 weights w + 128 and zero
points z + 128, with which it is exact: (w + 128) - (z + 128) = w - z.

A tensor that the model rounds to u8 as it runs makes a bound for the outputs hard to state: a
value near a tie may go to either side with the last bit of f32, and one flip moves later values,
which flip others: 0.01 to 0.1 in logits. `Exact` therefore runs the model in f64 and reports how
near to a tie any value came. Where none comes nearer than f32 can err, every f32 run rounds alike,
all integers are equal, and outputs differ by the rounding of f32 alone.

One tie remains that f64 cannot see: over the range [-1, 1] of a saturated tanh the zero point is
1 / f32(2 / 255) = 127.49999, and where one end exceeds 1 by an ulp, as in ONNX Runtime's Tanh, 128.
Inputs of the model with such a tensor (bilstm) are among those that do not meet it.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

Inputs = dict[str, np.ndarray]
WEIGHTS = {"MatMulInteger": ((1, 3),), "DynamicQuantizeLSTM": ((1, 9), (2, 11))}
"""Where a weight and its zero point are among the inputs."""
STATE_ERROR = 2.0 ** -20
"""What f32 may err in a hidden state, or in tanh of a product.

A pre-activation p takes four roundings of 2**-24 |p|, and |p| times the slope of a sigmoid or of
tanh is at most 0.45; the gates, the cell and the product add one or two roundings each: below
2**-21 for one step. A cell carries its error on as it forgets, which is given another factor 2.
"""
ATTENTION_ERROR = 2.0 ** -18
"""The same for a mean of states by softmax: a score of 16 is known to four roundings of 2**-20."""


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    out = onnx.ModelProto()
    out.CopyFrom(model)
    return out


def unsigned(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model whose i8 weights and zero points are u8; KeyError if one is computed."""
    out = _copy(model)
    constants = {t.name: t for t in out.graph.initializer}
    names = {node.input[i] for node in out.graph.node
             for pair in WEIGHTS.get(node.op_type, ()) for i in pair}
    for name in names:
        array = numpy_helper.to_array(constants[name])
        if array.dtype == np.int8:
            moved = (array.astype(np.int16) + 128).astype(np.uint8)
            constants[name].CopyFrom(numpy_helper.from_array(moved, name))
    return out


def _double(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with f64 for f32, but where 8-bit constants become f32: these values are exact."""
    out = _copy(model)
    # the reference has DequantizeLinear from opset 19 on; what the models use of 17 means the same
    del out.opset_import[:]
    out.opset_import.extend(onnx.helper.make_opsetid(*i) for i in (("", 21), ("com.microsoft", 1)))
    kept = {name for n in out.graph.node if n.op_type == "DequantizeLinear" for name in n.input}
    tensors = [t for t in out.graph.initializer if t.name not in kept]
    for attribute in (a for node in out.graph.node for a in node.attribute):
        if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE
        if attribute.type == onnx.AttributeProto.TENSOR:
            tensors.append(attribute.t)
    for tensor in tensors:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return out


class Rounding:
    """Rounds f64 to u8 in the f32 steps of DynamicQuantizeLinear, and notes the nearest tie."""

    def __init__(self) -> None:
        self.margins: list[float] = []

    def quantise(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """u8 values, f64 scale, u8 zero point; the range of x is widened to contain 0."""
        x32 = x.astype(np.float32)
        low, high = min(x32.min(), np.float32(0)), max(x32.max(), np.float32(0))
        scale = (high - low) / np.float32(255) if high > low else np.float32(1)
        steps = np.append(x32, -low) / scale
        if x.dtype != np.float32:
            self._note(steps.astype(np.float64), float(scale))
        nearest = np.rint(steps)
        zero = np.clip(nearest[-1], 0, 255)
        q = np.clip(nearest[:-1].reshape(x.shape) + zero, 0, 255)
        return q.astype(np.uint8), np.asarray(scale, np.float64), np.asarray(zero, np.uint8)

    def _note(self, steps: np.ndarray, scale: float) -> None:
        ties = np.floor(steps) + 0.5
        # all that is rounded lies in [-1, 1], so that no error carries it over a tie beyond
        reachable = np.abs(ties * scale) <= 1
        self.margins.append(float(np.min(np.abs(steps - ties)[reachable] * scale, initial=1)))

    def product(self, x: np.ndarray, w: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """x[..., I] quantised, times w[I, N] less its zero point: exact, as sums are < 2**53."""
        q, by, zero = self.quantise(x)
        return (q - zero.astype(np.float64)) @ w * (by * scale)


def _sigmoid(v: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-v))


def _lstm(rounding: Rounding, x: np.ndarray, w: tuple[np.ndarray, ...], r: tuple[np.ndarray, ...],
          bias: np.ndarray, h: np.ndarray, c: np.ndarray) -> np.ndarray:
    """One direction of ONNX LSTM: x[T, B, I] to h[T, B, H]; the gates are i, o, f, c."""
    inputs, out = rounding.product(x, *w) + np.add(*np.split(bias, 2)), []
    for step in inputs:
        i, o, f, g = np.split(step + rounding.product(h, *r), 4, axis=-1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out)


def _operators(rounding: Rounding) -> list[type[OpRun]]:
    class DynamicQuantizeLinear(OpRun):
        def _run(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
            return rounding.quantise(x)

    class DynamicQuantizeLSTM(OpRun):
        op_domain = "com.microsoft"

        def _run(self, x: np.ndarray, w: np.ndarray, r: np.ndarray, bias: np.ndarray, lens: None,
                 h: np.ndarray, c: np.ndarray, peephole: None, *rest: np.ndarray,
                 direction: str, hidden_size: int) -> tuple[np.ndarray, ...]:
            assert lens is None and peephole is None and direction == "bidirectional"
            assert hidden_size == r.shape[1]
            ws, wz, rs, rz = rest
            w, r = (a - z.astype(np.float64)[:, None, None] for a, z in ((w, wz), (r, rz)))
            forth, back = (_lstm(rounding, x[::sign], (w[d], ws[d]), (r[d], rs[d]), bias[d], h[d],
                                 c[d])[::sign] for d, sign in ((0, 1), (1, -1)))
            return np.stack([forth, back], axis=1), np.stack([forth[-1], back[0]]), np.array(np.nan)

    return [DynamicQuantizeLinear, DynamicQuantizeLSTM]


class Exact:
    """The model in f64 by NumPy and onnx.reference."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.rounding = Rounding()
        self.evaluator = ReferenceEvaluator(_double(model), new_ops=_operators(self.rounding))

    def __call__(self, inputs: Inputs) -> tuple[list[np.ndarray], list[float]]:
        """The outputs, and for each tensor rounded to u8 the least distance to a tie."""
        self.rounding.margins = []
        return list(map(np.asarray, self.evaluator.run(None, inputs))), self.rounding.margins


def decided(margins: list[float], attention: bool) -> bool:
    """Whether f32 cannot change a rounding; `attention` if the last tensor is a softmax's mean."""
    states = margins[:-1] if attention else margins
    return min(states) > STATE_ERROR and (not attention or margins[-1] > ATTENTION_ERROR)
