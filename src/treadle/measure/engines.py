"""The engines that can be measured. Each is imported only in the process that runs it.

An adapter opens a job once and gives a call without arguments, which runs the model on the job's
inputs and returns fresh outputs in the model's order.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..declare.arrays import Array
from ..errors import DeviceError

Run = Callable[[], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Job:
    """What one engine is to run.

    `source` is an ONNX file. Engines that read no ONNX take `function`, written `module:name`: it
    gets the inputs and the weights and returns a `Run`.
    """

    engine: str
    source: Path
    inputs: Mapping[str, Array]
    threads: int
    function: str = ""
    weights: Mapping[str, Array] = field(default_factory=dict[str, Array])

    @property
    def option(self) -> str:
        """What follows the engine's name: `cpu` of `treadle:cpu`."""
        return self.engine.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Engine:
    """How to open a job, and the package that must be there."""

    package: str
    open: Callable[[Job], Run]
    takes_onnx: bool = True
    distribution: str = ""

    def version(self) -> str:
        """The installed version."""
        return importlib.metadata.version(self.distribution or self.package)

    def missing(self) -> str:
        """Why it cannot be measured here, or an empty string."""
        if importlib.util.find_spec(self.package):
            return ""
        return f"{self.package} is not installed"


def _treadle(job: Job) -> Run:
    from ..api import load

    exe = load(job.source).compile(device=job.option or None)
    inputs = dict(job.inputs)
    return lambda: list(exe(inputs).values())


def _onnxruntime(job: Job) -> Run:
    ort: Any = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(job.source), options,
                                   providers=["CPUExecutionProvider"])
    inputs = dict(job.inputs)
    return lambda: session.run(None, inputs)


def _openvino(job: Job) -> Run:
    ov: Any = importlib.import_module("openvino")
    core = ov.Core()
    # f32 arithmetic: the default is bf16 where the processor has it, and 8-bit activations
    # beside compressed weights.
    compiled = core.compile_model(core.read_model(str(job.source)), "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
        "INFERENCE_NUM_THREADS": job.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"})
    request, inputs = compiled.create_infer_request(), dict(job.inputs)
    return lambda: tuple(request.infer(inputs, share_inputs=True).values())


def _torch(job: Job) -> Run:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(job.threads)
    return _function(job)


def _function(job: Job) -> Run:
    module, _, name = job.function.partition(":")
    return getattr(importlib.import_module(module), name)(dict(job.inputs), dict(job.weights))


ENGINES: dict[str, Engine] = {
    "treadle": Engine("treadle", _treadle),
    "onnxruntime": Engine("onnxruntime", _onnxruntime),
    "openvino": Engine("openvino", _openvino),
    "torch": Engine("torch", _torch, takes_onnx=False),
    "numpy": Engine("numpy", _function, takes_onnx=False)}
"""Every engine by name; `treadle` takes its device behind a colon."""


def engine(name: str) -> Engine:
    """The engine of a name such as `openvino` or `treadle:cpu`."""
    base = name.partition(":")[0]
    if base not in ENGINES:
        raise DeviceError(f"there is no engine '{name}'", hint=f"one of {', '.join(ENGINES)}")
    return ENGINES[base]
