"""The pure parts: names and places, parameters, kinds of files, sentences."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.backends.pytorch.failures import load_sentence, run_sentence
from serving_node.backends.pytorch.formats import Format, archive_format, file_format, find_model
from serving_node.backends.pytorch.naming import Side, input_places, output_places
from serving_node.backends.pytorch.settings import graph_sizes, torch_settings
from serving_node.contract.model_config import ModelConfig, parse_pbtxt
from serving_node.contract.model_config.platforms import fill_backend
from serving_node.core.backend import ModelSource
from serving_node.core.errors import InferenceError


def config_with(*inputs: str, outputs: tuple[str, ...] = (), more: str = "") -> ModelConfig:
    text = " ".join(f'input {{ name: "{name}" }}' for name in inputs)
    text += " ".join(f'output {{ name: "{name}" }}' for name in outputs)
    return parse_pbtxt(f'name: "m" {text} {more}')


def with_parameters(**values: str) -> ModelConfig:
    config = ModelConfig(name="m")
    for name, value in values.items():
        config.parameters[name].string_value = value
    return config


FORWARD = Side({"ids": 0, "mask": 1}, 2, 1)


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (("ids", "mask"), [0, 1]),
        (("mask", "ids"), [1, 0]),
        (("INPUT__1", "INPUT__0"), [1, 0]),
        (("ids", "x__1"), [0, 1]),
        (("a", "b"), [0, 1]),
        (("a__0b", "b"), [0, 1]),  # no number after the underscores
        (("__1", "__0"), [1, 0]),
        (("mask",), [1]),
    ],
)
def test_places_of_inputs(names: tuple[str, ...], places: list[int]) -> None:
    assert input_places(config_with(*names), FORWARD) == dict(zip(names, places, strict=True))


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ((), "unable to load model 'm', configuration expects 0 inputs, model provides 2"),
        (("a", "b", "c"), "configuration expects 3 inputs, model provides 2"),
        (("ids", "x__0"), "inputs 'ids' and 'x__0' of model 'm' are the same argument of the model"),
        (("x__0", "x__2"), "input 'x__2' of model 'm' is argument 2, but the model has 2 arguments"),
    ],
)
def test_inputs_that_do_not_fit(names: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(InferenceError) as caught:
        input_places(config_with(*names), FORWARD)
    assert sentence in caught.value.message


def test_what_the_server_adds_needs_a_place() -> None:
    control = """
        sequence_batching {{ control_input {{ name: "{}"
            control {{ kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] }} }} }}
    """
    assert input_places(config_with("a", more=control.format("START__1")), FORWARD) == {"a": 0, "START__1": 1}
    assert input_places(config_with("ids", more=control.format("mask")), FORWARD) == {"ids": 0, "mask": 1}
    with pytest.raises(InferenceError) as caught:
        input_places(config_with("ids", more=control.format("START")), FORWARD)
    assert caught.value.message == "input 'START' does not follow <name>__<index> naming convention."


@given(st.permutations(range(6)))
def test_indexed_names_mean_the_same_in_any_order(order: list[int]) -> None:
    names = [f"OUT__{place}" for place in order]
    found = output_places(config_with(outputs=tuple(names)), Side({}, 6))
    assert [found[name] for name in names] == order


@given(st.lists(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), min_size=1, unique=True))
def test_names_that_mean_nothing_are_taken_in_order(names: list[str]) -> None:
    assert list(output_places(config_with(outputs=tuple(names)), Side({}, None)).values()) == list(range(len(names)))


def test_settings_and_their_second_names() -> None:
    settings = torch_settings(
        with_parameters(
            NUM_THREADS="3",
            NUM_INTEROP_THREADS="2",
            INFERENCE_MODE="False",
            DISABLE_OPTIMIZED_EXECUTION="on",
            ENABLE_WEIGHT_SHARING="1",
            CACHE_CLEANING_ENABLED="true",
            DISABLE_CUDNN="true",
            ENABLE_JIT_PROFILING="off",
            TORCH_COMPILE_OPTIONAL_PARAMETERS='{"mode": "max-autotune"}',
            anything="else",
        ),
        instances=1,
    )
    assert (settings.intra_op_threads, settings.inter_op_threads) == (3, 2)
    assert (settings.inference_mode, settings.optimized, settings.shares_weights) == (False, False, True)
    assert (settings.cleans_cache, settings.cudnn) == (True, False)
    assert (settings.jit_profiling, settings.jit_executor, settings.tensor_fuser) == (False, None, None)
    assert settings.compile_options == {"mode": "max-autotune"}


def test_defaults() -> None:
    settings = torch_settings(ModelConfig(), instances=10_000)
    assert (settings.intra_op_threads, settings.inter_op_threads) == (1, 0)
    assert settings.inference_mode and settings.optimized and settings.cudnn
    assert not settings.shares_weights and not settings.cleans_cache and settings.compile_options is None
    assert torch_settings(with_parameters(INTRA_OP_THREAD_COUNT="-1"), instances=10_000).intra_op_threads == 1


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("INFERENCE_MODE", "maybe", "parameter 'INFERENCE_MODE': failed to convert 'maybe' to boolean"),
        ("NUM_THREADS", "two", "parameter 'NUM_THREADS': failed to convert 'two' to int number"),
        ("TORCH_COMPILE_OPTIONAL_PARAMETERS", "[1]", "it must be a JSON object with arguments of torch.compile"),
        ("TORCH_COMPILE_OPTIONAL_PARAMETERS", "{", "it must be a JSON object with arguments of torch.compile"),
        ("TORCH_COMPILE_OPTIONAL_PARAMETERS", '{"model": 1}', "'model' is not an optional parameter for"),
    ],
)
def test_bad_values_are_refused(name: str, value: str, sentence: str) -> None:
    with pytest.raises(InferenceError) as caught:
        torch_settings(with_parameters(**{name: value}), 1)
    assert sentence in caught.value.message


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("max_batch_size: 8", ()),
        ("max_batch_size: 8 optimization { cuda { graphs: true } }", (8,)),
        ("max_batch_size: 0 optimization { cuda { graphs: true } }", (0,)),
        (
            "max_batch_size: 8 dynamic_batching { preferred_batch_size: [8, 2] }"
            " optimization { cuda { graphs: true } }",
            (2, 8),
        ),
        (
            "max_batch_size: 8 optimization { cuda { graphs: true"
            " graph_spec { batch_size: 4 } graph_spec { batch_size: 1 } graph_spec { batch_size: 99 } } }",
            (1, 4),
        ),
    ],
)
def test_sizes_of_cuda_graphs(text: str, sizes: tuple[int, ...]) -> None:
    assert graph_sizes(parse_pbtxt(text)) == sizes


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        (["m/models/model.json", "m/data/weights/weight_0", "m/archive_format"], Format.EXPORTED),
        (["models/model.json", "archive_format"], Format.EXPORTED),
        (["serialized_exported_program.json", "version"], Format.EXPORTED),
        (["a/data/aotinductor/model/x.wrapper.so", "a/archive_format"], Format.PACKAGE),
        (["a/data/aotinductor/model/x.so", "a/models/model.json"], Format.PACKAGE),
        (["m/code/__torch__.py", "m/constants.pkl", "m/data.pkl"], Format.TORCHSCRIPT),
        (["m/data.pkl", "m/data/0", "m/version"], Format.WEIGHTS),
        (["readme.txt"], None),
        ([], None),
    ],
)
def test_kinds_of_archives(members: list[str], kind: Format | None) -> None:
    assert archive_format(members) is kind


def test_other_archives_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("readme.txt", "no model")
    with pytest.raises(InferenceError, match=r"'model.pt' is neither an exported program, an AOTInductor package nor"):
        file_format(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("config", "files", "found"),
    [
        ('platform: "pytorch_libtorch"', ["model.pt"], "model.pt"),
        ('backend: "pytorch"', ["model.pt2"], "model.pt2"),
        ('backend: "pytorch"', ["model.py", "model.safetensors"], "model.py"),
        ('backend: "pytorch" runtime: "model.py"', ["model.py", "model.pt"], "model.py"),
        ('backend: "pytorch" runtime: "model.py"', ["model.pt"], "model.pt"),
        ('backend: "pytorch" default_model_filename: "net.pt"', ["net.pt", "model.pt"], "net.pt"),
        ('backend: "pytorch" default_model_filename: "net.py"', ["net.py", "model.pt"], "net.py"),
    ],
)
def test_the_file_that_is_the_model(tmp_path: Path, config: str, files: list[str], found: str) -> None:
    for name in files:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("m/constants.pkl", "")
            archive.writestr("m/code/a.py", "")
    filled = parse_pbtxt(config)
    fill_backend(filled)
    assert find_model(ModelSource("m", 1, tmp_path, filled))[0].name == found


@pytest.mark.parametrize(
    ("filename", "sentence"),
    [
        ("net.pt", "unable to find 'net.pt' for model instance 'm'"),
        ("../model.pt", "model file '../model.pt' lies outside the version's folder"),
        ("", "unable to find 'model.pt2' for model instance 'm'"),
    ],
)
def test_a_file_that_is_not_there(tmp_path: Path, filename: str, sentence: str) -> None:
    config = ModelConfig(backend="pytorch", default_model_filename=filename)
    with pytest.raises(InferenceError) as caught:
        find_model(ModelSource("m", 1, tmp_path, config))
    assert caught.value.message == sentence


SCRIPT = """The following operation failed in the TorchScript interpreter.
Traceback of TorchScript, serialized code (most recent call last):
  File "code/__torch__.py", line 10, in forward
    return torch.linear(input, weight, bias)
           ~~~~~~~~~~~~ <--- HERE

Traceback of TorchScript, original code (most recent call last):
  File "/home/me/model.py", line 14, in forward
           ~~~~~~~~ <--- HERE
RuntimeError: mat1 and mat2 shapes cannot
 be multiplied
"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError(SCRIPT), "mat1 and mat2 shapes cannot be multiplied"),
        (
            RuntimeError("must match\nException raised from meta at /w/LinearAlgebra.cpp:194 (most recent call first)"),
            "must match",
        ),
        (
            RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
            "CUDA error: out of memory",
        ),
        (KeyError("x"), "KeyError: 'x'"),
        (AssertionError(), "AssertionError"),
        (ValueError("a\n\n  b"), "a b"),
    ],
)
def test_errors_become_one_sentence(error: Exception, reason: str) -> None:
    assert run_sentence(error) == f"PyTorch execute failure: {reason}"
    assert load_sentence(error, "model.pt", "m") == f"failed to load model 'm': {reason}"


@given(st.text(max_size=3000))
def test_sentences_are_short_lines(text: str) -> None:
    sentence = run_sentence(RuntimeError(text))
    assert len(sentence) < 700
    assert len(sentence.splitlines()) == 1
