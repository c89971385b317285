from __future__ import annotations

from pathlib import Path

import pytest
import torch

from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor
from tests.serving_node import torch_models
from tests.serving_node.backends.pytorch.served import arrays, failure, fp32, infer, load, raw, sent

MAX = 16
TYPES = [
    ("BOOL", torch.bool),
    ("UINT8", torch.uint8),
    ("UINT16", torch.uint16),
    ("UINT32", torch.uint32),
    ("UINT64", torch.uint64),
    ("INT8", torch.int8),
    ("INT16", torch.int16),
    ("INT32", torch.int32),
    ("INT64", torch.int64),
    ("FP16", torch.float16),
    ("FP32", torch.float32),
    ("FP64", torch.float64),
    ("BF16", torch.bfloat16),
]


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_models.save_mlp(tmp_path_factory.mktemp("mlp") / "1" / "model.pt2")


async def test_config_is_completed_from_the_program(mlp: Path) -> None:
    model = await load(mlp.parent)
    assert model.config.max_batch_size == 4
    assert model.config.HasField("dynamic_batching")
    (x,), (y,) = model.config.input, model.config.output
    assert (x.name, list(x.dims), y.name, list(y.dims)) == ("x", [16], "OUTPUT__0", [10])
    await model.close()


@pytest.mark.parametrize("rows", [1, 7, MAX])
async def test_answers_are_bit_equal_to_the_program_called_directly(mlp: Path, rows: int) -> None:
    model = await load(mlp.parent, f"max_batch_size: {MAX}")
    x = torch.randn(rows, 16)
    (response,) = await infer(model, [fp32("x", x)])
    expected = torch.export.load(mlp).module()(x)
    assert arrays(response)["OUTPUT__0"].tobytes() == raw(expected)
    await model.close()


async def test_requests_are_joined_and_split_bit_equal(mlp: Path) -> None:
    model = await load(mlp.parent, f"max_batch_size: {MAX} dynamic_batching {{ }}")
    x = torch.randn(12, 16)
    parts = x.split([2, 1, 5, 4])
    responses = await infer(model, *([fp32("x", part)] for part in parts))
    joined = b"".join(arrays(response)["OUTPUT__0"].tobytes() for response in responses)
    assert joined == raw(torch.export.load(mlp).module()(x))
    assert (model.statistics.inference_count, model.statistics.execution_count) == (12, 1)
    await model.close()


@pytest.mark.parametrize(("datatype", "kind"), TYPES, ids=[name for name, _ in TYPES])
async def test_every_element_type_goes_through(tmp_path: Path, datatype: str, kind: torch.dtype) -> None:
    columns = torch.export.Dim("columns", min=0, max=99)
    example = torch.zeros(3, 4, dtype=kind)
    shapes = ({0: torch_models.ROWS, 1: columns},)
    path = torch_models.save_exported(tmp_path / "1" / "model.pt2", torch_models.Twice(), (example,), shapes)
    model = await load(path.parent, f"max_batch_size: {MAX}")
    assert [tensor.datatype for tensor in (*model.metadata.inputs, *model.metadata.outputs)] == [datatype] * 2
    for shape in ((1, 5), (7, 1), (MAX, 3), (2, 0)):
        x = torch.randint(0, 2, shape).to(kind)
        (response,) = await infer(model, [sent("x", x, datatype)])
        (y,) = response.outputs
        expected = torch.cat([x, x], 1)
        assert (y.name, y.datatype, y.shape) == ("y", datatype, tuple(expected.shape))
        assert bytes(y.data) == raw(expected)
    await model.close()


async def test_inputs_and_outputs_may_be_called_by_their_places(tmp_path: Path) -> None:
    shapes = ({0: torch_models.ROWS},) * 2
    example = (torch.ones(4, 3), torch.ones(4, 3))
    path = torch_models.save_exported(tmp_path / "1" / "model.pt2", torch_models.AddSub(), example, shapes)
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    for inputs, outputs in (
        (("a", "b"), ("OUTPUT__0", "OUTPUT__1")),
        (("INPUT__0", "INPUT__1"), ("sum", "difference")),  # results without names: in the config's order
        (("ARGS[0]", "ARGS[1]"), ("RESULT[0]", "RESULT[1]")),  # as Triton has them for compiled packages
    ):
        tensors = [f'input {{ name: "{name}" data_type: TYPE_FP32 dims: 3 }}' for name in inputs]
        tensors += [f'output {{ name: "{name}" data_type: TYPE_FP32 dims: 3 }}' for name in outputs]
        model = await load(path.parent, " ".join(tensors) + " max_batch_size: 4")
        (response,) = await infer(model, [fp32(inputs[1], b), fp32(inputs[0], a)])
        found = arrays(response)
        assert [found[name].tobytes() for name in outputs] == [raw(a + b), raw(a - b)]
        (response,) = await infer(model, [fp32(inputs[0], a), fp32(inputs[1], b)], outputs=(outputs[1],))
        assert list(arrays(response)) == [outputs[1]]
        await model.close()


class Nested(torch.nn.Module):
    def forward(self, named: dict[str, torch.Tensor], *, scale: torch.Tensor, times: int) -> dict[str, torch.Tensor]:
        return {"a": named["a"] * scale, "total": (named["b"] * times).sum()}


async def test_containers_keywords_constants_and_scalars(tmp_path: Path) -> None:
    example = ({"a": torch.ones(3), "b": torch.ones(2)},)
    path = tmp_path / "1" / "model.pt2"
    torch_models.save_exported(path, Nested(), example, None, {"scale": torch.tensor(2.0), "times": 5})
    model = await load(path.parent)
    assert model.config.max_batch_size == 0
    assert [(one.name, list(one.dims)) for one in model.config.input] == [
        ("named_a", [3]),
        ("named_b", [2]),
        ("scale", [1]),
    ]
    (response,) = await infer(
        model,
        [
            fp32("named_a", torch.tensor([1.0, 2, 3])),
            fp32("named_b", torch.tensor([1.0, 1])),
            fp32("scale", torch.tensor([4.0])),
        ],
    )
    found = arrays(response)
    assert found["a"].tolist() == [4, 8, 12]
    assert found["total"].tolist() == [10]
    await model.close()


class Dict(torch.nn.Module):
    def forward(self, named: dict[str, torch.Tensor]) -> torch.Tensor:
        return named["left"] - named["right"]


async def test_the_keys_of_an_only_dict_are_the_names(tmp_path: Path) -> None:
    example = ({"left": torch.ones(4, 2), "right": torch.ones(4, 2)},)
    shapes = {"named": {"left": {0: torch_models.ROWS}, "right": {0: torch_models.ROWS}}}
    path = torch_models.save_exported(tmp_path / "1" / "model.pt2", Dict(), example, shapes)
    model = await load(path.parent)
    (response,) = await infer(model, [fp32("left", torch.full((2, 2), 3.0)), fp32("right", torch.ones(2, 2))])
    assert arrays(response)["OUTPUT__0"].tolist() == [[2, 2], [2, 2]]
    await model.close()


async def test_a_first_dimension_that_is_not_the_same_everywhere_is_no_batch(tmp_path: Path) -> None:
    shapes = ({0: torch.export.Dim("left")}, {0: torch.export.Dim("right")})
    example = (torch.ones(4, 3), torch.ones(5, 3))

    class Outer(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b.T

    path = torch_models.save_exported(tmp_path / "1" / "model.pt2", Outer(), example, shapes)
    model = await load(path.parent)
    assert model.config.max_batch_size == 0
    assert [list(one.dims) for one in (*model.config.input, *model.config.output)] == [[-1, 3], [-1, 3], [-1, -1]]
    a, b = torch.randn(2, 3), torch.randn(6, 3)
    (response,) = await infer(model, [fp32("a", a), fp32("b", b)])
    assert arrays(response)["OUTPUT__0"].tobytes() == raw(a @ b.T)
    await model.close()
    with pytest.raises(InferenceError, match="model does not support batching while non-zero max_batch_size"):
        await load(path.parent, "max_batch_size: 4")
    tensors = " ".join(f'input {{ name: "{name}" data_type: TYPE_FP32 dims: 3 }}' for name in "ab")
    tensors += ' output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: -1 }'
    with pytest.raises(InferenceError, match="model 'm' has no batch dimension"):
        await load(path.parent, f"max_batch_size: 4 {tensors}")


async def test_batches_beyond_what_was_exported_are_refused_at_load(mlp: Path, tmp_path: Path) -> None:
    sentence = "model 'm' was exported for batches of 1 to 64 rows, max_batch_size is 65"
    with pytest.raises(InferenceError) as caught:
        await load(mlp.parent, "max_batch_size: 65")
    assert caught.value.message == f"{sentence}: batches have 1 to max_batch_size rows"
    two = ({0: torch.export.Dim.AUTO},)  # PyTorch then takes it that there are two rows or more
    path = torch_models.save_exported(tmp_path / "1" / "model.pt2", torch_models.Mlp(), (torch.ones(4, 16),), two)
    with pytest.raises(InferenceError, match="was exported for batches of 2 or more rows"):
        await load(path.parent, "max_batch_size: 4")


async def test_configs_that_do_not_fit_are_refused_with_the_sentences_of_other_engines(mlp: Path) -> None:
    y = 'output { name: "y" data_type: TYPE_FP32 dims: 10 }'
    for config, sentence in (
        ('input { name: "z" data_type: TYPE_FP32 dims: 16 }', "unexpected inference input 'z', allowed inputs are: "),
        ('input { name: "x" data_type: TYPE_FP64 dims: 16 }', "configuration expects datatype TYPE_FP64 for input 'x'"),
        ('input { name: "x" data_type: TYPE_FP32 dims: 15 }', "model 'm', tensor 'x': the model expects 2 dimensions"),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: 16 } input { name: "z" data_type: TYPE_FP32 dims: 1 }',
            "unable to load model 'm', configuration expects 2 inputs, model provides 1",
        ),
        (
            'input { name: "INPUT__1" data_type: TYPE_FP32 dims: 16 }',
            "input 'INPUT__1' of model 'm' is argument 1, but the model has 1 arguments",
        ),
    ):
        with pytest.raises(InferenceError) as caught:
            await load(mlp.parent, f"max_batch_size: 4 {config} {y}")
        assert sentence in caught.value.message
    two = 'input { name: "x" data_type: TYPE_FP32 dims: 16 } output { name: "OUTPUT__1" data_type: TYPE_FP32 dims: 10 }'
    with pytest.raises(InferenceError, match="an output index which doesn't exist"):
        await load(mlp.parent, f"max_batch_size: 4 {two}")


class Picky(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


async def test_an_error_of_the_program_is_one_sentence_and_the_next_request_is_answered(tmp_path: Path) -> None:
    length = torch.export.Dim("length")
    example = (torch.ones(4), torch.ones(4))
    path = torch_models.save_exported(tmp_path / "1" / "model.pt2", Picky(), example, ({0: length}, {0: length}))
    model = await load(path.parent, "max_batch_size: 0")  # the config cannot say that both have one length
    assert model.config.max_batch_size in (0, 4)
    tensors = " ".join(f'input {{ name: "{name}" data_type: TYPE_FP32 dims: -1 }}' for name in "ab")
    await model.close()
    model = await load(path.parent, f'{tensors} output {{ name: "OUTPUT__0" data_type: TYPE_FP32 dims: -1 }}')
    bad, good = await infer(
        model,
        [fp32("a", torch.ones(3)), fp32("b", torch.ones(2))],
        [fp32("a", torch.ones(3)), fp32("b", torch.ones(3))],
    )
    code, sentence = failure(bad)
    assert code == "INTERNAL"
    assert sentence.startswith("PyTorch execute failure: Guard failed: ") and "\n" not in sentence
    assert arrays(good)["OUTPUT__0"].tolist() == [2, 2, 2]
    await model.close()


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x)
        return self.seen


async def test_an_output_that_is_a_buffer_does_not_change_afterwards(tmp_path: Path) -> None:
    path = torch_models.save_exported(tmp_path / "1" / "model.pt2", Counter(), (torch.ones(2),), None)
    model = await load(path.parent)
    model_seen = [
        arrays(response)["OUTPUT__0"]
        for response in await infer(model, *([fp32("x", torch.ones(2))] for _ in range(3)))
    ]
    first = model_seen[0][0]
    assert [seen.tolist() for seen in model_seen] == [[first + step] * 2 for step in range(3)]
    await model.close()


async def test_a_tensor_at_an_odd_address_is_read(mlp: Path) -> None:
    x = torch.randn(2, 16)
    model = await load(mlp.parent)
    (response,) = await infer(model, [Tensor("x", "FP32", (2, 16), memoryview(b"-" + raw(x))[1:])])
    assert arrays(response)["OUTPUT__0"].tobytes() == raw(torch.export.load(mlp).module()(x))
    await model.close()


@pytest.mark.parametrize("content", [b"", b"nothing", b"PK\x03\x04" + bytes(100)])
async def test_broken_files_are_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt2").write_bytes(content)
    with pytest.raises(InferenceError, match=r"^'model.pt2' is not a complete PyTorch file: it is no archive"):
        await load(tmp_path)


async def test_a_truncated_program_is_refused(mlp: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(mlp.read_bytes()[:-300])
    with pytest.raises(InferenceError, match=r"^'model.pt2' is not a complete PyTorch file"):
        await load(tmp_path)


async def test_a_program_is_compiled_when_asked_for(mlp: Path) -> None:
    options = (
        'parameters { key: "TORCH_COMPILE_OPTIONAL_PARAMETERS" value { string_value: "{\\"backend\\": \\"eager\\"}" } }'
    )
    model = await load(mlp.parent, options)
    x = torch.randn(3, 16)
    (response,) = await infer(model, [fp32("x", x)])
    assert arrays(response)["OUTPUT__0"].tobytes() == raw(torch.export.load(mlp).module()(x))
    await model.close()
