"""Load an ONNX model as a `Model`, now or at its first run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ...declare.arrays import Array
from ...errors import ImportFailure, TreadleError
from ...ir.dims import Size, sym, symbol_name
from ...ir.types import STRING
from ...runtime.model import Built, LateModel, Model
from ...runtime.signature import Leaf, Signature
from .conditions import SMALL, Choices, Condition, Decisions, explore
from .constants import Again
from .context import LateBinding
from .model import Facts, Imported, declared_inputs, import_model
from .protocol import onnx
from .reading import DTYPE_OF, Beside, read_model

STEP = 32
"""The divisor of sizes whose remainders may suffice: that of common image networks."""
KEYS = 1024
"""Most kinds of inputs whose keys are remembered."""


def load_onnx(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Model | LateModel:
    """The model in a file, bytes or a ModelProto.

    Raises ImportFailure for what is no valid model and UnsupportedError, with a table, for valid
    models that use what is not supported.
    """
    proto, beside, file = read_model(source)
    try:
        done = import_model(proto, beside, file)
        return Model(file, Built(done.graph, done.params, done.notes, done.constants,
                                 Again(source)))
    except LateBinding as e:
        inputs = tuple([Leaf(d.name, d.dtype, d.shape) for d in declared_inputs(proto, file)])
        outputs = tuple([_output_leaf(v) for v in proto.graph.output])
        signature = Signature(inputs, outputs)
        return LateModel(file, signature, Binder(proto, beside, file, signature, e))
    except RecursionError:
        raise ImportFailure(f"{file}: nested too deeply") from None


class Binder:
    """Builds the graph of a late-bound model once inputs are there.

    It learns on the way which branches, which inputs' values, which sizes and whether ranks the
    graph depends on. Of a size it may be the remainder by `STEP` alone: where halved sizes are
    doubled again, the graph for all multiples is one. `whole` are remainders for which that does
    not hold. `same` are sizes that must be equal to others.
    """

    def __init__(self, proto: onnx.ModelProto, beside: Beside, file: str,
                 signature: Signature, first: LateBinding) -> None:
        self.proto, self.beside, self.file, self.signature = proto, beside, file, signature
        needs = LateBinding("") if first.condition is not None else first
        self.statics, self.sizes, self.ranks = set(needs.values), set(needs.sizes), needs.ranks
        self.remainders: set[str] = set()
        self.whole: set[tuple[str, int]] = set()
        self.same: dict[str, str] = {}
        self.decisions = Decisions()
        self._eased = False
        self._names = [leaf.name for leaf in signature.inputs]
        self._keys: dict[object, object] = {}
        self.reason = first.message

    def key(self, arrays: Sequence[Array]) -> object:
        """What the graph for these inputs depends on; equal keys share a graph."""
        seen = tuple([(a.shape, _content(a) if a.size <= SMALL or n in self.statics else None)
                      for n, a in zip(self._names, arrays, strict=True)])
        if (found := self._keys.get(seen)) is None:
            binding = self.signature.bind(arrays)
            named = dict(zip(self._names, arrays, strict=True))
            base = self._base(named, binding)
            found = base, self.decisions.path(base, self._scaled(binding), named)
            if len(self._keys) >= KEYS:
                self._keys.clear()
            self._keys[seen] = found
        return found

    def _base(self, arrays: Mapping[str, Array], binding: Mapping[str, int]) -> object:
        """The key but for branches."""
        values = [(a.shape, _content(a)) for n, a in arrays.items() if n in self.statics]
        shapes = [arrays[leaf.name].shape for leaf in self.signature.inputs if leaf.shape is None]
        sizes = [self._fixed(s, binding) for s in self._special()]
        return tuple(values), tuple(sizes), tuple(shapes)

    def _special(self) -> list[str]:
        return sorted(self.sizes | self.remainders | {*self.same})

    def _fixed(self, s: str, binding: Mapping[str, int]) -> Size:
        """What a size is in the graph: another, a number, or a multiple of `STEP` and more."""
        if (other := self.same.get(s)) is not None and binding[s] == binding[other]:
            return sym(other)
        rest = binding[s] % STEP
        if s in self.remainders and (s, rest) not in self.whole:
            return STEP * sym(s) + rest
        return binding[s]

    def _scaled(self, binding: Mapping[str, int]) -> dict[str, int]:
        """The binding of a graph's own symbols."""
        return {s: n // STEP if s in self.remainders and (s, n % STEP) not in self.whole else n
                for s, n in binding.items()}

    def __call__(self, arrays: Mapping[str, Array]) -> Built:
        """The graph for these inputs."""
        binding = self.signature.bind([arrays[leaf.name] for leaf in self.signature.inputs])
        before = set(self.statics), set(self.sizes), self.ranks, set(self.whole), dict(self.same)
        self._keys.clear()
        try:
            done = self._settled(arrays, binding)
        except TreadleError:  # inputs that fit no graph teach nothing
            self.statics, self.sizes, self.ranks, self.whole, self.same = before
            raise
        return Built(done.graph, done.params, done.notes)

    def _settled(self, arrays: Mapping[str, Array], binding: Mapping[str, int]) -> Imported:
        """Import, learning on the way; then see what the first graph does not depend on."""
        while True:
            try:
                done = self._import(arrays, binding)
                break
            except LateBinding as e:
                self._learn(e, binding)
        if not self._eased:
            self._eased = True
            for s in sorted(self.sizes):
                done = self._ease(s, arrays, binding) or done
        return done

    def _import(self, arrays: Mapping[str, Array], binding: Mapping[str, int]) -> Imported:
        """The graph under what is known, branches decided on the way."""
        base, scaled = self._base(arrays, binding), self._scaled(binding)
        if len(self.decisions) > KEYS:
            self.decisions.forget()

        def build(path: Choices) -> Imported:
            return self._build(arrays, binding, path)

        def condition(error: TreadleError) -> Condition | None:
            return error.condition if isinstance(error, LateBinding) else None

        start = self.decisions.path(base, scaled, arrays)
        done, path, found = explore(build, condition, lambda c: c.decide(scaled, arrays), start)
        self.decisions.learn(base, path, found)
        return done

    def _build(self, arrays: Mapping[str, Array], binding: Mapping[str, int], path: Choices
               ) -> Imported:
        unranked = {leaf.name: arrays[leaf.name].shape for leaf in self.signature.inputs
                    if leaf.shape is None and self.ranks}
        facts = Facts({n: arrays[n] for n in self.statics},
                      {s: self._fixed(s, binding) for s in self._special() if s in binding},
                      unranked, dict(path))
        return import_model(self.proto, self.beside, self.file, facts)

    def _ease(self, s: str, arrays: Mapping[str, Array], binding: Mapping[str, int]
              ) -> Imported | None:
        """The graph for any size in the place of one, or for its remainder, if there is one."""
        self.sizes.discard(s)
        for remainders in (self.remainders, self.remainders | {s}):
            kept, self.remainders = self.remainders, remainders
            try:
                return self._import(arrays, binding)
            except (LateBinding, TreadleError):
                self.remainders = kept
        self.sizes.add(s)
        return None

    def _learn(self, need: LateBinding, binding: Mapping[str, int]) -> None:
        """Take in what the import asked for; asking for nothing new is an error."""
        if hard := {(s, binding[s] % STEP) for s in need.sizes & self.remainders} - self.whole:
            self.whole |= hard
            return
        if (pair := _equal(need, binding)) is not None and not {*pair} & {*self.same}:
            self.same[pair[1]] = pair[0]
            return
        if {*need.values} <= self.statics and need.sizes <= self.sizes and (
                self.ranks or not need.ranks):
            raise ImportFailure(f"{self.file}: {need.message}",
                                hint="the size depends on data computed in the graph") from need
        self.statics |= {*need.values}
        self.sizes |= need.sizes - self.remainders
        self.ranks = self.ranks or need.ranks


def _equal(need: LateBinding, binding: Mapping[str, int]) -> tuple[str, str] | None:
    """Two input sizes that the graph wants to be equal, and that are."""
    cause = need.__cause__
    while cause is not None:
        if sizes := getattr(cause, "sizes", ()):
            pair = sorted({symbol_name(n) or "" for n in sizes} & need.sizes)
            equal = len(pair) == 2 and binding[pair[0]] == binding[pair[1]]
            return (pair[0], pair[1]) if equal else None
        cause = cause.__cause__
    return None


def _content(array: Array) -> object:
    return array.tobytes() if array.dtype != object else repr(array.tolist())


def _output_leaf(v: onnx.ValueInfoProto) -> Leaf:
    return Leaf(v.name, DTYPE_OF.get(v.type.tensor_type.elem_type, STRING), None)
