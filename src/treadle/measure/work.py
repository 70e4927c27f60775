"""How much a model must compute and read on given inputs, and the least time that takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..api import load
from ..declare.arrays import Array
from ..ir.dims import Size, evaluate, symbols
from ..ir.graph import Graph, Node, Value
from ..runtime.cost import graph_flops
from ..runtime.model import LateModel
from .probe import peak_gflops, read_gbytes

_ROWS = ("gather", "gather_nd", "gather_elements")
"""Operators that read only the rows of their first operand that they give."""


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs, and the bytes that must move: inputs, outputs, and every weight read once."""

    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The least milliseconds, and what sets it."""

    ms: float
    by: Literal["compute", "memory"]


def work_of(source: Path | bytes, inputs: Mapping[str, Array]) -> Work:
    """Count a model's work; sizes that only data decides count as 0."""
    model = load(source)
    if isinstance(model, LateModel):
        model = model.bind(inputs)
    signature, graph = model.signature, model.graph
    arrays = [inputs[leaf.name] for leaf in signature.inputs]
    binding = signature.bind(arrays)
    moved = sum(a.nbytes for a in arrays)
    moved += sum(_number(v.type.nbytes(), binding) for v in graph.outputs)
    return Work(_number(graph_flops(graph), binding), moved + _weights(graph, binding))


def _weights(graph: Graph, binding: Mapping[str, int]) -> int:
    users: dict[Value, list[Node]] = defaultdict(list)
    held = list(graph.params)
    for node in graph.walk():
        if node.op == "constant":
            held += node.outputs
        for value in dict.fromkeys(node.uses()):
            users[value].append(node)
    return sum(_read(value, users[value], binding) for value in held)


def _read(value: Value, users: Sequence[Node], binding: Mapping[str, int]) -> int:
    whole = _number(value.type.nbytes(), binding)
    if all(n.op in _ROWS and n.inputs[0] is value for n in users):
        rows = sum(_number(n.outputs[0].type.nbytes(), binding) for n in users)
        return min(whole, rows)
    return whole


def _number(size: Size, binding: Mapping[str, int]) -> int:
    return evaluate(size, {**dict.fromkeys(symbols(size), 0), **binding})


def bound(work: Work, threads: int) -> Bound:
    """The roofline: measured multiply-add peak, and measured reads of as many bytes as the work's.

    After Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
    """
    compute = work.flops / peak_gflops(threads) / 1e6
    memory = work.bytes / read_gbytes(work.bytes, threads) / 1e6
    return Bound(compute, "compute") if compute >= memory else Bound(memory, "memory")
