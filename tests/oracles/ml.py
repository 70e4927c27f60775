"""Operators of ai.onnx.ml by ONNX Runtime."""

from __future__ import annotations

import numpy as np

from . import ort

DOMAIN = "ai.onnx.ml"


def _run(op: str, inputs: list[np.ndarray], *, outputs: int = 1, ml: int = 3, **attrs: object
         ) -> list[np.ndarray]:
    return ort.run(op, inputs, attrs, outputs=outputs, domain=DOMAIN, ml=ml)


def _identity(x: np.ndarray, transform: str) -> list[np.ndarray]:
    """A transform alone: the scores of an identity matrix."""
    width = x.shape[-1]
    return _run("LinearRegressor", [x], coefficients=np.eye(width).ravel().tolist(),
                intercepts=[0.0] * width, targets=width, post_transform=transform)


def probit(x: np.ndarray) -> list[np.ndarray]:
    return [_identity(x[None], "PROBIT")[0][0]]


def softmax_zero(x: np.ndarray) -> list[np.ndarray]:
    return _identity(x, "SOFTMAX_ZERO")


def linear_regressor(x: np.ndarray, coefficients: np.ndarray, *,
                     intercepts: np.ndarray | None = None, transform: str = "NONE"
                     ) -> list[np.ndarray]:
    return _run("LinearRegressor", [x], coefficients=coefficients.ravel().tolist(),
                intercepts=None if intercepts is None else intercepts.tolist(),
                targets=len(coefficients), post_transform=transform)


def linear_classifier(x: np.ndarray, coefficients: np.ndarray, *, intercepts: np.ndarray,
                      transform: str = "NONE") -> list[np.ndarray]:
    return _run("LinearClassifier", [x], outputs=2, coefficients=coefficients.ravel().tolist(),
                intercepts=intercepts.tolist(), post_transform=transform,
                classlabels_ints=list(range(max(2, len(coefficients)))))


def svm_kernel(x: np.ndarray, vectors: np.ndarray, *, kernel: str, gamma: float, coef0: float,
               degree: float) -> list[np.ndarray]:
    columns = [svm_regressor(x, np.eye(len(vectors))[i], np.zeros(1), vectors=vectors,
                             kernel=kernel, gamma=gamma, coef0=coef0, degree=degree)[0]
               for i in range(len(vectors))]
    return [np.concatenate(columns, 1)]


def svm_regressor(x: np.ndarray, coefficients: np.ndarray, rho: np.ndarray, *,
                  vectors: np.ndarray | None = None, kernel: str = "LINEAR", gamma: float = 0.0,
                  coef0: float = 0.0, degree: float = 0.0, one_class: bool = False
                  ) -> list[np.ndarray]:
    return _run("SVMRegressor", [x], coefficients=coefficients.tolist(), rho=rho.tolist(),
                support_vectors=None if vectors is None else vectors.ravel().tolist(),
                n_supports=0 if vectors is None else len(vectors), kernel_type=kernel,
                kernel_params=[gamma, coef0, degree], one_class=int(one_class))


def svm_classifier(x: np.ndarray, coefficients: np.ndarray, rho: np.ndarray, *,
                   vectors: np.ndarray | None = None, prob_a: np.ndarray | None = None,
                   prob_b: np.ndarray | None = None, per_class: tuple[int, ...] = (),
                   kernel: str = "LINEAR", gamma: float = 0.0, coef0: float = 0.0,
                   degree: float = 0.0, transform: str = "NONE") -> list[np.ndarray]:
    def flat(a: np.ndarray | None) -> list[float] | None:
        return None if a is None else a.ravel().tolist()

    classes = len(per_class) or len(coefficients)
    return _run("SVMClassifier", [x], outputs=2, coefficients=flat(coefficients),
                rho=flat(rho), support_vectors=flat(vectors), prob_a=flat(prob_a),
                prob_b=flat(prob_b), vectors_per_class=list(per_class) or None,
                kernel_type=kernel, kernel_params=[gamma, coef0, degree],
                post_transform=transform, classlabels_ints=list(range(classes)))


def couple_probabilities(r: np.ndarray) -> list[np.ndarray]:
    """Pairs that Platt's sigmoid turns into r: the only support vector is 1, rho the logit."""
    classes = r.shape[1]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    rows = []
    for one in r:
        logit = [float(np.log(one[i, j] / one[j, i])) for i, j in pairs]
        zeros = np.zeros((classes - 1, classes), np.float32)
        rows.append(svm_classifier(
            np.ones((1, 1), np.float32), zeros, np.array(logit, np.float32),
            vectors=np.zeros((classes, 1), np.float32), per_class=(1,) * classes,
            prob_a=np.full(len(pairs), -1, np.float32),
            prob_b=np.zeros(len(pairs), np.float32))[1][0])
    return [np.stack(rows)]


KINDS = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _trees(operands: tuple[np.ndarray, ...], what: str) -> dict[str, object]:
    """The attributes of version 3 for tables as our operators take them."""
    feature, split, yes, no, mode, missing, roots, target, weight = operands
    out: dict[str, list[object]] = {k: [] for k in (
        "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes",
        "nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true",
        f"{what}_treeids", f"{what}_nodeids", f"{what}_ids", f"{what}_weights")}

    def visit(tree: int, at: int, number: int) -> int:
        """Write the node or leaf `at` as `number`; the next free number."""
        rows = len(out["nodes_nodeids"])
        row = [0, 0.0, "LEAF", 0, 0, 0] if at < 0 else [
            int(feature[at]), float(split[at]), KINDS[mode[at]], number + 1, 0, int(missing[at])]
        for key, value in zip(("nodes_treeids", "nodes_nodeids", "nodes_featureids",
                               "nodes_values", "nodes_modes", "nodes_truenodeids",
                               "nodes_falsenodeids", "nodes_missing_value_tracks_true"),
                              [tree, number, *row], strict=True):
            out[key].append(value)
        if at < 0:
            for t, w in zip(target[-1 - at], weight[-1 - at], strict=True):
                for key, value in zip(("treeids", "nodeids", "ids", "weights"),
                                      (tree, number, int(t), float(w)), strict=True):
                    out[f"{what}_{key}"].append(value)
            return number + 1
        after = visit(tree, int(yes[at]), number + 1)
        out["nodes_falsenodeids"][rows] = after
        return visit(tree, int(no[at]), after)

    for tree, root in enumerate(roots):
        visit(tree, int(root), 0)
    return dict(out)


def tree_ensemble(x: np.ndarray, *operands: np.ndarray, base: np.ndarray | None = None,
                  targets: int, aggregate: str = "SUM", transform: str = "NONE"
                  ) -> list[np.ndarray]:
    return _run("TreeEnsembleRegressor", [x], n_targets=targets, aggregate_function=aggregate,
                post_transform=transform, base_values=None if base is None else base.tolist(),
                **_trees(operands, "target"))


def tree_scores(x: np.ndarray, *operands: np.ndarray, outputs: int, aggregate: str
                ) -> list[np.ndarray]:
    """The scores; a leaf gave one where the smallest shift of all weights moves it."""
    scores = tree_ensemble(x, *operands, targets=outputs, aggregate=aggregate)[0]
    moved = tree_ensemble(x, *operands[:-1], operands[-1] + 1, targets=outputs,
                          aggregate=aggregate)[0]
    return [scores, moved != scores]


def tree_classifier(x: np.ndarray, *operands: np.ndarray, base: np.ndarray | None = None,
                    classes: int, level: float | None = None, transform: str = "NONE"
                    ) -> list[np.ndarray]:
    return _run("TreeEnsembleClassifier", [x], outputs=2, post_transform=transform,
                base_values=None if base is None else base.tolist(),
                classlabels_int64s=list(range(max(classes, 2))), **_trees(operands, "class"))


def scaler(x: np.ndarray, offset: np.ndarray, scale: np.ndarray) -> list[np.ndarray]:
    full = [np.broadcast_to(a, x.shape[-1:]).tolist() for a in (offset, scale)]
    return _run("Scaler", [x], offset=full[0], scale=full[1])


def normalizer(x: np.ndarray, *, norm: str) -> list[np.ndarray]:
    return _run("Normalizer", [x], norm=norm)


def imputer(x: np.ndarray, imputed: np.ndarray, *, replaced: float) -> list[np.ndarray]:
    whole = x.dtype == np.int64
    kind, value = ("int64", int(replaced)) if whole else ("float", replaced)
    return _run("Imputer", [x], **{f"imputed_value_{kind}s": imputed.tolist(),
                                   f"replaced_value_{kind}": value})


def feature_vectorizer(*xs: np.ndarray, widths: tuple[int, ...]) -> list[np.ndarray]:
    return _run("FeatureVectorizer", list(xs), inputdimensions=widths)


def array_feature_extractor(x: np.ndarray, indices: np.ndarray) -> list[np.ndarray]:
    return _run("ArrayFeatureExtractor", [x, indices])


def label_encoder(x: np.ndarray, keys: np.ndarray, values: np.ndarray, default: np.ndarray
                  ) -> list[np.ndarray]:
    return _run("LabelEncoder", [x], ml=4, keys_floats=keys.tolist(), values_floats=values.tolist(),
                default_float=float(default))


def one_hot_encoder(x: np.ndarray, categories: np.ndarray, *, strict: bool = False
                    ) -> list[np.ndarray]:
    kind = "strings" if categories.dtype == object else "int64s"
    return _run("OneHotEncoder", [x], zeros=int(not strict),
                **{f"cats_{kind}": categories.tolist()})
