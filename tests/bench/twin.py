"""Functions that workers run in tests: they do what their name says."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]
Run = Callable[[], list[np.ndarray]]


def doubles(inputs: Arrays, _weights: Arrays) -> Run:
    return lambda: [2 * inputs["x"]]


def triples(inputs: Arrays, _weights: Arrays) -> Run:
    return lambda: [3 * inputs["x"]]


def raises(_inputs: Arrays, _weights: Arrays) -> Run:
    raise ValueError("no such luck\nand more")


def dies(_inputs: Arrays, _weights: Arrays) -> Run:
    os.write(2, b"out of cheese\n")
    os._exit(3)


def hangs(_inputs: Arrays, _weights: Arrays) -> Run:
    time.sleep(60)
    return lambda: []


def environment(_inputs: Arrays, _weights: Arrays) -> Run:
    return lambda: [np.array([os.environ.get(n, "-") for n in (
        "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS", "TREADLE_THREADS")], object)]
