"""Estimators of scikit-learn, fitted here and written by skl2onnx."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from tests.wild.subject import Subjects

SKLEARN = Subjects("skl2onnx")

FEATURES = 6
ROWS = {"X": (4, FEATURES)}
"""skl2onnx leaves the first dimension dynamic, without a name; where no shape is given, it becomes 1."""

TEXTS = (
    "the device runs the graph",
    "a graph falls back to the host",
    "bytes are copied to the device",
    "the host waits for bytes",
    "nothing falls back and nothing waits",
    "the plan counts every copy",
)


def data(rows: int = 80, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return features in float32 and classes that depend on them."""
    generator = np.random.default_rng(3)
    features = generator.normal(size=(rows, FEATURES)).astype(np.float32)
    scores = features @ generator.normal(size=(FEATURES, classes))
    return features, scores.argmax(axis=1).astype(np.int64)


def written(
    estimator: Any,
    *,
    opset: int | None = None,
    options: Any = None,
    types: Sequence[tuple[str, Any]] | None = None,
) -> onnx.ModelProto:
    """Return what skl2onnx makes of a fitted estimator.

    Args:
        estimator: Of scikit-learn.
        opset: Of the default domain; skl2onnx's newest where None.
        options: Of skl2onnx, for this estimator.
        types: Names and types of inputs; float32 features where None.
    """
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType

    model: onnx.ModelProto = to_onnx(
        estimator,
        initial_types=list(types or [("X", FloatTensorType([None, FEATURES]))]),
        target_opset=None if opset is None else {"": opset, "ai.onnx.ml": 3},
        options=_by_identity(estimator, options),
    )
    return model


def _by_identity(estimator: Any, options: Any) -> Any:
    """Return options as skl2onnx takes them, by estimator: those that are not are for the whole."""
    whole = options is not None and all(isinstance(name, str) for name in options)
    return {id(estimator): options} if whole else options


def _classifier(
    make: Callable[[], Any], classes: int, opset: int | None, options: Any
) -> onnx.ModelProto:
    return written(make().fit(*data(classes=classes)), opset=opset, options=options)


def _regressor(make: Callable[[], Any], opset: int | None) -> onnx.ModelProto:
    features, _ = data()
    return written(make().fit(features, features[:, 0] * 2 + np.sin(features[:, 1])), opset=opset)


def _transformer(make: Callable[[], Any]) -> onnx.ModelProto:
    features, _ = data()
    return written(make().fit(features))


def _made(path: str, **arguments: Any) -> Callable[[], Any]:
    """Return a constructor that imports its class on first use."""
    module, _, name = path.rpartition(".")

    def make() -> Any:
        import importlib

        return getattr(importlib.import_module(f"sklearn.{module}"), name)(**arguments)

    return make


def _classify(
    name: str,
    path: str,
    *,
    classes: int = 3,
    opset: int | None = None,
    options: Any = {"zipmap": False},  # noqa: B006  never changed
    **arguments: Any,
) -> None:
    make = _made(path, **arguments)
    SKLEARN.add(name, functools.partial(_classifier, make, classes, opset, options), shapes=ROWS)


def _regress(name: str, path: str, *, opset: int | None = None, **arguments: Any) -> None:
    SKLEARN.add(name, functools.partial(_regressor, _made(path, **arguments), opset))


def _transform(name: str, path: str, **arguments: Any) -> None:
    SKLEARN.add(name, functools.partial(_transformer, _made(path, **arguments)))


_regress("linear_regression", "linear_model.LinearRegression")
_regress("elastic_net-opset12", "linear_model.ElasticNet", opset=12, alpha=0.1)
_regress("svr", "svm.SVR")
_regress("mlp_regressor", "neural_network.MLPRegressor", max_iter=60, random_state=0)
_regress(
    "random_forest_regressor",
    "ensemble.RandomForestRegressor",
    n_estimators=5,
    max_depth=4,
    random_state=0,
)
_regress(
    "gradient_boosting_regressor",
    "ensemble.GradientBoostingRegressor",
    n_estimators=6,
    random_state=0,
)
_regress("knn_regressor", "neighbors.KNeighborsRegressor")
_regress("gaussian_process", "gaussian_process.GaussianProcessRegressor")
_classify("logistic_regression-zipmap", "linear_model.LogisticRegression", options=None)
_classify(
    "logistic_regression-columns", "linear_model.LogisticRegression", options={"zipmap": "columns"}
)
_classify(
    "logistic_regression-two_classes-opset11",
    "linear_model.LogisticRegression",
    classes=2,
    opset=11,
)
_classify("linear_svc", "svm.LinearSVC", options=None)
_classify("svc-rbf", "svm.SVC")
_classify("decision_tree", "tree.DecisionTreeClassifier", max_depth=4, random_state=0)
_classify(
    "random_forest", "ensemble.RandomForestClassifier", n_estimators=5, max_depth=4, random_state=0
)
_classify(
    "extra_trees-opset15",
    "ensemble.ExtraTreesClassifier",
    opset=15,
    n_estimators=5,
    max_depth=4,
    random_state=0,
)
_classify(
    "gradient_boosting", "ensemble.GradientBoostingClassifier", n_estimators=4, random_state=0
)
_classify("ada_boost", "ensemble.AdaBoostClassifier", n_estimators=4, random_state=0)
_classify("knn", "neighbors.KNeighborsClassifier", n_neighbors=3)
_classify("gaussian_nb", "naive_bayes.GaussianNB")
_classify("mlp", "neural_network.MLPClassifier", max_iter=60, random_state=0)
_classify("lda", "discriminant_analysis.LinearDiscriminantAnalysis")
_transform("standard_scaler", "preprocessing.StandardScaler")
_transform("robust_scaler", "preprocessing.RobustScaler")
_transform("normalizer", "preprocessing.Normalizer")
_transform("polynomial_features", "preprocessing.PolynomialFeatures", degree=2)
_transform("pca", "decomposition.PCA", n_components=3)
_transform(
    "kbins",
    "preprocessing.KBinsDiscretizer",
    n_bins=4,
    encode="onehot-dense",
    quantile_method="linear",
)
_transform("kmeans", "cluster.KMeans", n_clusters=4, n_init=1, random_state=0)


def _imputed_pipeline() -> onnx.ModelProto:
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    features, classes = data()
    features[::7, 2] = np.nan
    pipeline = make_pipeline(SimpleImputer(), MinMaxScaler(), LogisticRegression())
    return written(pipeline.fit(features, classes), options={"zipmap": False})


def _mixed_columns() -> onnx.ModelProto:
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers, classes = data(60)
    colours = np.array(["red", "green", "blue"])[np.arange(60) % 3]
    table = np.concatenate([numbers.astype(object), colours[:, None].astype(object)], axis=1)
    encoder = ColumnTransformer(
        [
            ("numbers", StandardScaler(), list(range(FEATURES))),
            ("colour", OneHotEncoder(handle_unknown="ignore"), [FEATURES]),
        ]
    )
    forest = RandomForestClassifier(n_estimators=4, max_depth=3, random_state=0)
    types = [
        ("numbers", FloatTensorType([None, FEATURES])),
        ("colour", StringTensorType([None, 1])),
    ]
    pipeline = make_pipeline(encoder, forest).fit(table, classes)
    return written(pipeline, types=types, options={"zipmap": False})


def _mixed_inputs() -> dict[str, Any]:
    numbers, _ = data(4)
    colour = np.array([["red"], ["blue"], ["green"], ["violet"]], dtype=object)
    return {"numbers": numbers, "colour": colour}


def _tfidf() -> onnx.ModelProto:
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    pipeline = make_pipeline(TfidfVectorizer(token_pattern="[a-z]+"), LogisticRegression())
    pipeline.fit(TEXTS, [0, 1, 0, 1, 1, 0])
    return written(
        pipeline,
        types=[("text", StringTensorType([None, 1]))],
        # The default is en_US, which not every machine has.
        options={id(pipeline): {"zipmap": False}, id(pipeline[0]): {"locale": "C"}},
    )


def _texts() -> dict[str, Any]:
    return {"text": np.array([[text] for text in TEXTS[:4]], dtype=object)}


def _integer_one_hot() -> onnx.ModelProto:
    from skl2onnx.common.data_types import Int64TensorType
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    codes = np.random.default_rng(5).integers(0, 4, size=(60, 3))
    encoder = OneHotEncoder(handle_unknown="ignore")
    pipeline = make_pipeline(encoder, SGDClassifier(loss="log_loss", random_state=0))
    pipeline.fit(codes, codes.sum(axis=1) % 2)
    return written(
        pipeline, types=[("codes", Int64TensorType([None, 3]))], options={"zipmap": False}
    )


def _isolation_forest() -> onnx.ModelProto:
    from sklearn.ensemble import IsolationForest

    forest = IsolationForest(n_estimators=5, max_samples=16, random_state=0)
    return written(forest.fit(data()[0]), opset=17)


def _voting() -> onnx.ModelProto:
    from sklearn.ensemble import VotingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    members = [
        ("linear", LogisticRegression()),
        ("bayes", GaussianNB()),
        ("tree", DecisionTreeClassifier(max_depth=3, random_state=0)),
    ]
    voting = VotingClassifier(members, voting="soft", flatten_transform=False).fit(*data())
    return written(voting, options={"zipmap": False})


SKLEARN.add("imputer-scaler-logistic_regression", _imputed_pipeline)
SKLEARN.add(
    "columns-one_hot-random_forest",
    _mixed_columns,
    shapes={"numbers": (4, FEATURES), "colour": (4, 1)},
    inputs=_mixed_inputs,
)
SKLEARN.add("tfidf-logistic_regression", _tfidf, shapes={"text": (4, 1)}, inputs=_texts)
SKLEARN.add("one_hot_of_integers-sgd", _integer_one_hot, shapes={"codes": (4, 3)})
SKLEARN.add("isolation_forest-opset17", _isolation_forest)
SKLEARN.add("voting", _voting)
