"""Ensembles of decision trees.

Nodes of all trees stand in one table, leaves in another. A child or root is the number of a node,
or -1 - the number of a leaf. Row l of leaf_target and leaf_weight lists what leaf l adds to which
outputs, -1 filling up. Source: ai.onnx.ml TreeEnsemble; where it is vague, ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, cast

import numpy as np

from ..declare.arrays import Array
from ..declare.kinds import OpManyN, composite, structured
from ..declare.opdef import cast_value
from ..declare.schema import Sample, arr, known
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import BOOL, I64, U8, TensorType
from ..records import dataclass
from .compare import gt, logical_or, where
from .extents import surely_differ
from .ml_scores import ORACLE, transformed, two_scores
from .movement import narrow, reshape
from .scan1d import argmax

Test = Callable[[Array, Array], Array]
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""What a node asks of its feature and its split, by number."""
_TESTS: tuple[Test, ...] = (
    np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
MEMBER = 6
X = [[0.2, 1.0], [0.9, -2.0], [0.5, 0.5], [float("nan"), 3.0]]
NODES = ([0, 1, 0], [0.5, 0.0, 0.7], [1, -1, -4], [-3, -2, -5])
"""Two trees of two nodes and one: features, splits, where a true and a false answer lead."""
LEAVES = [[[0], [1], [2], [0], [1]], [[0.5], [1.25], [2.0], [-0.75], [0.1]]]
WIDE = [[[0, 1, 2]] * 5, [[0.5, 1.0, -1.0], [1.25, 0.0, 2.0], [2.0, 3.0, 1.0], [-0.75, 1.0, 0.5],
                          [0.1, 0.2, 0.3]]]
POSITIVE = [[0.5], [1.25], [0.0], [0.25], [0.1]]
KINDS = (arr([0, 0, 3], "u8"), [False, True, True])
ROOTS = [0, 2]


@dataclass(frozen=True, slots=True)
class Trees:
    """The arrays of an ensemble."""

    feature: Array
    split: Array
    yes: Array
    no: Array
    mode: Array
    missing: Array
    roots: Array
    target: Array
    weight: Array
    members: Array | None

    def check(self, features: int, outputs: int) -> None:
        """Refuse numbers that name nothing."""
        last = len(self.feature) - 1
        for what, given, low, high in (
                ("feature", self.feature, 0, features - 1), ("child", self.yes, None, last),
                ("child", self.no, None, last), ("root", self.roots, None, last),
                ("mode", self.mode, 0, MEMBER), ("output", self.target, -1, outputs - 1)):
            least = -len(self.target) if low is None else low
            if given.size and (given.min() < least or given.max() > high):
                raise OperatorError(f"a tree has a {what} outside {least}..{high}",
                                    hint="the model's tree table is damaged")

    def leaves(self, x: Array) -> Array:
        """The leaf that every row of x[N, F] reaches in every tree, [N, T]."""
        count = len(self.roots)
        at = np.tile(self.roots, len(x))
        todo = np.flatnonzero(at >= 0)
        for _ in range(len(self.feature) + 1):
            if not len(todo):
                return -1 - at.reshape(len(x), count)
            node = at[todo]
            value = x[todo // count, self.feature[node]]
            hit = self._answers(value, node) | self.missing[node] & np.isnan(value)
            at[todo] = np.where(hit, self.yes[node], self.no[node])
            todo = todo[at[todo] >= 0]
        raise OperatorError("a tree leads back to a node of its own",
                            hint="the model's tree table is damaged")

    def _answers(self, value: Array, node: Array) -> Array:
        kinds, split = cast("list[int]", np.unique(self.mode).tolist()), self.split[node]
        if len(kinds) == 1 and kinds[0] != MEMBER:
            return _TESTS[kinds[0]](value, split)
        mode, out = self.mode[node], np.zeros(len(node), bool)
        for m in kinds:
            here = mode == m
            if m == MEMBER:
                if self.members is None:
                    raise OperatorError("a MEMBER node needs members")
                sets = self.members[split[here].astype(np.int64)]
                out[here] = (sets == value[here][:, None]).any(1)
            else:
                out[here] = _TESTS[m](value[here], split[here])
        return out

    def totals(self, x: Array, outputs: int, aggregate: str) -> tuple[Array, Array]:
        """What the leaves give every row and output, [N, outputs], and whether any did."""
        self.check(x.shape[1], outputs)
        leaf = self.leaves(x.astype(self.split.dtype, copy=False))
        row = np.repeat(np.arange(len(x)), len(self.roots))
        bounds = {"MIN": np.inf, "MAX": -np.inf}
        total = np.full(len(x) * outputs, bounds.get(aggregate, 0.0))
        seen = np.zeros(len(x) * outputs, bool)
        add = cast("np.ufunc", {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add))
        for slot in range(self.target.shape[1]):
            target = self.target[leaf, slot].reshape(-1)
            there = target >= 0
            at = row[there] * outputs + target[there]
            add.at(total, at, self.weight[leaf, slot].reshape(-1)[there].astype(np.float64))
            seen[at] = True
        total = np.where(seen, total, 0.0)
        if aggregate == "AVERAGE":
            total = total / max(len(self.roots), 1)
        return total.reshape(len(x), outputs), seen.reshape(len(x), outputs)


def _trees_types(x: TensorType, feature: TensorType, split: TensorType, yes: TensorType,
                 no: TensorType, mode: TensorType, missing: TensorType, roots: TensorType,
                 leaf_target: TensorType, leaf_weight: TensorType, *,
                 members: TensorType | None = None, outputs: int, aggregate: str
                 ) -> tuple[TensorType, TensorType]:
    nodes = (feature, split, yes, no, mode, missing)
    if x.rank != 2 or outputs < 1:
        raise OperatorError(f"x[N, F] and an output are needed, got {x} and {outputs} outputs")
    if any(t.rank != 1 or surely_differ(t.shape[0], feature.shape[0]) for t in nodes):
        raise OperatorError(f"the tables of nodes differ: {', '.join(map(str, nodes))}")
    if roots.rank != 1 or leaf_target.rank != 2 or leaf_target.shape != leaf_weight.shape:
        raise OperatorError(f"roots[T] and two tables of leaves[L, K] are needed, got {roots}, "
                            f"{leaf_target} and {leaf_weight}")
    if members is not None and members.rank != 2:
        raise OperatorError(f"members[sets, K] are needed, got {members}")
    wrong = [t for t in (feature, yes, no, roots, leaf_target) if t.dtype is not I64]
    if wrong or mode.dtype is not U8 or missing.dtype is not BOOL:
        raise OperatorError(f"numbers must be i64, modes u8 and missing bool, got "
                            f"{', '.join(map(str, [*wrong, mode, missing]))}")
    shape = (x.shape[0], outputs)
    return TensorType(shape, leaf_weight.dtype), TensorType(shape, BOOL)


def _sample(leaves: Sequence[object] = LEAVES, rtol: float = 1e-4, *, expect: str, **kw: object
            ) -> Sample:
    return known(X, *NODES, *KINDS, ROOTS, *leaves, expect=ORACLE + expect, rtol=rtol, **kw)


@structured(types=_trees_types, samples=[
    _sample(outputs=3, aggregate=a, expect="tree_scores")
    for a in ("SUM", "AVERAGE", "MIN", "MAX")] + [
    known([[1.0], [2.5], [4.0], [9.0]], [0, 0], [0.0, 3.0], [-1, -2], [1, -3],
          arr([6, 1], "u8"), [False, False], [0], [[0], [0], [0]], [[10.0], [20.0], [30.0]],
          members=[[1.0, 4.0, float("nan")]], outputs=1, aggregate="SUM",
          expect=[[[10.0], [20.0], [10.0], [30.0]], [[True]] * 4])])
def tree_scores(x: Array, feature: Array, split: Array, yes: Array, no: Array, mode: Array,
                missing: Array, roots: Array, leaf_target: Array, leaf_weight: Array, *,
                members: Array | None = None, outputs: int,
                aggregate: Literal["SUM", "AVERAGE", "MIN", "MAX"] = "SUM"
                ) -> tuple[Array, Array]:
    """What the trees give for each row of x[N, F], [N, outputs]; and whether any leaf did.

    Node k asks whether x[feature[k]] <= split[k] (or by `mode`: <=, <, >=, >, ==, !=, is in row
    split[k] of `members`) and leads to yes[k] or no[k]; NaN leads to yes where `missing` says so.
    Sums run in f64. An output without a leaf is 0; AVERAGE divides by the number of trees.
    """
    trees = Trees(feature, split, yes, no, mode, missing, roots, leaf_target, leaf_weight,
                  members)
    total, seen = trees.totals(x, outputs, aggregate)
    return total.astype(leaf_weight.dtype), seen


@composite(samples=[
    _sample(leaves, base=b, targets=3, aggregate=a, transform=t, expect="tree_ensemble")
    for leaves, b in ((LEAVES, None), (WIDE, [0.5, -0.25, 1.0]))
    for a, t in (("SUM", "NONE"), ("AVERAGE", "SOFTMAX"), ("MIN", "LOGISTIC"), ("MAX", "NONE"))])
def tree_ensemble(x: Value, feature: Value, split: Value, yes: Value, no: Value, mode: Value,
                  missing: Value, roots: Value, leaf_target: Value, leaf_weight: Value, *,
                  members: Value | None = None, base: Value | None = None, targets: int,
                  aggregate: Literal["SUM", "AVERAGE", "MIN", "MAX"] = "SUM",
                  transform: Literal["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO",
                                     "PROBIT"] = "NONE") -> Value:
    """`tree_scores` plus base[targets], after a transform; a single one only after PROBIT."""
    out, _ = _scores(x, feature, split, yes, no, mode, missing, roots, leaf_target, leaf_weight,
                     members=members, outputs=targets, aggregate=aggregate)
    out = out if base is None else out + base
    return out if targets == 1 and transform != "PROBIT" else transformed(out, transform)


_scores = cast("OpManyN", tree_scores)


@composite(samples=[
    _sample(base=b, classes=3, transform=t, expect="tree_classifier")
    for t, b in (("NONE", None), ("SOFTMAX", [0.5, -0.25, 1.0]), ("SOFTMAX_ZERO", None),
                 ("LOGISTIC", None))] + [
    _sample(([[0]] * 5, w), base=b, classes=1, level=level, transform=t, expect="tree_classifier")
    for w, level in ((LEAVES[1], 0.0), (POSITIVE, 0.5)) for t in ("NONE", "LOGISTIC")
    for b in (None, [0.1])] + [
    _sample(([[1]] * 5, LEAVES[1]), classes=2, level=0.0, expect="tree_classifier")])
def tree_classifier(x: Value, feature: Value, split: Value, yes: Value, no: Value, mode: Value,
                    missing: Value, roots: Value, leaf_target: Value, leaf_weight: Value, *,
                    members: Value | None = None, base: Value | None = None, classes: int,
                    level: float | None = None,
                    transform: Literal["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO",
                                       "PROBIT"] = "NONE") -> tuple[Value, Value]:
    """The class of each row of x[N, F] and its scores: sums of leaves plus base[classes].

    The largest sum wins before the transform, among those that a leaf or base gave. With `level`
    only the second of two classes has weights and wins above it; `classes` = 1 then means that
    its sum s is the only one, and the scores are 2 level - s and s, or sigmoid(-s) and
    sigmoid(s).
    """
    total, seen = _scores(x, feature, split, yes, no, mode, missing, roots, leaf_target,
                          leaf_weight, members=members, outputs=classes)
    if base is not None:
        total, seen = total + base, logical_or(seen, True)
    if level is None:
        winner = argmax(where(seen, total, -math.inf), axis=-1)
        return winner, transformed(total, transform)
    second = reshape(narrow(total, axis=1, start=classes - 1, length=1), shape=(x.shape[0],))
    winner = cast_value(gt(second, level), I64)
    if classes == 1:
        return winner, two_scores(total, transform, 2 * level)
    return winner, transformed(total, transform)
