"""A language model whose memory is a matrix: one layer of a gated delta net, state on the device.

Text is a list of notes such as "a3 b7": after a letter, the model predicts the digit that was last
noted for it. The weights are written by hand, so every part can be followed: a causal convolution
pairs each digit with the letter before it, the delta rule stores the pair (and replaces an older
note), and a letter reads its digit back.

The prompt goes through in one call. Then the same executable runs token by token with its state
kept on the device, and must give the same logits.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import treadle  # noqa: E402 - the path above comes first
from treadle import ops  # noqa: E402
from treadle.ir.graph import Value  # noqa: E402

LETTERS, DIGITS = "abcdefgh", "0123456789"
ALPHABET = LETTERS + DIGITS + " "
WIDTH, KEYS, VALUES = len(ALPHABET), len(LETTERS), len(DIGITS)
TEXT = "a3 b7 c1 d4 a9 e2 b5 f8 c c6 a b c d e f a"
SURE = 30.0
"""A logit that saturates a sigmoid."""


def selection(rows: str) -> np.ndarray:
    """f32[alphabet, rows]: column i picks out the character rows[i]."""
    return np.array([[float(a == b) for b in rows] for a in ALPHABET], np.float32)


def weights() -> dict[str, np.ndarray]:
    """One head: queries from the letter, keys from the letter before, values from the digit."""
    digit = selection(DIGITS).sum(1, keepdims=True)
    before, now = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    taps = [now] * KEYS + [before] * KEYS + [now] * VALUES
    return {"embed": np.eye(WIDTH, dtype=np.float32),
            "project": np.concatenate([selection(LETTERS), selection(LETTERS), selection(DIGITS)],
                                      axis=1),
            "taps": np.array(taps, np.float32)[:, None],
            "beta": (2 * digit - 1) * SURE, "decay": np.zeros((WIDTH, 1), np.float32),
            "dt_bias": np.full(1, -SURE, np.float32), "scale": np.full(1, -1.0, np.float32),
            "norm": np.ones(VALUES, np.float32),
            "gate": np.ones((WIDTH, VALUES), np.float32), "out": selection(DIGITS).T.copy()}


def layer(tokens: Value, conv: Value, state: Value) -> tuple[Value, ...]:
    """tokens i64[1,T], conv f32[1,C,1], state f32[1,1,KEYS,VALUES] to logits and new states."""
    w = {name: ops.constant(value=array) for name, array in weights().items()}
    x = ops.gather(w["embed"], tokens, axis=0)
    mixed = ops.transpose(ops.matmul(x, w["project"]), perm=(0, 2, 1))
    mixed, conv = ops.causal_conv_with_state(mixed, w["taps"], past=conv)
    mixed = ops.transpose(mixed, perm=(0, 2, 1))
    q, k, v = ops.split(ops.unsqueeze(mixed, axes=(2,)), axis=3, sizes=(KEYS, KEYS, VALUES))
    decay, beta = ops.linear_attention_gate(
        ops.matmul(x, w["decay"]), w["dt_bias"], w["scale"], b=ops.matmul(x, w["beta"]))
    y, state = ops.gated_delta_net(q, k, v, decay, beta, state=state, scale=1.0)
    y = ops.gated_rms_norm(ops.squeeze(y, axes=(2,)), w["norm"], ops.matmul(x, w["gate"]))
    return ops.matmul(y, w["out"]), conv, state


def encode(text: str) -> np.ndarray:
    """i64[1, len(text)]."""
    return np.array([[ALPHABET.index(c) for c in text]])


def said(text: str, logits: np.ndarray) -> str:
    """The digit predicted after each letter; `?` where nothing was noted for it."""
    return "".join(" " if c not in LETTERS else ALPHABET[row.argmax()] if row.max() > 0.1 else "?"
                   for c, row in zip(text, logits, strict=True))


def main() -> None:
    """Run the prompt whole, then token by token, on the device named on the command line."""
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("device", nargs="?", default="cpu", choices=[*treadle.devices()])
    device = p.parse_args().device
    channels = 2 * KEYS + VALUES
    model = treadle.trace(layer, "i64[1,T]", f"f32[1,{channels},1]", f"f32[1,1,{KEYS},{VALUES}]")
    run = model.compile(device=device)
    empty = {"conv": np.zeros((1, channels, 1), np.float32),
             "state": np.zeros((1, 1, KEYS, VALUES), np.float32)}
    logits, conv, state = (leaf.name for leaf in model.signature.outputs)
    whole = run(tokens=encode(TEXT), **empty)
    print(f"text      {TEXT}\npredicted {said(TEXT, whole[logits][0])}")

    run.resident("conv", empty["conv"]).feed(output=conv)
    memory = run.resident("state", empty["state"]).feed(output=state)
    steps = [run(tokens=encode(c))[logits][0] for c in TEXT]
    gap = np.abs(np.concatenate(steps) - whole[logits][0]).max()
    print(f"token by token with the state on '{device}': logits differ by at most {gap:.1e}")
    print(f"final states differ by at most {np.abs(memory.read() - whole[state]).max():.1e}")
    assert gap < 1e-5


if __name__ == "__main__":
    main()
