"""A compiled model: call it with arrays, get a dict of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..backends.base import Backend, Data, Program
from ..declare.arrays import Array
from ..declare.evaluate import Binding, Watch
from ..errors import BindingError, RunError
from ..ir.graph import Graph, Value
from ..passes.base import Look
from .calls import Calls
from .constants import Constants
from .explain import Explanation, explain
from .line import Line
from .params import check_type, replacements
from .random import Keys, check_seed, no_seed
from .resident import Resident
from .results import Outputs, check_out, fill, own, owned
from .signature import Signature
from .specialise import Specialised
from .states import States

if TYPE_CHECKING:
    from concurrent.futures import Future


class Executable:
    """A model compiled for one device.

    Calls run one after another in the order of their calls; compile twice, or `clone`, to run from
    two threads at once.
    """

    def __init__(self, program: Program, signature: Signature, backend: Backend,
                 passes: Sequence[str] = (), *, frozen: bool = True, keys: Keys | None = None,
                 special: Specialised | None = None,
                 origins: Mapping[Look, str] | None = None,
                 constants: Constants | None = None) -> None:
        self.signature, self.backend, self.frozen = signature, backend, frozen
        self._program, self._passes = program, tuple(passes)
        self._keys, self._special, self._origins = keys, special, origins
        self._constants = constants
        self._line = Line()
        self._calls = Calls(signature)
        self._states = States(signature, self._line)

    def __repr__(self) -> str:
        return f"<Executable on {self.backend.name}: {self._states.asked}>"

    @property
    def graph(self) -> Graph:
        """The graph that runs, after the passes."""
        return self._program.graph

    # Runs

    def __call__(self, *args: Any, out: Mapping[str, Array] | None = None,  # noqa: ANN401 - arrays of any library
                 **named: Any) -> Outputs:  # noqa: ANN401 - arrays of any library
        """Run on arrays given by position, by name or as one dict.

        Returns name -> array in the graph's order. The arrays are fresh: no later call touches
        them. `out` maps output names to arrays that take the results instead.
        """
        line, calls = self._line, self._calls
        free = not (line.waiting or line.holder)
        if free and (targets := calls.targets(out)) is not None:
            try:
                with line.lock:  # another thread may change which calls there are
                    ready = calls.find(args, named)
                    found = None if ready is None else ready[0](ready[1], targets)
            except MemoryError as e:
                raise no_memory(e) from None
            if found is not None:
                return dict(zip(calls.outputs, found))  # noqa: B905 - equal, and strict is slower
        arrays = self._states.asked.arrange(args, named)
        return line.run(lambda: self._run(arrays, out, None))

    def run(self, arrays: Sequence[Array], *, out: Mapping[str, Array] | None = None,
            watch: Watch | None = None) -> Outputs:
        """Run on one array per input; `watch(node, outputs)` sees every step."""
        arrays = self._states.asked.arrange(arrays, {})
        seen = self._line.inner(watch) if watch else None
        return self._line.run(lambda: self._run(arrays, out, seen))

    def submit(self, *args: Any, out: Mapping[str, Array] | None = None,  # noqa: ANN401 - arrays of any library
               **named: Any) -> Future[Outputs]:  # noqa: ANN401 - arrays of any library
        """Run later; `result()` of what is returned waits for the outputs or raises the error.

        Takes what a call takes. Inputs are copied before it returns, so their memory is free at
        once; storage in `out` belongs to the run until it has ended. Runs go in the order of their
        submission, also past one that fails; up to 32 may wait.
        """
        arrays = [owned(a) for a in self._states.asked.arrange(args, named)]
        check_out(self.signature, out)
        return self._line.submit(lambda: self._run(arrays, out, None))

    def _run(self, arrays: Sequence[Array], out: Mapping[str, Array] | None,
             watch: Watch | None) -> Outputs:
        """A run whose turn it is."""
        check_out(self.signature, out)
        hidden = [] if self._keys is None else [self._keys.take()]
        try:
            if self._states.held:
                return self._states.run(self._program, arrays, hidden, out, watch)
            binding = self.signature.bind(arrays)
            program = self._program if watch or self._special is None else self._choose(binding)
            if watch is None and not hidden:
                self._remember(arrays, program, binding)
            found = program.run([*arrays, *hidden], binding, watch)
            taken = {id(a) for a in arrays}
            return fill(own(self.signature, found, taken, out, ()), out)
        except BindingError:  # what is refused is no run
            if self._keys is not None:
                self._keys.back()
            raise
        except MemoryError as e:
            raise no_memory(e) from None

    def _choose(self, binding: Mapping[str, int]) -> Program:
        """The program of a hot binding, or the one for all."""
        assert self._special is not None
        found, new = self._special.find(binding)
        if new and found is not None:
            self._calls.clear()  # some may be calls of a program that was dropped
            for name, array in ({} if self.frozen else self._program.params).items():
                found.set_param(name, array)
        return found or self._program

    def _remember(self, arrays: Sequence[Array], program: Program, binding: Binding) -> None:
        """Call the program at once for these shapes from now on."""
        special = self._special
        if not self._calls.misses(arrays) or (special and binding and program is self._program):
            return
        if (call := program.direct(binding)) is not None:
            self._calls.keep(arrays, special.used(binding, call) if special else call)

    def reseed(self, seed: int, runs: int = 0) -> None:
        """Draw random numbers as after `runs` runs with a seed; needs `compile(random=...)`."""
        seed, runs = check_seed(seed, "seed"), check_seed(runs, "runs")
        if (keys := self._keys) is None:
            raise no_seed()
        self._line.run(lambda: keys.restart(seed, runs))

    # State

    def resident(self, name: str, value: Any = None, *, shape: Sequence[int] | None = None,  # noqa: ANN401 - arrays of any library
                 axis: int | None = None, capacity: int | None = None) -> Resident:
        """Keep an input on the device from now on; calls no longer take it.

        It begins as `value`, or as zeros of `shape`. `axis` is the one along which rows can be fed
        back. With a `capacity` its storage has room for so many rows along `axis`, by default the
        only axis of unknown size, and the model sees those in use.
        """
        def bind() -> Resident:
            self._calls.clear()
            return self._states.bind(name, self._program, value, shape, axis, capacity)

        return self._line.run(bind)

    def release(self, name: str) -> None:
        """Take a resident input from the caller again; its storage is dropped."""
        self._line.run(lambda: self._states.release(name))

    def clone(self) -> Executable:
        """An executable of its own with the same parameters and copies of the resident state.

        Code and parameters are shared until one of the two replaces a parameter.
        """
        def clone() -> Executable:
            made = Executable(self._program.clone(), self.signature, self.backend, self._passes,
                              frozen=self.frozen, keys=self._keys and self._keys.clone(),
                              special=self._special and self._special.clone(),
                              origins=self._origins, constants=self._constants)
            made._states = self._states.clone(made._program, made._line)
            return made

        return self._line.run(clone)

    def __reduce__(self) -> NoReturn:
        """An error: code and memory of a device belong to the process."""
        raise no_copy()

    # Parameters

    def set_param(self, name: str, array: Any) -> None:  # noqa: ANN401 - arrays of any library
        """Replace a parameter by a copy of `array`; the type must be the parameter's own.

        Runs submitted before still see the old one.
        """
        self.set_params({name: array})

    def set_params(self, arrays: Mapping[str, Any]) -> None:
        """Replace several parameters, all of them or, after an error, none.

        Other values for initializers of at most one element compile the model anew.
        """
        self.thaw(arrays)
        self._replace(replacements(self._leaves(), arrays))

    def share_params(self, other: Executable) -> None:
        """Use the parameters of another executable, by name and without a copy.

        Each parameter of this one must be in the other one, which may have more.
        """
        if not isinstance(other, Executable):
            raise BindingError(f"parameters of an executable are needed, not those of "
                               f"{type(other).__name__}",
                               hint="model.compile(freeze=False) gives an executable")
        held = self._leaves()
        self.thaw(held)
        theirs = other._line.run(lambda: {n: a for n, a in other._all_params().items()
                                          if n in held})
        if missing := [v.name for v in self.graph.params if v.name not in theirs]:
            raise BindingError(f"the other executable has no parameter '{missing[0]}'")
        for name, array in theirs.items():
            check_type(held[name], array)
        self._replace(theirs)

    def thaw(self, arrays: Any) -> None:  # noqa: ANN401 - not yet checked
        """Raise if parameters cannot be replaced."""
        if self.frozen:
            name = next(iter(arrays), None) if isinstance(arrays, Mapping) else None
            which = "parameters were" if name is None else f"parameter '{name}' was"
            raise BindingError(f"the {which} frozen when the model was compiled",
                               hint="compile(freeze=False)")

    def _leaves(self) -> dict[str, Value]:
        """What may be replaced."""
        constants = self._constants.leaves() if self._constants else {}
        return {**constants, **{v.name: v for v in self.graph.params}}

    def _all_params(self) -> dict[str, Data]:
        return {**(self._constants.values if self._constants else {}), **self._program.params}

    def _replace(self, arrays: Mapping[str, Data]) -> None:
        def replace() -> None:
            if self._constants and (changed := self._constants.others(arrays)):
                self._constants, self._program, self._special = self._constants.replaced(
                    changed, self._program.params)
                self._calls.clear()
            for program in (self._program, *(self._special.kept.values() if self._special else ())):
                for name in program.params.keys() & arrays.keys():
                    program.set_param(name, arrays[name])
            self._states.changed()

        self._line.run(replace)

    def explain(self) -> Explanation:
        """What runs: for each node its source, the device's claim, and sizes."""
        found = explain(self.graph, self.backend, self._passes, self._origins, self._program)
        if not self._line.inside:
            found.notes += self._line.run(lambda: self._states.notes(self._program))
        found.notes += self._special.notes if self._special else []
        return found


def no_copy() -> RunError:
    """The error of pickling an executable, or of copying it as if it were plain data."""
    return RunError("an executable cannot be pickled", hint="clone() copies it; another process "
                    "loads and compiles the model itself")


def no_memory(e: MemoryError) -> RunError:
    """The error of a run that memory did not suffice for."""
    return RunError(f"out of memory: {e}", hint="bind smaller sizes to the symbolic dims")
