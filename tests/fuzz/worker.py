"""One process that loads, compiles and runs mutants: `seed kind number` a line on its input.

It answers each with `ok ...` or `fail ...`. A line `file PATH` runs one file. The process has a
memory limit; each mutant has limits of processor time: a second to refuse a model, five to run.
"""

from __future__ import annotations

import resource
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

MEMORY = 3 << 30
IMPORT_S, RUN_S = 1.0, 5.0
UNFORESEEN = (TypeError, ValueError, AttributeError, KeyError, AssertionError)
"""Python's errors that no error of the project may stand for."""
ELEMENTS = 1 << 16
"""Elements of the largest input that is made."""
CPU_EVERY = 10
"""Which mutants run on the CPU device, whose compiler takes its time; the others on `reference`."""
ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


class OutOfTime(BaseException):
    """Raised where the program is when its time is up."""


def _stop(*_: object) -> None:
    raise OutOfTime


def attempt(data: bytes, inputs: Any, device: str) -> str:  # noqa: ANN401 - a list of arrays, or None
    """Load, compile and run on a device; what came of it."""
    from treadle.errors import TreadleError

    # again every few seconds: an exception raised inside a callback of C code is dropped
    signal.setitimer(signal.ITIMER_VIRTUAL, IMPORT_S + RUN_S, RUN_S)
    stage = "load"
    start = _seconds()
    try:
        import treadle

        model = treadle.load(data)
        stage = "compile"
        exe = model.compile(device)
        stage = "run"
        given = make_inputs(exe.signature, inputs)
        if given is None:
            return "ok not run: large inputs"
        exe.run(given)
        return "ok ran"
    except TreadleError as e:
        spent = _seconds() - start
        if stage == "load" and spent > IMPORT_S:
            return f"fail slow: {spent:.1f} s to refuse it: {_line(e)}"
        return _verdict(e, stage)
    except OutOfTime as e:
        return "ok endless loop" if _in_loop(e) else f"fail hang in {stage}: {_place(e)}"
    except BaseException as e:
        return f"fail {type(e).__name__} in {stage}: {_place(e)}: {_line(e)}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _verdict(e: BaseException, stage: str) -> str:
    """A refusal; one that only repeats Python's own error is a defect."""
    text = _line(e)
    cause: BaseException | None = e
    while cause is not None:
        if isinstance(cause, UNFORESEEN):
            return f"fail {type(cause).__name__} in {stage}: {_place(cause)}: {text}"
        cause = cause.__cause__
    return f"ok {stage} {type(e).__name__}: {text}"


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime


def _line(e: BaseException) -> str:
    return " | ".join(str(e).splitlines())[:400]


def _place(e: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(e.__traceback__) if "/treadle/" in f.filename]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[::-1][:4])


def _in_loop(e: BaseException) -> bool:
    """Whether the program was inside an operator that runs as often as its data say."""
    frames = traceback.extract_tb(e.__traceback__)
    return any(f.filename.endswith("ops/control.py") and f.name in ("loop", "while_", "scan")
               for f in frames)


def make_inputs(signature: Any, given: Any) -> list[Any] | None:  # noqa: ANN401 - treadle's and arrays
    """The given inputs where they fit by number, else small ones; None when they would be large."""
    import numpy as np

    from treadle.errors import BindingError
    from treadle.runtime.signature import as_array

    if given is not None and len(given) == len(signature.inputs):
        try:
            return [as_array(leaf, x) for leaf, x in zip(signature.inputs, given, strict=True)]
        except BindingError:
            pass
    rng = np.random.default_rng(0)
    out = []
    for leaf in signature.inputs:
        made = _make(leaf.dtype, leaf.shape, rng)
        if made is None:
            return None
        out.append(made)
    return out


def _make(dtype: Any, shape: Any, rng: Any) -> Any:  # noqa: ANN401 - treadle's and NumPy's
    import math

    import numpy as np

    from treadle.declare.arrays import host, np_dtype

    sizes = [d if isinstance(d, int) else 2 for d in ((2, 2) if shape is None else shape)]
    if math.prod(sizes) > ELEMENTS:
        return None
    if dtype.sort == "host":
        elem = None if dtype.elem is None else _make(dtype.elem.dtype, dtype.elem.shape, rng)
        held = [] if elem is None else [elem, elem]
        return host(held if dtype.name.startswith("seq") else None)
    if dtype.sort == "string":
        return rng.choice(np.array(["a", "b c", "", "aaaa aaaa"], object), sizes)
    wide = rng.integers(0, 4, sizes) + (rng.normal(size=sizes) if dtype.sort == "float" else 0)
    return np.asarray(wide).astype(np_dtype(dtype))


def main() -> None:
    """Answer every line."""
    from tests.fuzz.seeds import SEEDS, mutant

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGVTALRM, _stop)
    import numpy as np

    np.seterr(all="ignore")
    for device in ("reference", "cpu"):  # what loading modules takes is no mutant's
        attempt(SEEDS["dense"](), None, device)
    for line in sys.stdin:
        words, device = line.rstrip("\n").split(" ", 2), "reference"
        if words[0] == "file":
            data, inputs = Path(line.rstrip("\n")[5:]).read_bytes(), None
            device = "cpu"
        else:
            data, inputs = mutant(words[0], words[1], int(words[2]))
            device = "cpu" if int(words[2]) % CPU_EVERY == 0 else device
        print(attempt(data, inputs, device).replace("\n", " | "), flush=True)


if __name__ == "__main__":
    main()
