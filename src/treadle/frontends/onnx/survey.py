"""Which operators a model holds, and which of them have an importer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import onnx
import onnx.defs
from onnx import AttributeProto

from ...records import dataclass
from .functions import has_body
from .registry import find


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """An operator at the version its opset means, how often it occurs, and whether it loads."""

    name: str
    version: int
    count: int
    supported: bool


def survey(proto: onnx.ModelProto) -> list[OperatorCount]:
    """Every operator of a model, regions and functions included, the most frequent first."""
    counts: Counter[tuple[str, str, int]] = Counter()
    own = {(_domain(f.domain), f.name) for f in proto.functions}
    _count(proto.graph.node, _opsets(proto.opset_import), counts)
    for f in proto.functions:
        _count(f.node, _opsets(f.opset_import), counts)
    rows = [OperatorCount(f"{d}::{op}" if d else op, _since(d, op, v), n,
                          (d, op) in own or _supported(d, op, v))
            for (d, op, v), n in counts.items()]
    return sorted(rows, key=lambda r: (-r.count, r.name))


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {_domain(o.domain): o.version for o in imports}


def _count(nodes: Iterable[onnx.NodeProto], opsets: dict[str, int],
           counts: Counter[tuple[str, str, int]]) -> None:
    for node in nodes:
        domain = _domain(node.domain)
        counts[domain, node.op_type, opsets.get(domain, 0)] += 1
        for a in node.attribute:
            if a.type == AttributeProto.GRAPH:
                _count(a.g.node, opsets, counts)


def _since(domain: str, op: str, version: int) -> int:
    try:
        return onnx.defs.get_schema(op, version, domain).since_version
    except onnx.defs.SchemaError:
        return version


def _supported(domain: str, op: str, version: int) -> bool:
    return find(domain, op, version) is not None or has_body(domain, op, version)
