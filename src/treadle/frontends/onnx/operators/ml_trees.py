"""ai.onnx.ml tree ensembles: their attribute tables become the tables of our operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....declare.arrays import Array, np_dtype
from ....declare.opdef import cast_value
from ....errors import Declined
from ....ir.graph import Value
from ....ir.types import F32, F64
from ....ops.ml_trees import MEMBER, MODES
from ....records import dataclass
from ..context import Context
from ..registry import ML, importer
from .ml import Floats, Ints, Texts, labels_of, named, several
from .shape import op

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""By their numbers in version 5."""


@dataclass(frozen=True, slots=True)
class Tables:
    """An ensemble in the layout of `ops.ml_trees`."""

    nodes: tuple[Array, ...]
    """Feature, split, yes, no, mode and missing, by node."""
    roots: Array
    target: Array
    weight: Array

    def values(self, ctx: Context) -> list[Value]:
        """The tables as constants."""
        return [ctx.constant(a, "trees")
                for a in (*self.nodes, self.roots, self.target, self.weight)]


def _padded(leaves: Sequence[Sequence[tuple[int, float]]], dtype: np.dtype[Any]
            ) -> tuple[Array, Array]:
    width = max(map(len, leaves), default=1)
    target = np.full((len(leaves), width), -1, np.int64)
    weight = np.zeros((len(leaves), width), dtype)
    for row, leaf in enumerate(leaves):
        for slot, (t, w) in enumerate(leaf):
            target[row, slot], weight[row, slot] = t, w
    return target, weight


Id = tuple[int, int]


def _numbered(what: str, ids: Sequence[Id], table: dict[Id, int], keys: Sequence[Id]) -> Array:
    try:
        return np.asarray([table[k] for k in keys], np.int64)
    except KeyError as e:
        raise Declined(f"a tree's {what} names the node {e.args[0]}, which is not there") from None


def split_tables(*, treeids: Ints, nodeids: Ints, featureids: Ints, values: Array, modes: Texts,
                 truenodeids: Ints, falsenodeids: Ints, missing: Ints,
                 leaves: tuple[Ints, Ints, Ints, Array]) -> Tables:
    """The tables of versions 1 and 3: nodes and leaves together, by (tree, node).

    A tree's root is its first node.
    """
    _check_lengths([treeids, nodeids, featureids, values, modes, truenodeids, falsenodeids])
    _check_lengths(leaves)
    ids = list(zip(treeids, nodeids, strict=True))
    inner = [i for i, m in enumerate(modes) if m != "LEAF"]
    outer = [i for i, m in enumerate(modes) if m == "LEAF"]
    table = {ids[i]: k for k, i in enumerate(inner)} | {ids[i]: -1 - k for k, i in enumerate(outer)}
    if len(table) != len(ids):
        raise Declined("a tree has two nodes of one number")
    yes, no = (_numbered("child", ids, table, [(treeids[i], kids[i]) for i in inner])
               for kids in (truenodeids, falsenodeids))
    first: dict[int, Id] = {}
    for key in ids:
        first.setdefault(key[0], key)
    found: list[list[tuple[int, float]]] = [[] for _ in outer]
    owners = _numbered("weight", ids, table, list(zip(leaves[0], leaves[1], strict=True)))
    for owner, target, weight in zip(owners.tolist(), leaves[2], leaves[3].tolist(), strict=True):
        if owner < 0:
            found[-1 - owner].append((target, weight))
    lost = np.asarray([bool(missing[i]) if missing else False for i in inner], bool)
    kinds = np.asarray([_mode(modes[i]) for i in inner], np.uint8)
    return Tables((np.asarray([featureids[i] for i in inner], np.int64), values[inner], yes, no,
                   kinds, lost), _numbered("root", ids, table, list(first.values())),
                  *_padded(found, leaves[3].dtype))


def _mode(name: str) -> int:
    short = name.removeprefix("BRANCH_")
    if short not in MODES:
        raise Declined(f"a node of the mode '{name}'")
    return MODES.index(short)


def _check_lengths(tables: Sequence[Any]) -> None:
    sizes = {len(t) for t in tables}
    if len(sizes) > 1:
        raise Declined(f"the tables of nodes have {', '.join(map(str, sorted(sizes)))} entries")


def _numbers(given: Floats, tensor: Array | None, x: Value) -> Array:
    """Splits or weights: f64 for features in f64, else f32."""
    dtype = np.float64 if x.dtype is F64 else np.float32
    return np.asarray(given if tensor is None else tensor, dtype).reshape(-1)


def _compared(x: Value) -> Value:
    """Features as splits are; a vector is one row."""
    x = x if x.dtype is F64 else cast_value(x, F32)
    return x if x.type.rank == 2 else op("reshape", x, shape=(1, *x.shape))


@importer("TreeEnsembleRegressor", domain=ML)
def tree_regressor(
        ctx: Context, x: Value, *, aggregate_function: str = "SUM", base_values: Floats = (),
        base_values_as_tensor: Array | None = None, n_targets: int = 1,
        nodes_falsenodeids: Ints, nodes_featureids: Ints, nodes_hitrates: Floats = (),
        nodes_hitrates_as_tensor: Array | None = None,
        nodes_missing_value_tracks_true: Ints = (), nodes_modes: Texts, nodes_nodeids: Ints,
        nodes_treeids: Ints, nodes_truenodeids: Ints, nodes_values: Floats = (),
        nodes_values_as_tensor: Array | None = None, post_transform: str = "NONE",
        target_ids: Ints, target_nodeids: Ints, target_treeids: Ints,
        target_weights: Floats = (), target_weights_as_tensor: Array | None = None) -> Value:
    """Sums of leaves; hit rates only speed up a runtime."""
    tables = split_tables(
        treeids=nodes_treeids, nodeids=nodes_nodeids, featureids=nodes_featureids,
        values=_numbers(nodes_values, nodes_values_as_tensor, x), modes=nodes_modes,
        truenodeids=nodes_truenodeids, falsenodeids=nodes_falsenodeids,
        missing=nodes_missing_value_tracks_true,
        leaves=(target_treeids, target_nodeids, target_ids,
                _numbers(target_weights, target_weights_as_tensor, x)))
    base = _numbers(base_values, base_values_as_tensor, x)
    if base.size not in (0, n_targets):
        raise Declined(f"{base.size} base values for {n_targets} targets")
    out = op("tree_ensemble", _compared(x), *tables.values(ctx),
             base=ctx.constant(base) if base.size else None, targets=n_targets,
             aggregate=aggregate_function, transform=post_transform)
    return cast_value(out, F32)


@importer("TreeEnsembleClassifier", domain=ML)
def tree_classifier(
        ctx: Context, x: Value, *, base_values: Floats = (),
        base_values_as_tensor: Array | None = None, class_ids: Ints, class_nodeids: Ints,
        class_treeids: Ints, class_weights: Floats = (),
        class_weights_as_tensor: Array | None = None, classlabels_int64s: Ints = (),
        classlabels_strings: Texts = (), nodes_falsenodeids: Ints, nodes_featureids: Ints,
        nodes_hitrates: Floats = (), nodes_hitrates_as_tensor: Array | None = None,
        nodes_missing_value_tracks_true: Ints = (), nodes_modes: Texts, nodes_nodeids: Ints,
        nodes_treeids: Ints, nodes_truenodeids: Ints, nodes_values: Floats = (),
        nodes_values_as_tensor: Array | None = None, post_transform: str = "NONE") -> object:
    """Sums of leaves by class; hit rates only speed up a runtime."""
    labels = labels_of(classlabels_int64s, classlabels_strings,
                       "the labels of TreeEnsembleClassifier")
    weights = _numbers(class_weights, class_weights_as_tensor, x)
    tables = split_tables(
        treeids=nodes_treeids, nodeids=nodes_nodeids, featureids=nodes_featureids,
        values=_numbers(nodes_values, nodes_values_as_tensor, x), modes=nodes_modes,
        truenodeids=nodes_truenodeids, falsenodeids=nodes_falsenodeids,
        missing=nodes_missing_value_tracks_true,
        leaves=(class_treeids, class_nodeids, class_ids, weights))
    base = _numbers(base_values, base_values_as_tensor, x)
    classes, level = _decision(labels, set(class_ids), weights, base)
    number, scores = several(
        "tree_classifier", _compared(x), *tables.values(ctx), base=_base(ctx, base, classes),
        classes=classes, level=level, transform=post_transform)
    return named(ctx, number, labels), cast_value(scores, F32)


def _decision(labels: Array, ids: set[int], weights: Array, base: Array
              ) -> tuple[int, float | None]:
    """How many sums there are, and the level that the second of two classes must exceed.

    Where only one of two classes has weights, its sum decides: above 0.5 when no weight is
    negative, which makes it a probability, else above 0.
    """
    if len(labels) < 2:
        raise Declined("TreeEnsembleClassifier of one class")
    if len(labels) > 2 or len(ids) != 1:
        return len(labels), None
    level = 0.5 if (weights >= 0).all() else 0.0
    return (1 if ids == {0} and base.size < 2 else 2), level


def _base(ctx: Context, base: Array, classes: int) -> Value | None:
    if base.size > classes:
        raise Declined(f"{base.size} base values for {classes} classes")
    if not base.size:
        return None
    full = np.zeros(classes, base.dtype)
    full[:base.size] = base
    return ctx.constant(full)


@importer("TreeEnsemble", domain=ML)
def tree_ensemble(
        ctx: Context, x: Value, *, aggregate_function: int = 1, leaf_targetids: Ints,
        leaf_weights: Array, membership_values: Array | None = None, n_targets: int = 1,
        nodes_falseleafs: Ints, nodes_falsenodeids: Ints, nodes_featureids: Ints,
        nodes_hitrates: Array | None = None, nodes_missing_value_tracks_true: Ints = (),
        nodes_modes: Array, nodes_splits: Array, nodes_trueleafs: Ints,
        nodes_truenodeids: Ints, post_transform: int = 0, tree_roots: Ints) -> Value:
    """Version 5: tables of nodes and leaves apart."""
    _check_lengths([nodes_falseleafs, nodes_falsenodeids, nodes_featureids, nodes_modes,
                    nodes_splits, nodes_trueleafs, nodes_truenodeids])
    yes, no = (np.where(leafs, -1 - np.asarray(kids, np.int64), kids).astype(np.int64)
               for leafs, kids in ((nodes_trueleafs, nodes_truenodeids),
                                   (nodes_falseleafs, nodes_falsenodeids)))
    modes, splits = nodes_modes.astype(np.uint8), np.array(nodes_splits)
    members = _members(membership_values, modes, splits)
    tables = Tables((np.asarray(nodes_featureids, np.int64), splits, yes, no, modes,
                     np.asarray(nodes_missing_value_tracks_true or (0,) * len(modes), bool)),
                    np.asarray(tree_roots, np.int64),
                    np.asarray(leaf_targetids, np.int64)[:, None],
                    np.asarray(leaf_weights)[:, None])
    if x.dtype.name not in ("f16", "f32", "f64") or np_dtype(x.dtype) != leaf_weights.dtype:
        raise Declined(f"TreeEnsemble of {x.dtype} with weights of {leaf_weights.dtype}")
    if not 0 <= aggregate_function < 4 or not 0 <= post_transform < 5:
        raise Declined(f"aggregate_function {aggregate_function}, post_transform {post_transform}")
    return op("tree_ensemble", x, *tables.values(ctx),
              members=None if members is None else ctx.constant(members), targets=n_targets,
              aggregate=AGGREGATES[aggregate_function], transform=TRANSFORMS[post_transform])


def _members(values: Array | None, modes: Array, splits: Array) -> Array | None:
    """Sets of member nodes, one a row; their splits become the rows' numbers."""
    nodes = np.flatnonzero(modes == MEMBER)
    if values is None or not len(nodes):
        return None
    ends = np.flatnonzero(np.isnan(values))
    sets = [part[~np.isnan(part)] for part in np.split(values, ends)][:len(nodes)]
    if len(sets) != len(nodes):
        raise Declined(f"{len(sets)} sets of members for {len(nodes)} nodes")
    out = np.full((len(sets), max(map(len, sets))), np.nan, values.dtype)
    for row, part in zip(out, sets, strict=True):
        row[:len(part)] = part
    splits[nodes] = np.arange(len(nodes))
    return out


