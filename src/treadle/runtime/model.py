"""A loaded model: a graph with its parameters, ready to compile for a device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..backends.base import Backend, Program
from ..backends.devices import usable
from ..config import MAX_THREADS, Config
from ..declare.arrays import Array
from ..declare.opdef import infer
from ..errors import ConfigError, DeviceError, ImportFailure
from ..ir.graph import Graph
from ..ir.verify import verify
from ..passes.base import Context, Look
from ..passes.pipeline import Pipeline, from_config
from ..records import dataclass, field, replace
from ..transforms.clone import bind_sizes
from .constants import Constants
from .executable import Executable
from .late import LateExecutable
from .random import KEY_INPUT, Keys, check_seed, with_key, without_key
from .signature import Leaf, Signature
from .specialise import Specialised

PRECISIONS = ("f32",)


@dataclass(slots=True)
class Built:
    """A graph, the data of its parameters, and remarks made while building it.

    `constants` are numbers of the source that are no parameters of the graph; `again` builds it
    with others.
    """

    graph: Graph
    params: Mapping[str, Array]
    notes: list[str] = field(default_factory=list[str])
    constants: Mapping[str, Array] = field(default_factory=dict[str, Array])
    again: Callable[[Mapping[str, Array]], Built] | None = None


def signature_of(graph: Graph) -> Signature:
    """The signature that a graph's leaves spell."""
    names = graph.output_names or _distinct(
        [v.name or f"output_{i}" for i, v in enumerate(graph.outputs)])
    return Signature(
        tuple([Leaf(v.name, v.type.dtype, v.type.shape) for v in graph.inputs]),
        tuple([Leaf(n, v.type.dtype, v.type.shape)
               for n, v in zip(names, graph.outputs, strict=True)]))


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """`names`, numbered where one stands twice: results are given by name."""
    return tuple([n if names.count(n) == 1 else f"{n}_{i}" for i, n in enumerate(names)])


class Model:
    """What `treadle.load` and `treadle.trace` give. `compile` makes it run on a device."""

    def __init__(self, source: str, built: Built) -> None:
        self.source = source
        self.built = built
        self.signature = signature_of(built.graph)

    def __repr__(self) -> str:
        return f"<Model {self.source}: {self.signature}>"

    @property
    def graph(self) -> Graph:
        """The graph as loaded, before any pass."""
        return self.built.graph

    @property
    def params(self) -> Mapping[str, Array]:
        """Parameters by name."""
        return self.built.params

    def compile(self, device: str | None = None, *, precision: str = "f32",
                threads: int | None = None, mode: str | None = None, freeze: bool = True,
                random: int | None = None, specialise: int = 0,
                pipeline: Pipeline | None = None) -> Executable:
        """An executable for `device`: "cpu" by default, or "reference" where LLVM is missing.

        `threads` are those of the device "cpu"; by default `TREADLE_THREADS` or all usable cores.
        Results do not depend on it. `mode` is that of the device "mlx": eager, lazy, async or
        compiled. `freeze` lets the passes fold parameters into the graph; without it `set_param`
        can replace them between runs. `pipeline` replaces the standard passes, or carries hooks.

        `random` is a seed: every run draws new random numbers from it, and equal seeds give equal
        runs. Without it all runs draw the same. `specialise` keeps up to so many programs whose
        sizes are constants, for bindings that have come 8 times.
        """
        check_options(precision, random, specialise)
        verify(self.built.graph, infer)
        backend = in_mode(on_threads(usable(device), threads), mode)
        signature, keys = self.signature, None
        if random is not None:
            keys = Keys(check_seed(random), with_key(self.built.graph)[1])
            signature = Signature(tuple([x for x in signature.inputs if x.name != KEY_INPUT]),
                                  signature.outputs)
        work = _Compiler(backend, self.source, freeze, keys is not None, specialise, pipeline)
        program, special, notes = work.compiled(self.built)
        again, constants = self.built.again, None
        if again is not None and not freeze:
            constants = Constants(self.built.constants,
                                  lambda values: work.compiled(again(values))[:2])
        return Executable(program, signature, backend, [*self.built.notes, *notes], frozen=freeze,
                          keys=keys, special=special, origins=work.origins, constants=constants)


@dataclass(eq=False)
class _Compiler:
    """The options of a compilation, which may be asked for again."""

    backend: Backend
    source: str
    freeze: bool
    keyed: bool
    specialise: int
    pipeline: Pipeline | None
    origins: dict[Look, str] = field(default_factory=dict[Look, str])

    def compiled(self, built: Built) -> tuple[Program, Specialised | None, list[str]]:
        """A program for all sizes, what makes those for some, and the passes' report."""
        graph = with_key(built.graph)[0] if self.keyed else built.graph
        held = without_key(built.params) if self.keyed else built.params
        program, notes = self._program(graph, held)
        special = None if not self.specialise else Specialised(
            self.specialise, lambda binding: self._program(bind_sizes(graph, binding), held)[0],
            self.source)
        return program, special, notes

    def _program(self, graph: Graph, held: Mapping[str, Array]) -> tuple[Program, list[str]]:
        ctx = Context(dict(held) if self.freeze else {}, legaliser=self.backend,
                      origins=self.origins)
        program = _compiled(self.backend, graph, ctx, self.pipeline or from_config(),
                            None if self.freeze else held, self.source)
        return program, [*map(str, ctx.report)]


class Binder(Protocol):
    """What builds a late-bound model's graph, and learns what the graph depends on."""

    reason: str

    def key(self, arrays: Sequence[Array]) -> object:
        """What the graph for these inputs depends on; equal keys share a graph."""
        ...

    def __call__(self, arrays: Mapping[str, Array]) -> Built:
        """The graph for inputs like these."""
        ...


class LateModel:
    """A model whose graph needs the values or shapes of some inputs first.

    `compile` works as a `Model`'s does; graph and parameters exist after `bind`.
    """

    def __init__(self, source: str, signature: Signature, binder: Binder) -> None:
        self.source, self.signature, self.binder = source, signature, binder

    def __repr__(self) -> str:
        return f"<Model {self.source}, built at its first run: {self.signature}>"

    @property
    def graph(self) -> Graph:
        """An error that says why there is none yet."""
        raise ImportFailure(f"{self.source} has no graph yet: {self.binder.reason}",
                            hint="bind(arrays) builds it for inputs like these")

    def bind(self, arrays: Mapping[str, Array]) -> Model:
        """The model for inputs of these shapes and, where it depends on them, values."""
        return Model(self.source, self.binder(arrays))

    def compile(self, device: str | None = None, *, precision: str = "f32",
                threads: int | None = None, mode: str | None = None, freeze: bool = True,
                random: int | None = None, specialise: int = 0,
                pipeline: Pipeline | None = None) -> LateExecutable:
        """An executable that specialises itself at each new binding; options as `Model` has."""
        check_options(precision, random, specialise)
        backend = usable(device)
        in_mode(on_threads(backend, threads), mode)
        names = [leaf.name for leaf in self.signature.inputs]

        def compile_(arrays: Sequence[Array]) -> Executable:
            bound = self.bind(dict(zip(names, arrays, strict=True)))
            return bound.compile(backend.name, precision=precision, threads=threads, mode=mode,
                                 freeze=freeze, random=random, specialise=specialise,
                                 pipeline=pipeline)

        return LateExecutable(self.signature, backend, self.binder, compile_, random)


def _compiled(backend: Backend, graph: Graph, ctx: Context, steps: Pipeline,
              held: Mapping[str, Array] | None, source: str) -> Program:
    """A program after the passes; `held` are parameters that stay as they are.

    With `TREADLE_DUMP` a folder tells what became of the model.
    """
    root = Config.from_environment().dump
    if root is None:
        done = steps.run(graph, ctx)
        return backend.compile(done.graph, ctx.params if held is None else held)
    from .dump import dumped, new_folder

    folder = new_folder(root, source)
    done = replace(steps, dump=folder / "passes").run(graph, ctx)
    params = ctx.params if held is None else held
    return dumped(folder, backend.compile(done.graph, params), params)


def on_threads(backend: Backend, threads: int | None) -> Backend:
    """The device on so many threads; only some devices have a choice."""
    if threads is None:
        return backend
    choose = getattr(backend, "with_threads", None)
    whole = hasattr(threads, "__index__") and 1 <= operator.index(threads) <= MAX_THREADS
    if choose is None or not whole:
        raise DeviceError(f"the device '{backend.name}' cannot run on {threads!r} threads",
                          hint="threads= is an option of the device 'cpu', a whole number from 1 "
                          f"to {MAX_THREADS}")
    return choose(operator.index(threads))


def in_mode(backend: Backend, mode: str | None) -> Backend:
    """The device in a mode; only some devices have a choice."""
    if mode is None:
        return backend
    if (choose := getattr(backend, "with_mode", None)) is None:
        raise DeviceError(f"the device '{backend.name}' has no modes",
                          hint="mode= is an option of the device 'mlx'")
    return choose(mode)


def check_options(precision: str, random: int | None, specialise: int) -> None:
    """Refuse a precision policy that does not exist, and numbers that are none."""
    if precision not in PRECISIONS:
        raise DeviceError(f"there is no precision policy '{precision}'",
                          hint=f"one of {', '.join(PRECISIONS)}")
    if random is not None:
        check_seed(random)
    if not hasattr(specialise, "__index__") or operator.index(specialise) < 0:
        raise ConfigError(f"specialise= is {specialise!r}, expected how many programs to keep",
                          hint="0 keeps none")
