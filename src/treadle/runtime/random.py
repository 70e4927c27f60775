"""Keys for the random operators of a model: a new one for every run, from a seed."""

from __future__ import annotations

import operator
from collections.abc import Mapping

import numpy as np

from ..declare.arrays import Array, np_dtype
from ..errors import BindingError, ConfigError
from ..ir.graph import Graph, Value

KEY_INPUT, KEY_PARAM = "random_key", "treadle.random_key"
"""The input of a traced function, and the parameter of an imported model, that is the key."""
_MASK = (1 << 64) - 1


def mixed(seed: int, run: int) -> int:
    """Output number `run` of the SplitMix64 generator: 64 bits that do not repeat in a sequence.

    G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    z = (seed + (run + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def check_seed(value: int, what: str = "random") -> int:
    """A whole number of an option, or an error."""
    try:
        return operator.index(value)
    except TypeError:
        raise ConfigError(f"{what}= is {value!r}, a whole number is needed") from None


def no_seed() -> BindingError:
    """The error of a new seed where there is no sequence."""
    return BindingError("the executable was compiled without random=, so all its runs draw the "
                        "same numbers", hint="compile(random=seed)")


class Keys:
    """The keys of an executable's runs. Equal seeds give equal sequences."""

    def __init__(self, seed: int, value: Value) -> None:
        self.seed, self.runs = seed & _MASK, 0
        self._value = value

    def take(self) -> Array:
        """The key of the next run."""
        key = np.array(mixed(self.seed, self.runs), np.uint64)
        self.runs += 1
        return key.astype(np_dtype(self._value.dtype)).reshape([1] * self._value.type.rank)

    def back(self) -> None:
        """Have the next run take the last key again."""
        self.runs -= 1

    def restart(self, seed: int, runs: int = 0) -> None:
        """Go on as after `runs` runs with a seed."""
        self.seed, self.runs = seed & _MASK, runs

    def clone(self) -> Keys:
        """The same place in the same sequence."""
        made = Keys(self.seed, self._value)
        made.runs = self.runs
        return made


def with_key(graph: Graph) -> tuple[Graph, Value]:
    """The graph with its random key as the last input."""
    found = [v for v in graph.inputs if v.name == KEY_INPUT] or [
        v for v in graph.params if v.name == KEY_PARAM]
    if not found:
        raise BindingError("random= was given, but the model draws no random numbers of its own",
                           hint=f"a traced function takes its key as the input '{KEY_INPUT}'")
    key = found[0]
    if key.dtype.sort not in ("int", "uint") or key.shape not in ((), (1,)):
        raise BindingError(f"the input '{KEY_INPUT}' is {key.type}, the key is one integer")
    return Graph(graph.name, [*(v for v in graph.inputs if v is not key), key],
                 [v for v in graph.params if v is not key], graph.nodes, graph.outputs,
                 output_names=graph.output_names), key


def without_key(params: Mapping[str, Array]) -> dict[str, Array]:
    """Parameters but the key."""
    return {n: a for n, a in params.items() if n != KEY_PARAM}
