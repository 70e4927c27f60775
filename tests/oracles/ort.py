"""ONNX Runtime as an oracle: one node, run as it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

ort.set_default_logger_severity(3)


def _value(name: str, array: object) -> onnx.ValueInfoProto:
    if isinstance(array, list):
        elem = helper.np_dtype_to_tensor_dtype(array[0].dtype)
        return helper.make_tensor_sequence_value_info(name, elem, None)
    assert isinstance(array, np.ndarray)
    kind = TensorProto.STRING if array.dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(
        array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def run(op: str, inputs: Sequence[object | None], attrs: Mapping[str, object] | None = None, *,
        outputs: int = 1, opset: int = 22, domain: str = "", ml: int = 3,
        constants: Sequence[int] = ()) -> list[np.ndarray]:
    """The outputs of `op` on `inputs`; None leaves an optional input or attribute out.

    The inputs at the places `constants` are stored in the model.
    """
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    while names and not names[-1]:  # a trailing empty name crashes some kernels
        names.pop()
    stored = [numpy_helper.from_array(np.asarray(inputs[i]), f"x{i}") for i in constants]
    given = {n: a for i, (n, a) in enumerate(zip(names, inputs, strict=False))
             if a is not None and i not in constants}
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, domain=domain,
                            **{k: v for k, v in (attrs or {}).items() if v is not None})
    graph = helper.make_graph([node], "one", [_value(n, a) for n, a in given.items()],
                              [helper.make_empty_tensor_value_info(n) for n in made], stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1),
               helper.make_opsetid("ai.onnx.ml", ml)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    return session.run(None, given)
