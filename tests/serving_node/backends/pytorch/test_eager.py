from __future__ import annotations

import asyncio
import gc
import pickle
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from serving_node.core.errors import InferenceError
from tests.serving_node import torch_models
from tests.serving_node.backends.pytorch.served import arrays, failure, fp32, infer, load, raw

MLP = """
    max_batch_size: 16 runtime: "model.py"
    input { name: "x" data_type: TYPE_FP32 dims: 16 }
    output { name: "y" data_type: TYPE_FP32 dims: 10 }
"""


@pytest.mark.parametrize("rows", [1, 7, 16])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
async def test_a_module_with_weights_answers_bit_equal(tmp_path: Path, suffix: str, rows: int) -> None:
    torch_models.save_module(tmp_path / "model.py", torch_models.MLP_CODE)
    wanted = torch_models.Mlp(seed=3)
    if suffix == ".safetensors":
        save_file(wanted.state_dict(), tmp_path / f"model{suffix}")
    else:
        torch.save(wanted.state_dict(), tmp_path / f"model{suffix}")
    model = await load(tmp_path, MLP)
    x = torch.randn(rows, 16)
    (response,) = await infer(model, [fp32("x", x)])
    assert arrays(response)["y"].tobytes() == raw(wanted(x))
    await model.close()


async def test_the_module_is_found_without_a_runtime_and_safetensors_come_first(tmp_path: Path) -> None:
    torch_models.save_module(tmp_path / "model.py", torch_models.MLP_CODE)
    save_file(torch_models.Mlp(seed=1).state_dict(), tmp_path / "model.safetensors")
    torch.save(torch_models.Mlp(seed=2).state_dict(), tmp_path / "model.pt")
    model = await load(tmp_path, MLP.replace('runtime: "model.py"', ""))
    x = torch.randn(2, 16)
    (response,) = await infer(model, [fp32("x", x)])
    assert arrays(response)["y"].tobytes() == raw(torch_models.Mlp(seed=1)(x))
    await model.close()


TWO_CLASSES = """
    from scale import FACTOR

    class Another(torch.nn.Module):
        def forward(self, x):
            return x

    class Main(torch.nn.Module):
        def forward(self, x, *, offset=None):
            y = FACTOR * x
            return {"y": y if offset is None else y + offset}
"""


async def test_the_class_is_named_and_files_beside_it_are_imported(tmp_path: Path) -> None:
    torch_models.save_module(tmp_path / "model.py", TWO_CLASSES)
    (tmp_path / "scale.py").write_text("FACTOR = 3.0\n")
    config = """
        input { name: "x" data_type: TYPE_FP32 dims: 1 }
        input { name: "offset" data_type: TYPE_FP32 dims: 1 optional: true }
        output { name: "y" data_type: TYPE_FP32 dims: 1 }
    """
    named = 'parameters { key: "flotilla.torch_class" value { string_value: "Main" } }'
    model = await load(tmp_path, config + named)
    x = fp32("x", torch.tensor([2.0]))
    first, second = await infer(model, [x], [x, fp32("offset", torch.tensor([1.0]))])
    assert (arrays(first)["y"].tolist(), arrays(second)["y"].tolist()) == ([6], [7])
    await model.close()
    with pytest.raises(InferenceError, match="configuration expects 2 inputs, model provides 1"):
        await load(tmp_path, config)  # without a name: the first
    with pytest.raises(InferenceError, match=r"'model.py' has no class 'Missing' of torch.nn.Module"):
        await load(tmp_path, config + named.replace("Main", "Missing"))


async def test_the_module_is_compiled_when_asked_for(tmp_path: Path) -> None:
    torch_models.save_module(tmp_path / "model.py", torch_models.MLP_CODE)
    torch.save(torch_models.Mlp().state_dict(), tmp_path / "model.pt")
    options = '{\\"backend\\": \\"eager\\", \\"dynamic\\": true}'
    key = f'parameters {{ key: "TORCH_COMPILE_OPTIONAL_PARAMETERS" value {{ string_value: "{options}" }} }}'
    model = await load(tmp_path, MLP + key)
    x = torch.randn(3, 16)
    (response,) = await infer(model, [fp32("x", x)])
    assert arrays(response)["y"].tobytes() == raw(torch_models.Mlp()(x))
    await model.close()


async def test_errors_of_the_module_are_one_sentence(tmp_path: Path) -> None:
    code = """
        class Broken(torch.nn.Module):
            def forward(self, x):
                if x[0] > 0:
                    raise ValueError("not\\n  today")
                return 5
    """
    torch_models.save_module(tmp_path / "model.py", code)
    config = 'input { name: "x" data_type: TYPE_FP32 dims: 1 } output { name: "y" data_type: TYPE_FP32 dims: 1 }'
    model = await load(tmp_path, config)
    (raised,) = await infer(model, [fp32("x", torch.ones(1))])
    assert failure(raised) == ("INTERNAL", "PyTorch execute failure: not today")
    (strange,) = await infer(model, [fp32("x", torch.zeros(1))])
    assert failure(strange)[1].endswith("the model gave int")
    await model.close()


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("pwned",)


@pytest.mark.parametrize("kind", ["torch", "pickle"])
async def test_weights_that_are_pickled_objects_are_not_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    torch_models.save_module(tmp_path / "model.py", torch_models.MLP_CODE)
    if kind == "torch":
        torch.save({"up.weight": Evil()}, tmp_path / "model.pt")
    else:
        (tmp_path / "model.pt").write_bytes(pickle.dumps({"up.weight": Evil()}))
    with pytest.raises(InferenceError) as caught:
        await load(tmp_path, MLP)
    assert caught.value.message == (
        "'model.pt' of model 'm' holds pickled objects other than tensors, which are not loaded: save the weights"
        " alone, as safetensors or with torch.save(model.state_dict())"
    )
    assert "pwned" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import nowhere", "'model.py' cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("x = 1", "Cannot find a subclass of torch.nn.Module in 'model.py'"),
        (
            "class Net(torch.nn.Module):\n    def __init__(self, size):\n        super().__init__()",
            "failed to load model 'm': Net.__init__() missing 1 required positional argument: 'size'",
        ),
    ],
)
async def test_files_that_are_no_model_are_refused(tmp_path: Path, code: str, sentence: str) -> None:
    torch_models.save_module(tmp_path / "model.py", code)
    with pytest.raises(InferenceError) as caught:
        await load(tmp_path, MLP)
    assert caught.value.message == sentence


async def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    torch_models.save_module(tmp_path / "model.py", torch_models.MLP_CODE)
    torch.save({"up.weight": torch.ones(2, 2)}, tmp_path / "model.pt")
    with pytest.raises(InferenceError, match=r"failed to load model 'm': Error\(s\) in loading state_dict for Mlp"):
        await load(tmp_path, MLP)


async def test_weights_alone_are_no_model(tmp_path: Path) -> None:
    torch.save(torch_models.Mlp().state_dict(), tmp_path / "model.pt")
    with pytest.raises(InferenceError, match=r"'model.pt' of model 'm' holds weights without a model: put the module"):
        await load(tmp_path, MLP.replace('runtime: "model.py"', ""))


async def test_nothing_is_kept_after_unloading(tmp_path: Path) -> None:
    torch_models.save_mlp(tmp_path / "program" / "model.pt2")
    torch_models.save_script(tmp_path / "script" / "model.pt", torch_models.Mlp())
    torch_models.save_module(tmp_path / "module" / "model.py", torch_models.MLP_CODE)
    torch.save(torch_models.Mlp().state_dict(), tmp_path / "module" / "model.pt")
    config = MLP.replace("runtime", "#").replace('"x"', '"INPUT__0"')
    others = kept()
    for folder in ("program", "script", "module"):
        model = await load(tmp_path / folder, config)
        await infer(model, [fp32("INPUT__0", torch.ones(2, 16))])
        await model.close()
    del model
    known = {id(one) for one in others}
    deadline = time.monotonic() + 30
    # The thread of an instance lets go of it when it ends, which nobody waits for.
    while left := [type(one).__name__ for one in kept() if id(one) not in known]:
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.01)


def kept() -> list[object]:
    """Return what of models is in memory; tests that ran before in this process may have left some."""
    ours = {"TorchModel", "TorchInstance", "ExportedModel", "ScriptModel", "EagerModel"}
    gc.collect()
    return [one for one in gc.get_objects() if type(one).__name__ in ours]
