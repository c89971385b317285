from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor, encode_bytes_elements
from tests.serving_node import torch_models
from tests.serving_node.backends.pytorch.served import arrays, failure, fp32, infer, load, raw, sent
from tests.serving_node.backends.pytorch.test_exported import TYPES

MAX = 16
MLP = """
    input { name: "INPUT__0" data_type: TYPE_FP32 dims: 16 }
    output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 10 }
"""


def io(inputs: dict[str, str], outputs: dict[str, str]) -> str:
    """Return tensors of a config: name -> data type and dims, as ``FP32 3``."""
    text = ""
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for name, value in tensors.items():
            datatype, _, dims = value.partition(" ")
            text += f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: [{dims}] }} '
    return text


def texts(name: str, *values: str | bytes) -> Tensor:
    raw_values = [value.encode() if isinstance(value, str) else value for value in values]
    return Tensor(name, "BYTES", (len(values),), encode_bytes_elements(np.array(raw_values, np.object_)))


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_models.save_script(tmp_path_factory.mktemp("mlp") / "1" / "model.pt", torch_models.Mlp())


@pytest.mark.parametrize("rows", [1, 7, MAX])
@pytest.mark.parametrize("optimized", ["false", "true"])
async def test_answers_are_bit_equal_to_the_module_called_directly(mlp: Path, rows: int, optimized: str) -> None:
    switch = f'parameters {{ key: "DISABLE_OPTIMIZED_EXECUTION" value {{ string_value: "{optimized}" }} }}'
    model = await load(mlp.parent, f"max_batch_size: {MAX} {MLP} {switch}")
    x = torch.randn(rows, 16)
    (response,) = await infer(model, [fp32("INPUT__0", x)])
    assert arrays(response)["OUTPUT__0"].tobytes() == raw(torch.jit.load(mlp)(x))
    await model.close()


async def test_the_deprecation_is_told(mlp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = await load(mlp.parent, MLP.replace("dims: 16", "dims: [1, 16]").replace("dims: 10", "dims: [1, 10]"))
    assert "PyTorch has deprecated TorchScript" in capsys.readouterr().out
    await model.close()


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x], 1)


@pytest.mark.parametrize(("datatype", "kind"), TYPES, ids=[name for name, _ in TYPES])
async def test_every_element_type_goes_through(tmp_path: Path, datatype: str, kind: torch.dtype) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", Same())
    model = await load(path.parent, f"max_batch_size: {MAX} " + io({"x": f"{datatype} -1"}, {"y": f"{datatype} -1"}))
    for shape in ((1, 5), (7, 1), (MAX, 3), (2, 0)):
        x = torch.randint(0, 2, shape).to(kind)
        (response,) = await infer(model, [sent("x", x, datatype)])
        (y,) = response.outputs
        assert (y.datatype, y.shape, bytes(y.data)) == (datatype, (shape[0], 2 * shape[1]), raw(Same()(x)))
    await model.close()


class AddSub(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return left + right, left - right


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (["left", "right"], ["OUTPUT__0", "OUTPUT__1"]),
        (["right", "left"], ["OUTPUT__1", "OUTPUT__0"]),
        (["INPUT__1", "INPUT__0"], ["sum", "difference"]),
        (["first", "second"], ["sum", "difference"]),
    ],
)
async def test_naming_rules(tmp_path: Path, inputs: list[str], outputs: list[str]) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", AddSub())
    config = io(dict.fromkeys(inputs, "FP32 2"), dict.fromkeys(outputs, "FP32 2"))
    model = await load(path.parent, config)
    left, right = torch.tensor([5.0, 6]), torch.tensor([1.0, 2])
    values = {"left": left, "right": right, "INPUT__0": left, "INPUT__1": right, "first": left, "second": right}
    (response,) = await infer(model, [fp32(name, values[name]) for name in inputs])
    found = arrays(response)
    for name in outputs:
        is_sum = name in ("OUTPUT__0", "sum")
        assert found[name].tolist() == ([6, 8] if is_sum else [4, 4])
    await model.close()


class DictModel(torch.nn.Module):
    def forward(self, named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sum": named["a"] + named["b"], "difference": named["a"] - named["b"]}


async def test_dict_inputs_and_outputs(tmp_path: Path) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", DictModel())
    config = io({"a": "FP32 2", "b": "FP32 2"}, {"difference": "FP32 2", "sum": "FP32 2"})
    model = await load(path.parent, f"max_batch_size: 4 dynamic_batching {{ }} {config}")
    ones = torch.ones(1, 2)
    first, second = await infer(model, [fp32("b", ones), fp32("a", ones)], [fp32("b", 3 * ones), fp32("a", ones)])
    assert arrays(first)["sum"].tolist() == [[2, 2]]
    assert arrays(second)["difference"].tolist() == [[-2, -2]]
    await model.close()
    model = await load(path.parent, io({"a": "FP32 2", "b": "FP32 2"}, {"other": "FP32 2"}))
    (response,) = await infer(model, [fp32("a", torch.ones(2)), fp32("b", torch.ones(2))])
    assert failure(response)[1] == "unexpected inference output 'other', allowed outputs are: difference, sum"
    await model.close()


class ListModel(torch.nn.Module):
    def forward(self, parts: list[torch.Tensor]) -> list[torch.Tensor]:
        return [parts[1], parts[0]]


async def test_list_inputs_and_outputs(tmp_path: Path) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", ListModel())
    model = await load(path.parent, io({"a": "FP32 1", "b": "FP32 1"}, {"OUTPUT__0": "FP32 1", "OUTPUT__1": "FP32 1"}))
    (response,) = await infer(model, [fp32("a", torch.tensor([1.0])), fp32("b", torch.tensor([2.0]))])
    assert {name: value.tolist() for name, value in arrays(response).items()} == {"OUTPUT__0": [2], "OUTPUT__1": [1]}
    await model.close()


class Strings(torch.nn.Module):
    def forward(self, words: list[str], numbers: torch.Tensor) -> tuple[list[str], torch.Tensor]:
        return [word + "!" for word in words], numbers + len(words)


async def test_strings_are_lists(tmp_path: Path) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", Strings())
    model = await load(
        path.parent, io({"words": "STRING -1", "numbers": "INT64 1"}, {"loud": "STRING -1", "count": "INT64 1"})
    )
    number = sent("numbers", torch.tensor([10]), "INT64")
    (response,) = await infer(model, [texts("words", "grün", "", "a b"), number])
    found = arrays(response)
    assert [word.decode() for word in found["loud"].tolist()] == ["grün!", "!", "a b!"]
    assert found["count"].tolist() == [13]
    (response,) = await infer(model, [texts("words"), number])
    assert arrays(response)["count"].tolist() == [10]
    await model.close()


async def test_only_the_request_with_a_malformed_string_fails(tmp_path: Path) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", Strings())
    config = """
        max_batch_size: 4 dynamic_batching { }
        input { name: "words" data_type: TYPE_STRING dims: 1 reshape { } }
        input { name: "numbers" data_type: TYPE_INT64 dims: 1 }
        output { name: "loud" data_type: TYPE_STRING dims: 1 reshape { } }
        output { name: "count" data_type: TYPE_INT64 dims: 1 }
    """
    model = await load(path.parent, config)

    def request(word: str | bytes) -> list[Tensor]:
        tensor = texts("words", word)
        tensor.shape = (1, 1)
        return [tensor, sent("numbers", torch.zeros(1, 1, dtype=torch.int64), "INT64")]

    good, bad, other = await infer(model, request("one"), request(b"\xff"), request("two"))
    assert arrays(good)["loud"].tolist() == [[b"one!"]]
    assert failure(bad) == ("INVALID_ARG", "a string of input 'words' is not valid UTF-8")
    assert arrays(other)["loud"].tolist() == [[b"two!"]]
    await model.close()


class WithDefault(torch.nn.Module):
    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None, times: int = 2) -> torch.Tensor:
        y = x * times
        return y if bias is None else y + bias


async def test_optional_inputs_may_be_left_out(tmp_path: Path) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", WithDefault())
    config = io({"x": "FP32 1"}, {"y": "FP32 1"})
    config += 'input { name: "bias" data_type: TYPE_FP32 dims: 1 optional: true }'
    model = await load(path.parent, config)
    x = fp32("x", torch.tensor([3.0]))
    without, with_bias = await infer(model, [x], [x, fp32("bias", torch.tensor([1.0]))])
    assert (arrays(without)["y"].tolist(), arrays(with_bias)["y"].tolist()) == ([6], [7])
    await model.close()


class Scalar(torch.nn.Module):
    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        return x * times


class TwoDicts(torch.nn.Module):
    def forward(self, a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> torch.Tensor:
        return a["x"] + b["x"]


@pytest.mark.parametrize(
    ("module", "config", "sentence"),
    [
        (AddSub(), io({"left": "FP32 1"}, {"y": "FP32 1"}), "configuration expects 1 inputs, model provides 2"),
        (
            Scalar(),
            io({"x": "FP32 1", "times": "INT64 1"}, {"y": "FP32 1"}),
            "An input of type 'int' was detected in the model. Only a single input of type Dict(str, Tensor) or"
            " input(s) of type Tensor are supported.",
        ),
        (TwoDicts(), io({"a": "FP32 1", "b": "FP32 1"}, {"y": "FP32 1"}), "Multiple inputs of kind DictType were"),
        (
            Strings(),
            "max_batch_size: 4 " + io({"words": "STRING 1", "numbers": "INT64 1"}, {"a": "STRING -1", "b": "INT64 1"}),
            "Triton only supports 1 dimensional List of String as input for 'words' for model 'm'",
        ),
        (
            AddSub(),
            io({"left": "FP32 1", "right": "FP32 1"}, {"OUTPUT__2": "FP32 1"}),
            "The output OUTPUT__2 in the model configuration refers to an output index which doesn't exist. This model"
            " has 2 outputs",
        ),
        (AddSub(), "", "model configuration must contain at least one input, none were specified."),
    ],
)
async def test_configs_that_do_not_fit_are_refused_with_tritons_sentences(
    tmp_path: Path, module: torch.nn.Module, config: str, sentence: str
) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", module)
    with pytest.raises(InferenceError) as caught:
        await load(path.parent, config)
    assert sentence in caught.value.message


async def test_errors_of_the_model_are_one_sentence(mlp: Path) -> None:
    config = io({"x": "FP32 15"}, {"y": "FP32 10"})
    model = await load(mlp.parent, f"max_batch_size: 4 {config}")
    (response,) = await infer(model, [fp32("x", torch.ones(2, 15))])
    expected = "PyTorch execute failure: mat1 and mat2 shapes cannot be multiplied (2x15 and 16x32)"
    assert failure(response) == ("INTERNAL", expected)
    await model.close()


async def test_an_output_of_another_type_than_the_config_says_is_an_error(mlp: Path) -> None:
    model = await load(mlp.parent, f"max_batch_size: 4 {io({'x': 'FP32 16'}, {'y': 'FP64 10'})}")
    (response,) = await infer(model, [fp32("x", torch.ones(2, 16))])
    expected = "configuration expects datatype TYPE_FP64 for output 'y', model provides TYPE_FP32"
    assert failure(response) == ("INVALID_ARG", expected)
    await model.close()


async def test_instances_share_weights_when_asked_to(mlp: Path) -> None:
    share = 'parameters { key: "ENABLE_WEIGHT_SHARING" value { string_value: "true" } }'
    group = "instance_group { count: 3 kind: KIND_CPU }"
    apart, together = await load(mlp.parent, f"max_batch_size: 4 {MLP} {group}"), None
    try:
        together = await load(mlp.parent, f"max_batch_size: 4 {MLP} {group} {share}")
        one = sum(tensor.nbytes for tensor in torch_models.Mlp().parameters())
        assert (apart.memory_bytes, together.memory_bytes) == (3 * one, one)
        x = torch.randn(2, 16)
        responses = await infer(together, *([fp32("INPUT__0", x)] for _ in range(6)))
        assert {arrays(response)["OUTPUT__0"].tobytes() for response in responses} == {raw(torch.jit.load(mlp)(x))}
    finally:
        await apart.close()
        if together is not None:
            await together.close()


async def test_switches_of_torchscript_are_set(mlp: Path) -> None:
    before = torch._C._jit_texpr_fuser_enabled()
    switches = "".join(
        f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'
        for name, value in (
            ("ENABLE_TENSOR_FUSER", str(not before).lower()),
            ("ENABLE_JIT_PROFILING", "false"),
            ("ENABLE_JIT_EXECUTOR", "false"),
        )
    )
    try:
        model = await load(mlp.parent, f"max_batch_size: 4 {MLP} {switches}")
        assert torch._C._jit_texpr_fuser_enabled() is not before
        x = torch.randn(2, 16)
        (response,) = await infer(model, [fp32("INPUT__0", x)])
        assert arrays(response)["OUTPUT__0"].tobytes() == raw(torch.jit.load(mlp)(x))
        await model.close()
    finally:
        torch._C._jit_set_texpr_fuser_enabled(before)
        assert torch._C._jit_set_profiling_mode(True) is False
        assert torch._C._jit_set_profiling_executor(True) is False
