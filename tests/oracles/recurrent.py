"""Recurrent layers by ONNX Runtime, in f32 and batch second (it has no layout 1)."""

from __future__ import annotations

import numpy as np

from . import ort


def _run(op: str, x: np.ndarray, rest: list[np.ndarray | None], states: list[np.ndarray | None],
         tail: list[np.ndarray | None], attrs: dict[str, object], outputs: int, layout: int
         ) -> list[np.ndarray]:
    swap = (lambda a: a.swapaxes(0, 1)) if layout else (lambda a: a)
    operands = [swap(x), *rest, *[None if s is None else swap(s) for s in states], *tail]
    wide = [a.astype(np.float32) if a is not None and a.dtype == np.float16 else a
            for a in operands]
    out = ort.run(op, wide, attrs, outputs=outputs, opset=14)
    y = out[0].transpose(2, 0, 1, 3) if layout else out[0]
    return [a.astype(x.dtype) for a in (y, *map(swap, out[1:]))]


def _attrs(r: np.ndarray, direction: str, activations: tuple[str, ...],
           alpha: tuple[float, ...], beta: tuple[float, ...], clip: float | None
           ) -> dict[str, object]:
    return {"hidden_size": r.shape[2], "direction": direction, "activations": activations or None,
            "activation_alpha": alpha or None, "activation_beta": beta or None, "clip": clip}


def lstm(x: np.ndarray, w: np.ndarray, r: np.ndarray, *, bias: np.ndarray | None = None,
         sequence_lens: np.ndarray | None = None, initial_h: np.ndarray | None = None,
         initial_c: np.ndarray | None = None, peephole: np.ndarray | None = None,
         direction: str = "forward", activations: tuple[str, ...] = (),
         alpha: tuple[float, ...] = (), beta: tuple[float, ...] = (), clip: float | None = None,
         input_forget: bool = False, layout: int = 0) -> list[np.ndarray]:
    attrs = {**_attrs(r, direction, activations, alpha, beta, clip),
             "input_forget": int(input_forget)}
    return _run("LSTM", x, [w, r, bias, sequence_lens], [initial_h, initial_c], [peephole], attrs,
                3, layout)


def gru(x: np.ndarray, w: np.ndarray, r: np.ndarray, *, bias: np.ndarray | None = None,
        sequence_lens: np.ndarray | None = None, initial_h: np.ndarray | None = None,
        direction: str = "forward", activations: tuple[str, ...] = (),
        alpha: tuple[float, ...] = (), beta: tuple[float, ...] = (), clip: float | None = None,
        linear_before_reset: bool = False, layout: int = 0) -> list[np.ndarray]:
    attrs = {**_attrs(r, direction, activations, alpha, beta, clip),
             "linear_before_reset": int(linear_before_reset)}
    return _run("GRU", x, [w, r, bias, sequence_lens], [initial_h], [], attrs, 2, layout)


def rnn(x: np.ndarray, w: np.ndarray, r: np.ndarray, *, bias: np.ndarray | None = None,
        sequence_lens: np.ndarray | None = None, initial_h: np.ndarray | None = None,
        direction: str = "forward", activations: tuple[str, ...] = (),
        alpha: tuple[float, ...] = (), beta: tuple[float, ...] = (), clip: float | None = None,
        layout: int = 0) -> list[np.ndarray]:
    attrs = _attrs(r, direction, activations, alpha, beta, clip)
    return _run("RNN", x, [w, r, bias, sequence_lens], [initial_h], [], attrs, 2, layout)


def dynamic_quantized_lstm(
        x: np.ndarray, w: np.ndarray, r: np.ndarray, w_scale: np.ndarray, w_zero: np.ndarray,
        r_scale: np.ndarray, r_zero: np.ndarray, *, bias: np.ndarray | None = None,
        direction: str = "forward", **rest: object) -> list[np.ndarray]:
    assert not any(v for v in rest.values())
    # ONNX Runtime takes no zero points of signed weights: they are subtracted here
    moved = [(a.astype(np.int16) - z.reshape(len(z), 1, -1)).astype(np.int8)
             for a, z in ((w, w_zero), (r, r_zero))]
    zeros = [np.zeros(s.shape, np.int8) for s in (w_scale, r_scale)]
    operands = [x, *moved, bias, None, None, None, None, w_scale, zeros[0], r_scale, zeros[1]]
    attrs = {"hidden_size": r.shape[1], "direction": direction}
    return ort.run("DynamicQuantizeLSTM", operands, attrs, outputs=3, opset=14,
                   domain="com.microsoft", constants=(1, 2, 8, 9, 10, 11))
