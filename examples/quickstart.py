"""Two real models, from file to an answer a person understands.

Magika (Google's file-type classifier) names the types of this repository's own files from their
bytes; PP-OCR reads letters that this program draws. Both models come from PyPI packages and are
fetched once.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import treadle  # noqa: E402 - the path above comes first
from tools.fetch import model  # noqa: E402

FILES = ("README.md", "pyproject.toml", "Makefile", "LICENSE", "src/treadle/ir/graph.py",
         "tools/fetch.py", "docs/architecture.md")
TEXTS = ("TREADLE RUNS ONNX", "OPEN SOURCE")
WINDOW, PADDING, SPACE = 1024, 256, b" \t\n\r\v\f"
"""Magika reads this many bytes from each end of a file; 256 stands for no byte."""
FONT = {
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "C": "01111 10000 10000 10000 10000 10000 01111",
    "D": "11110 10001 10001 10001 10001 10001 11110",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "L": "10000 10000 10000 10000 10000 10000 11111",
    "N": "10001 11001 10101 10011 10001 10001 10001",
    "O": "01110 10001 10001 10001 10001 10001 01110",
    "P": "11110 10001 10001 11110 10000 10000 10000",
    "R": "11110 10001 10001 11110 10100 10010 10001",
    "S": "01111 10000 10000 01110 00001 00001 11110",
    "T": "11111 00100 00100 00100 00100 00100 00100",
    "U": "10001 10001 10001 10001 10001 10001 01110",
    "X": "10001 10001 01010 00100 01010 10001 10001",
    " ": "00000 00000 00000 00000 00000 00000 00000"}


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


def draw(text: str) -> np.ndarray:
    """f32[1,3,48,W] in [-1, 1]: dark letters of the font below on white, softened."""
    letters = [np.array([[int(bit) for bit in row] for row in FONT[c].split()]) for c in text]
    line = np.concatenate([np.pad(a, ((0, 0), (0, 1))) for a in letters], axis=1)
    ink = np.pad(np.kron(line, np.ones((4, 4))), ((10, 10), (12, 12)))
    for axis in (0, 1):
        ink = (np.roll(ink, 1, axis) + 2 * ink + np.roll(ink, -1, axis)) / 4
    return np.repeat((1 - 2 * ink)[None, None], 3, axis=1).astype(np.float32)


def read_text(device: str) -> None:
    """Draw a line of text and let an OCR network read it."""
    path = model("rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer.onnx")
    characters = ["", *metadata(path)["character"].splitlines(), " "]
    network = treadle.load(path)
    print(f"\n{network}")
    read = network.compile(device=device)
    for text in TEXTS:
        (scores,) = read(x=draw(text)).values()
        ids = scores[0].argmax(axis=1)
        # one class a column; 0 is a gap, and a repeated class is one letter
        kept = [i for i, before in zip(ids, [0, *ids], strict=False) if i and i != before]
        print(f"  drawn {text!r:22} read {''.join(characters[i] for i in kept)!r}")


def metadata(path: Path) -> dict[str, str]:
    """What the model's file says beside the graph: here the characters it knows."""
    import onnx

    return {p.key: p.value for p in onnx.load(path).metadata_props}


def main() -> None:
    """Run both on the device named on the command line, or on the default one."""
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    start = time.perf_counter()
    name_file_types(device)
    read_text(device)
    print(f"\ndone in {time.perf_counter() - start:.1f} s on device '{device}'")


if __name__ == "__main__":
    main()
