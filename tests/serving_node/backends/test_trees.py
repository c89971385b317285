"""The trees backend against XGBoost and LightGBM called directly: sums of leaves to the last bit."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt
import pytest
import xgboost
from hypothesis import given
from hypothesis import strategies as st

from serving_node.backends.trees.forest import Forest, Tree
from serving_node.backends.trees.lightgbm_file import read_lightgbm
from serving_node.backends.trees.predictor import identity
from serving_node.backends.trees.ubjson import parse
from serving_node.backends.trees.xgboost_file import read_xgboost
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor
from tests.serving_node.backends.model_calls import arrays, infer, load

_generator = np.random.default_rng(0)
ROWS = _generator.normal(size=(300, 5)).astype(np.float32)
NUMBER = ROWS[:, 0] * 2 + ROWS[:, 1]
# values left out, and values that are 0
ASKED = np.where(_generator.random((500, 5)) < 0.1, np.nan, _generator.normal(size=(500, 5)))
ASKED = np.where(_generator.random((500, 5)) < 0.1, 0, ASKED).astype(np.float32)


def wanted(objective: str) -> Any:
    if "multi" in objective:
        return np.digitize(ROWS[:, 0], [-0.5, 0.5])
    if objective.startswith(("binary", "rank", "reg:logistic", "lambdarank", "cross_entropy")):
        return (ROWS[:, 0] > 0).astype(int)
    return np.abs(NUMBER) + 0.1


def boosted(path: Path, objective: str = "reg:squarederror", **options: Any) -> xgboost.Booster:
    with_holes = np.where(_generator.random(ROWS.shape) < 0.1, np.nan, ROWS)
    classes = {"num_class": 3} if objective.startswith("multi") else {}
    data = xgboost.DMatrix(with_holes, label=wanted(objective))
    booster = xgboost.train({"objective": objective, "nthread": 1, **classes, **options}, data, 8)
    booster.save_model(path)
    return booster


def light(path: Path, objective: str = "regression", rows: Any = ROWS, **options: Any) -> lightgbm.Booster:
    parameters = {"objective": objective, "num_leaves": 15, "verbose": -1, "num_threads": 1, **options}
    if "multi" in objective:
        parameters["num_class"] = 3
    group = [100, 200] if objective == "lambdarank" else None
    booster = lightgbm.train(parameters, lightgbm.Dataset(rows, label=wanted(objective), group=group), 8)
    booster.save_model(path)
    return lightgbm.Booster(model_file=path)


with tempfile.TemporaryDirectory() as _folder:
    boosted(Path(_folder, "model.ubj"), max_depth=2)
    BINARY = Path(_folder, "model.ubj").read_bytes()


def shaped(answers: npt.NDArray[Any], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return answers[:, -1] if like.ndim == 1 else answers


@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("binary:logistic", {}),
        ("binary:logitraw", {}),
        ("multi:softprob", {}),
        ("reg:squarederror", {"max_depth": 9}),
        ("reg:squarederror", {"booster": "dart", "rate_drop": 0.5}),
        ("reg:squarederror", {"num_parallel_tree": 3}),
        ("reg:logistic", {}),
        ("rank:pairwise", {}),
        ("count:poisson", {}),
        ("survival:cox", {}),
    ],
)
def test_xgboost_to_the_last_bit_before_the_link_and_nearly_after_it(
    tmp_path: Path, objective: str, options: dict[str, Any]
) -> None:
    path = tmp_path / "model.json"
    booster = boosted(path, objective, **options)
    predictor = read_xgboost(path)
    rows = xgboost.DMatrix(ASKED)
    margins = booster.predict(rows, output_margin=True)
    bare = dataclasses.replace(predictor, link=identity, labels=False)
    np.testing.assert_array_equal(shaped(bare.predict(ASKED), margins), margins)
    answers = booster.predict(rows)
    np.testing.assert_allclose(shaped(predictor.predict(ASKED), answers), answers, rtol=1e-6)


@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("binary", {}),
        ("multiclass", {}),
        ("multiclassova", {}),
        ("regression", {}),
        ("regression", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
        ("regression", {"boosting": "dart"}),
        ("regression", {"min_data_in_leaf": 1000}),
        ("regression", {"zero_as_missing": True, "hole": 0.0}),
        ("regression", {"hole": np.nan}),
        ("regression", {"hole": 0.0}),
        ("poisson", {}),
        ("cross_entropy", {}),
        ("lambdarank", {}),
    ],
)
def test_lightgbm_to_the_last_bit_before_the_link_and_nearly_after_it(
    tmp_path: Path, objective: str, options: dict[str, Any]
) -> None:
    options = dict(options)
    hole = options.pop("hole", None)
    rows = ROWS if hole is None else np.where(_generator.random(ROWS.shape) < 0.2, hole, ROWS)
    path = tmp_path / "model.txt"
    booster = light(path, objective, rows, **options)
    predictor = read_lightgbm(path)
    margins = np.asarray(booster.predict(ASKED, raw_score=True))
    bare = dataclasses.replace(predictor, link=identity, labels=False, divisor=1)
    np.testing.assert_array_equal(shaped(bare.predict(ASKED), margins), margins)
    answers = np.asarray(booster.predict(ASKED))
    np.testing.assert_allclose(shaped(predictor.predict(ASKED), answers), answers, rtol=1e-14)


@pytest.mark.parametrize("counts", [[1], [7], [8], [1, 3, 4]])
@pytest.mark.parametrize("name", ["model.json", "model.txt", "classes.json"])
async def test_served_as_the_library_answers(tmp_path: Path, name: str, counts: list[int]) -> None:
    config = 'backend: "trees" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 1000 }'
    if name == "classes.json":
        booster: Any = boosted(tmp_path / name, "multi:softprob")
        config += ' default_model_filename: "classes.json"'
    else:
        booster = boosted(tmp_path / name) if name.endswith("json") else light(tmp_path / name)
    model = await load(tmp_path, config)
    parts = np.split(ASKED[: sum(counts)], np.cumsum(counts)[:-1])
    responses = await infer(model, *([Tensor.from_numpy("input", part, "FP32")] for part in parts))
    for part, response in zip(parts, responses, strict=True):
        found = arrays(response)
        answers = booster.predict(part if name.endswith("txt") else xgboost.DMatrix(part))
        if name == "classes.json":
            np.testing.assert_array_equal(found["label"].reshape(-1), answers.argmax(axis=1))
            np.testing.assert_allclose(found["probabilities"], answers, rtol=1e-6)
        else:
            np.testing.assert_array_equal(found["variable"], answers.astype(np.float32).reshape(-1, 1))
    await model.close()


async def test_outputs_that_nobody_asks_for_are_left_out(tmp_path: Path) -> None:
    boosted(tmp_path / "model.json", "binary:logistic")
    model = await load(tmp_path, 'backend: "trees" max_batch_size: 8')
    (response,) = await infer(model, [Tensor.from_numpy("input", ASKED[:2], "FP32")], outputs=("label",))
    assert list(arrays(response)) == ["label"]
    await model.close()


def document(path: Path) -> dict[str, Any]:
    boosted(path)
    return dict(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda one: one["learner"]["objective"].update(name="binary:hinge"), "objective 'binary:hinge'"),
        (lambda one: one["learner"]["gradient_booster"].update(name="gblinear"), "booster 'gblinear'"),
        (lambda one: one["learner"]["learner_model_param"].update(num_target="2"), "several targets"),
        (lambda one: tree(one).update(categories=[1]), "splits on categories"),
        (lambda one: tree(one)["left_children"].__setitem__(0, 0), "do not make a tree"),
        (lambda one: tree(one)["left_children"].__setitem__(0, 10**6), "do not make a tree"),
        (lambda one: tree(one)["split_indices"].__setitem__(0, 5), "a feature that there is not"),
        (lambda one: tree(one)["split_conditions"].pop(), "as many parts"),
        (lambda one: one["learner"]["gradient_booster"]["model"]["tree_info"].pop(), "tree_info does not fit"),
        (lambda one: one["learner"]["learner_model_param"].update(num_feature="-1"), "num_feature"),
        (lambda one: one["learner"]["learner_model_param"].update(base_score="[NaN]"), "base_score has no margin"),
        (lambda one: one.pop("learner"), "KeyError 'learner'"),
        (lambda one: one.update(learner=[]), "TypeError"),
    ],
)
def test_what_is_damaged_or_not_served_is_said(tmp_path: Path, change: Any, sentence: str) -> None:
    path = tmp_path / "model.json"
    content = document(path)
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(InferenceError, match=sentence):
        read_xgboost(path)


def tree(content: dict[str, Any]) -> Any:
    return content["learner"]["gradient_booster"]["model"]["trees"][0]


@pytest.mark.parametrize("options", [{}, {"booster": "dart"}, {"objective": "multi:softprob"}])
def test_binary_json_is_the_same_model(tmp_path: Path, options: dict[str, Any]) -> None:
    booster = boosted(tmp_path / "model.json", **options)
    booster.save_model(tmp_path / "model.ubj")
    first, second = (read_xgboost(tmp_path / name) for name in ("model.json", "model.ubj"))
    np.testing.assert_array_equal(first.predict(ASKED), second.predict(ASKED))


@given(st.binary(max_size=60), st.integers(0, 3000), st.integers(0, 3000))
def test_damaged_binary_json_is_refused_and_nothing_else_happens(noise: bytes, start: int, end: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ubj")
        path.write_bytes(BINARY[:start] + noise + BINARY[end:])
        with contextlib.suppress(InferenceError):
            read_xgboost(path)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"{U\x01ai\x05U\x01b[TFZ]}", {"a": 5, "b": [True, False, None]}),
        (b"[#U\x02SU\x02hiL\0\0\0\0\0\0\0\x07", ["hi", 7]),
        (b"D\x3f\xf8\0\0\0\0\0\0", 1.5),
        (b"{}", {}),
    ],
)
def test_binary_json(content: bytes, value: Any) -> None:
    assert parse(content) == value
    for end in range(len(content)):
        with pytest.raises(ValueError, match="ends too early"):
            parse(content[:end])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"[" * 100, "nested too deep"),
        (b"x", "unknown type"),
        (b"[$S#U\x01", "unknown type"),
        (b"SD\0\0\0\0\0\0\0\0", "no whole number"),
        (b"Si\xff", "ends too early"),
        (b"[$d#L\x7f\xff\xff\xff\xff\xff\xff\xff", "ends too early"),
        (b"TT", "more after the end"),
    ],
)
def test_binary_json_that_is_none_is_refused(content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse(content)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_cut_files_are_refused(tmp_path: Path, part: float) -> None:
    boosted(tmp_path / "model.json")
    light(tmp_path / "model.txt")
    for name, read in (("model.json", read_xgboost), ("model.txt", read_lightgbm)):
        content = (tmp_path / name).read_bytes()
        end = content.find(b"\nend of trees") if name == "model.txt" else len(content)
        (tmp_path / name).write_bytes(content[: int(part * end)])
        with pytest.raises(InferenceError, match=r"is no model of .*, or damaged"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("objective=regression", "objective=custom", "objective 'custom'"),
        ("num_cat=0", "num_cat=1", "splits on categories"),
        ("is_linear=0", "is_linear=1", "linear trees"),
        ("\nnum_leaves=", "\nnum_leaves=9", "another number of leaves"),
        ("left_child=", "left_child=9 ", "another number of splits"),
        ("max_feature_idx=4", "max_feature_idx=0", "a feature that there is not"),
    ],
)
def test_text_that_is_damaged_or_not_served_is_said(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = tmp_path / "model.txt"
    light(path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InferenceError, match=sentence):
        read_lightgbm(path)


async def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match=r"has no file model\.json or model\.ubj or model\.txt"):
        await load(tmp_path, 'backend: "trees"')


numbers = st.integers(-3, 6)


@given(st.lists(st.tuples(numbers, numbers, numbers, st.floats(-2, 2), st.booleans()), max_size=6))
def test_any_nodes_are_walked_to_a_leaf_or_refused(nodes: list[tuple[int, int, int, float, bool]]) -> None:
    columns = list(zip(*nodes, strict=True)) or [()] * 5
    left, right, feature = (np.array(column, np.int32) for column in columns[:3])
    value = np.array(columns[3], np.float32)
    made = Tree(feature, value, left, right, np.array(columns[4], np.bool_), value)
    try:
        forest = Forest([made], 3, or_equal=False)
    except InferenceError:
        return
    reached = forest.leaves(np.array([[0.5, np.nan, -1]], np.float32))
    assert reached.shape == (1, 1)
    assert reached[0, 0] in value[left < 0]
