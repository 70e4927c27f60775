"""Operators of ai.onnx.ml give what ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from tests.onnx.ort import Run, check
from treadle.errors import TreadleError

RNG = np.random.default_rng(11)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def f32(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def numbers(n: int) -> list[float]:
    return f32(n).tolist()


def text(*words: str) -> np.ndarray:
    return np.asarray(words, object)


def ml(op: str, x: np.ndarray, outputs: int = 1, version: int = 3, **attrs: object) -> Run:
    return Run(op, {"x": x}, outputs, attrs, domain="ai.onnx.ml", ml=version, rtol=1e-4)


NAN = float("nan")
FEATURES = {
    "Scaler of integers": ml("Scaler", RNG.integers(0, 9, (3, 2)), offset=[1.0, 2.0],
                             scale=[0.5, 2.0]),
    "Normalizer of integers": ml("Normalizer", RNG.integers(0, 9, (3, 2)), norm="L2"),
    "Binarizer": ml("Binarizer", f32(2, 3), threshold=0.25),
    "Imputer": ml("Imputer", np.array([[1, NAN]], np.float32), imputed_value_floats=[7.0, 8.0],
                  replaced_value_float=NAN),
    "Imputer of integers": ml("Imputer", np.array([[1, -1]]), imputed_value_int64s=[7],
                              replaced_value_int64=-1),
    "OneHotEncoder": ml("OneHotEncoder", np.array([[1.0, 5.0]], np.float32),
                        cats_int64s=[5, 1, 3]),
    "OneHotEncoder of strings": ml("OneHotEncoder", text("b", "z"), cats_strings=["a", "b"]),
    "CategoryMapper": ml("CategoryMapper", text("b", "z"), cats_strings=["a", "b"],
                         cats_int64s=[5, 6], default_int64=-7),
    "CategoryMapper back": ml("CategoryMapper", np.array([[6, 7]]), cats_strings=["a", "b"],
                              cats_int64s=[5, 6], default_string="none"),
    "LabelEncoder 1": ml("LabelEncoder", text("b", "z"), version=1, classes_strings=["a", "b"]),
    "LabelEncoder 1 back": ml("LabelEncoder", np.array([1, 5]), version=1,
                              classes_strings=["a", "b"]),
    "LabelEncoder 2": ml("LabelEncoder", np.array([1, 5]), keys_int64s=[5, 1, 5],
                         values_strings=["p", "q", "r"]),
    "LabelEncoder 2 floats": ml("LabelEncoder", text("b", "z"), keys_strings=["b"],
                                values_floats=[0.5], default_float=9.0),
    "LabelEncoder 4": ml("LabelEncoder", np.array([NAN, 2.0], np.float64), version=4,
                         keys_tensor=numpy_helper.from_array(np.array([2.0, NAN])),
                         values_tensor=numpy_helper.from_array(np.array([5, 6])),
                         default_tensor=numpy_helper.from_array(np.array([-1]))),
}
LINEAR = {
    **{f"LinearRegressor {t}": ml("LinearRegressor", f32(4, 3), coefficients=numbers(6),
                                  targets=2, post_transform=t) for t in TRANSFORMS[:4]},
    "LinearRegressor of a vector": ml("LinearRegressor", f32(3), coefficients=numbers(3),
                                      intercepts=[0.5]),
    "LinearClassifier strings": ml("LinearClassifier", f32(4, 3), 2, coefficients=numbers(9),
                                   intercepts=numbers(3), classlabels_strings=["a", "b", "c"],
                                   post_transform="SOFTMAX", multi_class=1),
    "LinearClassifier binary": ml("LinearClassifier", f32(4, 3), 2, coefficients=numbers(3),
                                  intercepts=[0.1], classlabels_ints=[5, 9],
                                  post_transform="LOGISTIC"),
    "LinearClassifier of doubles": ml("LinearClassifier", RNG.normal(size=(4, 3)), 2,
                                      coefficients=numbers(6), intercepts=numbers(2),
                                      classlabels_ints=[5, 9]),
}
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def svc(counts: tuple[int, ...], kernel: str = "RBF", **attrs: object) -> Run:
    total, classes = sum(counts), len(counts)
    return ml("SVMClassifier", f32(5, 3), 2, coefficients=numbers(total * (classes - 1)),
              support_vectors=numbers(total * 3), vectors_per_class=counts,
              rho=numbers(classes * (classes - 1) // 2), kernel_type=kernel,
              kernel_params=[0.5, 0.3, 2.0], **{"classlabels_ints": list(range(3, 3 + classes)),
                                                **attrs})


VECTORS = {
    **{f"SVMRegressor {k}": ml("SVMRegressor", f32(4, 3), coefficients=numbers(5),
                               support_vectors=numbers(15), n_supports=5, rho=[0.2],
                               kernel_type=k, kernel_params=[0.5, 0.3, 3.0]) for k in KERNELS},
    "SVMRegressor one class": ml("SVMRegressor", f32(4, 3), coefficients=numbers(5), rho=[0.2],
                                 support_vectors=numbers(15), n_supports=5, one_class=1,
                                 kernel_type="RBF", kernel_params=[0.5, 0.0, 3.0]),
    "SVMRegressor linear": ml("SVMRegressor", f32(4, 3), coefficients=numbers(3), rho=[0.2],
                               kernel_params=[0.0, 0.0, 0.0]),
    **{f"SVMClassifier {k}": svc((2, 3, 1), k) for k in KERNELS},
    "SVMClassifier of two": svc((2, 3), classlabels_ints=[0, 1]),
    "SVMClassifier strings": svc((2, 3), post_transform="LOGISTIC", classlabels_ints=None,
                                 classlabels_strings=["no", "yes"]),
    "SVMClassifier probabilities": svc((2, 1, 2, 1), prob_a=numbers(6), prob_b=numbers(6)),
    "SVMClassifier linear": ml("SVMClassifier", f32(5, 3), 2, coefficients=numbers(9),
                               rho=[0.1], classlabels_ints=[4, 5, 6],
                               kernel_params=[0.0, 0.0, 0.0]),
}


def forest(what: str, trees: int, outputs: list[int], depth: int = 4, features: int = 3,
           kinds: tuple[str, ...] = MODES[:1], positive: bool = False) -> dict[str, Any]:
    """Random trees as the attributes of version 3; leaves give one weight for each output."""
    out: dict[str, list[Any]] = {k: [] for k in (
        "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes",
        "nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true",
        f"{what}_treeids", f"{what}_nodeids", f"{what}_ids", f"{what}_weights")}

    def grow(tree: int, number: int, left: int) -> int:
        at = len(out["nodes_nodeids"])
        leaf = not left or number and RNG.random() < 0.2
        row = ([0, 0.0, "LEAF", 0, 0, 0] if leaf else
               [int(RNG.integers(features)), float(np.round(RNG.uniform(-1, 1), 1)),
                str(RNG.choice(kinds)), number + 1, 0, int(RNG.random() < 0.5)])
        for key, value in zip(list(out)[:8], [tree, number, row[0], row[1], row[2], row[3],
                                              row[4], row[5]], strict=True):
            out[key].append(value)
        if leaf:
            for o in outputs:
                w = float(RNG.uniform(0 if positive else -1, 0.5))
                for key, value in zip(list(out)[8:], (tree, number, o, w), strict=True):
                    out[key].append(value)
            return number + 1
        after = grow(tree, number + 1, left - 1)
        out["nodes_falsenodeids"][at] = after
        return grow(tree, after, left - 1)

    for tree in range(trees):
        grow(tree, 0, depth)
    return dict(out)


def samples(rows: int = 40, features: int = 3) -> np.ndarray:
    x = np.round(RNG.uniform(-1, 1, (rows, features)), 1).astype(np.float32)
    x[RNG.random(x.shape) < 0.1] = NAN
    return x


def regressor(aggregate: str = "SUM", targets: int = 1, kinds: tuple[str, ...] = MODES[:1],
              **attrs: object) -> Run:
    return ml("TreeEnsembleRegressor", samples(), aggregate_function=aggregate,
              n_targets=targets, **forest("target", 7, list(range(targets)), kinds=kinds),
              **attrs)


def classifier(outputs: list[int], labels: int, positive: bool = False, **attrs: object) -> Run:
    return ml("TreeEnsembleClassifier", samples(), 2, classlabels_int64s=list(range(labels)),
              **forest("class", 5, outputs, positive=positive), **attrs)


TREES = {
    **{f"regressor {a} of {n}": regressor(a, n) for a in ("SUM", "AVERAGE", "MIN", "MAX")
       for n in (1, 3)},
    **{f"regressor {k}": regressor(kinds=(k,)) for k in MODES},
    "regressor of all kinds": regressor(kinds=MODES),
    "regressor base": regressor("AVERAGE", 2, base_values=[0.5, -0.25], post_transform="SOFTMAX"),
    "regressor of doubles": ml("TreeEnsembleRegressor", samples().astype(np.float64),
                               n_targets=1, **forest("target", 3, [0])),
    "classifier of integers": ml("TreeEnsembleClassifier", RNG.integers(-1, 2, (9, 3)), 2,
                                 classlabels_strings=["a", "b", "c"],
                                 **forest("class", 3, [0, 1, 2])),
    "regressor of a vector": ml("TreeEnsembleRegressor", samples(1), n_targets=2,
                                **forest("target", 3, [0, 1])),
    **{f"classifier {t}": classifier([0, 1, 2], 3, post_transform=t) for t in TRANSFORMS[:3]},
    "classifier base": classifier([0, 1, 2], 3, base_values=[0.5, 0.25, 0.0]),
    "classifier of one weighed class": classifier([0], 2),
    "classifier of one probability": classifier([0], 2, positive=True),
    "classifier logistic": classifier([0], 2, post_transform="LOGISTIC", base_values=[0.1]),
    "classifier of the second class": classifier([1], 2),
}
ALL = FEATURES | LINEAR | VECTORS | TREES


@pytest.mark.parametrize("name", ALL)
def test_as_onnx_runtime(name: str) -> None:
    check(ALL[name])


def test_trees_of_version_5_with_sets() -> None:
    """A member node, then comparisons; the same answers from ONNX Runtime."""
    sets = numpy_helper.from_array(np.array([1.2, 3.7, 8.0, 9.0, NAN, 12.0, 7.0, NAN],
                                            np.float32))
    attrs = {
        "n_targets": 4, "tree_roots": [0], "nodes_featureids": [0, 0, 0],
        "nodes_modes": numpy_helper.from_array(np.array([0, 6, 6], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([11.0, 232344.0, NAN], np.float32)),
        "nodes_truenodeids": [1, 0, 1], "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 2, 3], "nodes_falseleafs": [0, 1, 1],
        "leaf_targetids": [0, 1, 2, 3], "membership_values": sets,
        "leaf_weights": numpy_helper.from_array(np.array([1.0, 10.0, 100.0, 1000.0], np.float32))}
    x = np.array([[1.2], [3.4], [NAN], [12.0], [7.0], [15.0]], np.float32)
    check(ml("TreeEnsemble", x, version=5, **attrs))


def maps(op: str, kind: int, key: int, **attrs: object) -> onnx.ModelProto:
    info = onnx.ValueInfoProto(name="x")
    info.type.map_type.key_type = key
    info.type.map_type.value_type.tensor_type.elem_type = kind
    node = helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)])


CASTS = [{"cast_to": c, **f} for c in ("TO_FLOAT", "TO_INT64", "TO_STRING")
         for f in ({"map_form": "DENSE"}, {"map_form": "SPARSE", "max_map": 5})]


@pytest.mark.parametrize("attrs", CASTS, ids=lambda a: " ".join(map(str, a.values())))
def test_cast_map(attrs: Mapping[str, Any]) -> None:
    same_maps(maps("CastMap", TensorProto.FLOAT, TensorProto.INT64, **attrs), {3: 2.5, 1: -1.25})


def test_dict_vectorizer() -> None:
    model = maps("DictVectorizer", TensorProto.FLOAT, TensorProto.STRING,
                 string_vocabulary=["b", "c", "a"])
    same_maps(model, {"a": 2.5, "b": -1.0})


def same_maps(model: onnx.ModelProto, x: Mapping[Any, float]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    want = np.asarray(session.run(None, {"x": x})[0])
    given = {k: np.float32(v) for k, v in x.items()}
    (found,) = treadle.load(model).compile(device="reference")({"x": given}).values()
    assert want.tolist() == found.tolist() and want.shape == found.shape


def test_zipmap() -> None:
    run = ml("ZipMap", np.array([[0.5, 0.25], [1.0, 0.0]], np.float32),
             classlabels_strings=["no", "yes"])
    (found,) = treadle.load(run.model()).compile(device="reference")(run.feeds()).values()
    assert found == [{"no": 0.5, "yes": 0.25}, {"no": 1.0, "yes": 0.0}]


def test_damaged_trees_are_refused() -> None:
    attrs = forest("target", 2, [0])
    attrs["nodes_truenodeids"][0] = 99
    with pytest.raises(TreadleError, match="names the node"):
        treadle.load(ml("TreeEnsembleRegressor", samples(), n_targets=1, **attrs).model()).compile(
            device="reference")
