"""Load an ONNX model as a `Model`, now or at its first run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from ...declare.arrays import Array
from ...errors import ImportFailure, TreadleError
from ...ir.dims import Size, sym
from ...ir.types import STRING
from ...runtime.model import Built, LateModel, Model
from ...runtime.signature import Leaf, Signature
from .context import LateBinding
from .model import Facts, Imported, declared_inputs, import_model
from .reading import DTYPE_OF, read_model

STEP = 32
"""The divisor of sizes whose remainders may suffice: that of common image networks."""


def load_onnx(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Model | LateModel:
    """The model in a file, bytes or a ModelProto.

    Raises ImportFailure for what is no valid model and UnsupportedError, with a table, for valid
    models that use what is not supported.
    """
    proto, folder, file = read_model(source)
    try:
        done = import_model(proto, folder, file)
        return Model(file, Built(done.graph, done.params, done.notes))
    except LateBinding as e:
        inputs = tuple([Leaf(d.name, d.dtype, d.shape) for d in declared_inputs(proto, file)])
        outputs = tuple([_output_leaf(v) for v in proto.graph.output])
        signature = Signature(inputs, outputs)
        return LateModel(file, signature, Binder(proto, folder, file, signature, e))
    except RecursionError:
        raise ImportFailure(f"{file}: nested too deeply") from None


class Binder:
    """Builds the graph of a late-bound model once inputs are there.

    It learns on the way which inputs' values, which sizes and whether ranks the graph depends on.
    Of a size it may be the remainder by `STEP` alone: where halved sizes are doubled again, the
    graph for all multiples is one. `whole` are remainders for which that does not hold.
    """

    def __init__(self, proto: onnx.ModelProto, folder: Path | None, file: str,
                 signature: Signature, first: LateBinding) -> None:
        self.proto, self.folder, self.file, self.signature = proto, folder, file, signature
        self.statics, self.sizes, self.ranks = set(first.values), set(first.sizes), first.ranks
        self.remainders: set[str] = set()
        self.whole: set[tuple[str, int]] = set()
        self._eased = False
        self.reason = first.message

    def key(self, arrays: Sequence[Array]) -> object:
        """What the graph for these inputs depends on; equal keys share a graph."""
        binding = self.signature.bind(arrays)
        values = [(a.shape, a.tobytes() if a.dtype != object else repr(a.tolist()))
                  for leaf, a in zip(self.signature.inputs, arrays, strict=True)
                  if leaf.name in self.statics]
        shapes = [a.shape for leaf, a in zip(self.signature.inputs, arrays, strict=True)
                  if leaf.shape is None]
        sizes = [self._fixed(s, binding) for s in sorted(self.sizes | self.remainders)]
        return tuple(values), tuple(sizes), tuple(shapes)

    def _fixed(self, s: str, binding: Mapping[str, int]) -> Size:
        """What a size is in the graph: a number, or a multiple of `STEP` and a remainder."""
        rest = binding[s] % STEP
        if s in self.remainders and (s, rest) not in self.whole:
            return STEP * sym(s) + rest
        return binding[s]

    def __call__(self, arrays: Mapping[str, Array]) -> Built:
        """The graph for these inputs."""
        binding = self.signature.bind([arrays[leaf.name] for leaf in self.signature.inputs])
        before = set(self.statics), set(self.sizes), self.ranks, set(self.whole)
        try:
            done = self._settled(arrays, binding)
        except TreadleError:  # inputs that fit no graph teach nothing
            self.statics, self.sizes, self.ranks, self.whole = before
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
        unranked = {leaf.name: arrays[leaf.name].shape for leaf in self.signature.inputs
                    if leaf.shape is None and self.ranks}
        facts = Facts({n: arrays[n] for n in self.statics},
                      {s: self._fixed(s, binding) for s in self.sizes | self.remainders
                       if s in binding}, unranked)
        return import_model(self.proto, self.folder, self.file, facts)

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
        if {*need.values} <= self.statics and need.sizes <= self.sizes and (
                self.ranks or not need.ranks):
            raise ImportFailure(f"{self.file}: {need.message}",
                                hint="the size depends on data computed in the graph") from need
        self.statics |= {*need.values}
        self.sizes |= need.sizes - self.remainders
        self.ranks = self.ranks or need.ranks


def _output_leaf(v: onnx.ValueInfoProto) -> Leaf:
    return Leaf(v.name, DTYPE_OF.get(v.type.tensor_type.elem_type, STRING), None)
