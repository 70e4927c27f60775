"""LSTM, GRU and RNN."""

from __future__ import annotations

from typing import TypeAlias

from ....declare.opdef import REGISTRY
from ....errors import Declined
from ....ir.graph import Value
from ..context import Context
from ..registry import importer

Floats: TypeAlias = tuple[float, ...]
Names: TypeAlias = tuple[str, ...]


def _check_hidden(r: Value, hidden_size: int | None) -> None:
    if hidden_size is not None and r.shape[2] != hidden_size:
        raise Declined(f"hidden_size {hidden_size} contradicts the recurrent weight {r.type}")


@importer("LSTM")
def lstm(ctx: Context, x: Value, w: Value, r: Value, bias: Value | None,
         sequence_lens: Value | None, initial_h: Value | None, initial_c: Value | None,
         peephole: Value | None, *, activation_alpha: Floats = (), activation_beta: Floats = (),
         activations: Names = (), clip: float | None = None, direction: str = "forward",
         hidden_size: int | None = None, input_forget: int = 0, layout: int = 0,
         output_sequence: int = 0) -> object:
    """All outputs; `output_sequence` of opset 1 only said whether the first is wanted."""
    _check_hidden(r, hidden_size)
    return REGISTRY["lstm"](
        x, w, r, bias=bias, sequence_lens=sequence_lens, initial_h=initial_h,
        initial_c=initial_c, peephole=peephole, direction=direction, activations=activations,
        alpha=activation_alpha, beta=activation_beta, clip=clip,
        input_forget=bool(input_forget), layout=layout)


@importer("GRU")
def gru(ctx: Context, x: Value, w: Value, r: Value, bias: Value | None,
        sequence_lens: Value | None, initial_h: Value | None, *, activation_alpha: Floats = (),
        activation_beta: Floats = (), activations: Names = (), clip: float | None = None,
        direction: str = "forward", hidden_size: int | None = None,
        linear_before_reset: int = 0, layout: int = 0, output_sequence: int = 0) -> object:
    """Both outputs."""
    _check_hidden(r, hidden_size)
    return REGISTRY["gru"](
        x, w, r, bias=bias, sequence_lens=sequence_lens, initial_h=initial_h,
        direction=direction, activations=activations, alpha=activation_alpha,
        beta=activation_beta, clip=clip, linear_before_reset=bool(linear_before_reset),
        layout=layout)


@importer("RNN")
def rnn(ctx: Context, x: Value, w: Value, r: Value, bias: Value | None,
        sequence_lens: Value | None, initial_h: Value | None, *, activation_alpha: Floats = (),
        activation_beta: Floats = (), activations: Names = (), clip: float | None = None,
        direction: str = "forward", hidden_size: int | None = None, layout: int = 0,
        output_sequence: int = 0) -> object:
    """Both outputs."""
    _check_hidden(r, hidden_size)
    return REGISTRY["rnn"](
        x, w, r, bias=bias, sequence_lens=sequence_lens, initial_h=initial_h,
        direction=direction, activations=activations, alpha=activation_alpha,
        beta=activation_beta, clip=clip, layout=layout)
