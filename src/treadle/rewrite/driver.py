"""Apply equations to a node, and to what they record, until none matches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..errors import OperatorError
from ..ir.graph import Node, Value, current
from ..ir.types import DTYPES
from .pattern import DOMAINS, Binding, Domain, Equation

FIRINGS = 64
"""Most equations that one node may set off; a set of equations that loops ends here."""


class Driver:
    """Rewrites nodes bottom-up: the operands of a node are in their final form already."""

    def __init__(self, equations: Iterable[Equation], domain: Domain = "exact") -> None:
        allowed = DOMAINS[:DOMAINS.index(domain) + 1]
        self.by_op: dict[str, list[Equation]] = {}
        for e in equations:
            if e.domain in allowed:
                self.by_op.setdefault(e.left.op, []).append(e)
        # Equations that look at no producer, and the producers that the others look for.
        self.plain = {op: [e for e in es if not all(e.left.makers)]
                      for op, es in self.by_op.items()}
        self.triggers = {op: {name for e in es for order in e.left.makers
                              for _, names in order for name in names}
                         for op, es in self.by_op.items()}
        self.fired: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()

    def visit(self, node: Node) -> Sequence[Value] | None:
        """Values to use instead of the outputs of `node`; what they need is recorded."""
        if node.op not in self.by_op or len(node.outputs) != 1:
            return None
        value = self._rewrite(node, [FIRINGS])
        return None if value is None else (value,)

    def _rewrite(self, node: Node, left: list[int]) -> Value | None:
        if node.op not in self.by_op:
            return None
        makers = [v.producer.op if v.producer is not None else "" for v in node.inputs]
        cold = self.triggers[node.op].isdisjoint(makers)
        for equation in (self.plain if cold else self.by_op)[node.op]:
            if not equation.left.fits(makers) or (binding := equation.match(node)) is None:
                continue
            if left[0] <= 0:
                self.stopped[f"{equation.name}: more than {FIRINGS} steps from one node"] += 1
                return None
            nodes = current().graph.nodes
            mark = len(nodes)
            value = self._build(equation, binding)
            if value is None or value.type != node.outputs[0].type:
                del nodes[mark:]
                continue
            left[0] -= 1
            self.fired[equation.name] += 1
            return self._settle(value, mark, left)
        return None

    def _build(self, equation: Equation, binding: Binding) -> Value | None:
        """The right side; one whose types do not fit these operands leaves the node as it is."""
        try:
            return equation.build(binding)
        except OperatorError as e:
            self.stopped[f"{equation.name}: {e.message}"] += 1
            return None

    def _settle(self, value: Value, mark: int, left: list[int]) -> Value:
        """Rewrite the nodes recorded since `mark` in turn."""
        nodes = current().graph.nodes
        fresh = nodes[mark:]
        del nodes[mark:]
        env: dict[Value, Value] = {}
        for node in fresh:
            node.inputs = tuple([env.get(v, v) for v in node.inputs])
            again = self._rewrite(node, left) if len(node.outputs) == 1 else None
            if again is None:
                nodes.append(node)
            else:
                env[node.outputs[0]] = again
        return env.get(value, value)


def real(x: Value) -> bool:
    """Whether `x` holds numbers other than complex ones."""
    return x.dtype.sort in ("int", "uint", "float")


def integer(x: Value) -> bool:
    """Whether `x` holds integers."""
    return x.dtype.sort in ("int", "uint")


def floating(x: Value) -> bool:
    """Whether `x` holds floating-point numbers."""
    return x.dtype.sort == "float"


def boolean(x: Value) -> bool:
    """Whether `x` holds truth values."""
    return x.dtype is DTYPES["bool"]
