"""What `treadle run` asks of an executable beyond its inputs: random numbers, resident state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..declare.arrays import Array
from ..errors import BindingError
from ..runtime.executable import Executable
from ..runtime.resident import END, Resident
from .inputs import parse_pairs


@dataclass(frozen=True, slots=True)
class Options:
    """The seed of random numbers, `INPUT=OUTPUT` pairs of resident inputs, and their capacity."""

    random: int | None
    resident: Sequence[str]
    capacity: int | None

    def for_compile(self) -> dict[str, Any]:
        """Arguments of `compile`, none where nothing is asked: not every model has them."""
        return {} if self.random is None else {"random": self.random}

    def keep(self, exe: object, arrays: dict[str, Array]) -> list[Resident]:
        """Make inputs resident, beginning as their arrays, which calls no longer take."""
        pairs = parse_pairs(self.resident, "--resident")
        if self.capacity is not None and not pairs:
            raise BindingError("--capacity is room for resident inputs",
                               hint="--resident INPUT=OUTPUT")
        if pairs and not isinstance(exe, Executable):
            raise BindingError("--resident: the model is built at its first run, it has no state")
        found: list[Resident] = []
        for name, text in pairs.items():
            assert isinstance(exe, Executable)
            output, _, at = text.partition("@")
            if at not in ("", END):
                raise BindingError(f"--resident {name}={text}: a position can only be '{END}'")
            first = arrays.pop(name, None)
            found.append(exe.resident(name, first, capacity=self.capacity).feed(output, at or None))
        return found
