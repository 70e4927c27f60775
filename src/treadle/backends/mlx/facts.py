"""Which kernels run a program's nodes, by name and, where they are ours, by their text."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from ...files import write_text
from ...ir.graph import Node
from ..base import Fact
from .kernels.template import source
from .plan import Plans, Step

SUFFIX = {"cuda": "cu", "metal": "metal"}


def facts(plans: Plans) -> dict[Node, Fact]:
    """The kernels of every native node; ours are known once they were launched."""
    return {step.node: Fact(_name(step)) for step in plans.all() if step.how == "native"}


def _name(step: Step) -> str:
    ours = dict.fromkeys([one.template.name for one in step.launches])
    return ", ".join(ours) or "MLX operations"


def dump(plans: Plans, folder: Path) -> None:
    """Write the text of every kernel of ours that was launched, and where, into `kernels`."""
    found = [(one.template.name, one, step.node) for step in plans.all() for one in step.launches]
    for name, group in groupby(sorted(found, key=lambda x: x[0]), lambda x: x[0]):
        uses = list(group)
        nodes = dict.fromkeys([f"// {node.op} @ {node.loc}\n" for _, _, node in uses])
        text = source([one for _, one, _ in uses])
        (folder / "kernels").mkdir(exist_ok=True)
        write_text(folder / "kernels" / f"{name}.{SUFFIX[uses[0][1].target]}",
                   "".join(nodes) + text)
