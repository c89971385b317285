"""AOTInductor packages. Compiling one takes a minute on a small machine, so these tests are slow."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from serving_node.core.errors import InferenceError
from tests.serving_node import torch_models
from tests.serving_node.backends import model_calls
from tests.serving_node.backends.pytorch.served import arrays, fp32, infer, load, raw

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of PyTorch about itself
]


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = torch_models.Mlp()

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.mlp(x) * scale, "half": x.to(torch.bfloat16)}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "model.pt2"
    rows = {0: torch_models.ROWS}
    program = torch.export.export(
        Scaled().eval(), (torch.ones(4, 16),), {"scale": torch.ones(4, 1)}, dynamic_shapes={"x": rows, "scale": rows}
    )
    torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    return path


def config(x: str, scale: str, y: str, half: str, more: str = "") -> str:
    return f"""
        platform: "torch_aoti" max_batch_size: 16 dynamic_batching {{ }} {more}
        input {{ name: "{x}" data_type: TYPE_FP32 dims: 16 }}
        input {{ name: "{scale}" data_type: TYPE_FP32 dims: 1 }}
        output {{ name: "{y}" data_type: TYPE_FP32 dims: 10 }}
        output {{ name: "{half}" data_type: TYPE_BF16 dims: 16 }}
    """


NAMES = [
    ("INPUT__0", "scale", "y", "half"),
    ("ARGS[0]", "KWARGS[scale]", "RESULT[y]", "RESULT[half]"),
    ("INPUT__0", "INPUT__1", "OUTPUT__0", "OUTPUT__1"),
]


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("share", ["false", "true"])
async def test_answers_are_bit_equal_to_the_package_called_directly(
    package: Path, names: tuple[str, str, str, str], share: str
) -> None:
    more = f'parameters {{ key: "ENABLE_WEIGHT_SHARING" value {{ string_value: "{share}" }} }}'
    model = await load(package.parent, config(*names, more) + "instance_group { count: 2 kind: KIND_CPU }")
    direct = torch._inductor.aoti_load_package(str(package))
    x_name, scale_name, y_name, half_name = names
    try:
        for rows in (1, 7, 16):
            x, scale = torch.randn(rows, 16), torch.randn(rows, 1)
            (response,) = await infer(model, [fp32(x_name, x), fp32(scale_name, scale)])
            expected = direct(x, scale=scale)
            assert arrays(response)[y_name].tobytes() == raw(expected["y"])
            assert arrays(response)[half_name].tobytes() == raw(expected["half"])
    finally:
        await model.close()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("TYPE_FP64 dims: 16", "input 'INPUT__0' is not what 'model.pt2' was compiled for: unmatched dtype"),
        ("TYPE_FP32 dims: 15", "was compiled for: unmatched dim value at 1, expected: 16, but got: 15"),
        ("TYPE_STRING dims: 16", "input 'INPUT__0' of model 'm' cannot be of strings"),
        ("TYPE_INVALID dims: 16", "model input 'INPUT__0' must specify 'data_type'"),
    ],
)
async def test_inputs_that_the_code_is_not_for_are_refused_at_load(package: Path, wrong: str, sentence: str) -> None:
    with pytest.raises(InferenceError) as caught:
        await load(package.parent, config(*NAMES[0]).replace("TYPE_FP32 dims: 16", wrong, 1))
    assert sentence in caught.value.message
    assert "\n" not in caught.value.message


async def test_batches_that_the_code_is_not_for_are_refused_at_load(package: Path) -> None:
    with pytest.raises(InferenceError, match="dim value is too large at 0, expected to be <= 64, but got: 65"):
        await load(package.parent, config(*NAMES[0]).replace("max_batch_size: 16", "max_batch_size: 65"))
    model = await load(package.parent, config(*NAMES[0]).replace("max_batch_size: 16", "max_batch_size: 1"))
    (response,) = await infer(model, [fp32("INPUT__0", torch.ones(1, 16)), fp32("scale", torch.ones(1, 1))])
    assert arrays(response)["y"].shape == (1, 10)
    await model.close()


async def test_configs_that_do_not_fit_are_refused(package: Path) -> None:
    with pytest.raises(InferenceError, match="configuration expects 1 inputs, model provides 2"):
        await load(
            package.parent,
            'input { name: "x" data_type: TYPE_FP32 dims: 16 } output { name: "y" data_type: TYPE_FP32 dims: 10 }',
        )
    with pytest.raises(InferenceError, match="model configuration must contain at least one input"):
        await load(package.parent)  # a package does not tell its inputs


async def test_a_worker_unpacks_and_runs_it(package: Path) -> None:
    model = await model_calls.load(package.parent, 'backend: "pytorch"' + config(*NAMES[0]))
    try:
        x, scale = torch.randn(7, 16), torch.randn(7, 1)
        (response,) = await infer(model, [fp32("INPUT__0", x), fp32("scale", scale)])
        expected = torch._inductor.aoti_load_package(str(package))(x, scale=scale)
        assert arrays(response)["half"].tobytes() == raw(expected["half"])
        assert torch.allclose(torch.from_numpy(arrays(response)["y"].copy()), expected["y"], atol=1e-6)
    finally:
        await model.close()
