"""What `treadle run` asks of an executable beyond its inputs: random numbers, resident state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..declare.arrays import Array
from ..errors import BindingError
from ..runtime.executable import Executable
from ..runtime.resident import Resident
from .inputs import parse_pairs


@dataclass(frozen=True, slots=True)
class Options:
    """The seed of random numbers, `INPUT=OUTPUT` pairs of resident inputs, their room for rows."""

    random: int | None
    resident: Sequence[str]
    capacity: int | None
    axis: int | None

    def for_compile(self) -> dict[str, Any]:
        """Arguments of `compile`, none where nothing is asked: not every model has them."""
        return {} if self.random is None else {"random": self.random}

    def keep(self, exe: object, arrays: dict[str, Array]) -> list[Resident]:
        """Make inputs resident, beginning as their arrays, which calls no longer take."""
        pairs = parse_pairs(self.resident, "--resident")
        if (self.capacity, self.axis) != (None, None) and not pairs:
            raise BindingError("--capacity and --axis are those of resident inputs",
                               hint="--resident INPUT=OUTPUT")
        if pairs and not isinstance(exe, Executable):
            raise BindingError("--resident: the model is built at its first run, it has no state")
        found: list[Resident] = []
        for name, text in pairs.items():
            assert isinstance(exe, Executable)
            output, at = _target(text, [leaf.name for leaf in exe.signature.outputs])
            first = arrays.pop(name, None)
            state = exe.resident(name, first, axis=self.axis, capacity=self.capacity)
            found.append(state.feed(output, at))
        return found


def _target(text: str, outputs: Sequence[str]) -> tuple[str, int | str | None]:
    """The output and the position of `OUTPUT`, `OUTPUT@end`, `OUTPUT@3` or `OUTPUT@INPUT`."""
    if text in outputs or "@" not in text:
        return text, None
    output, _, at = text.rpartition("@")
    return output, int(at) if at.isascii() and at.isdigit() else at
