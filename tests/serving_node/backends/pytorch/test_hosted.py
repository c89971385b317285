"""The same models where they are served: in worker processes, behind a node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import tritonclient.http as triton_http

from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor
from serving_node.core.threads import default_threads
from tests.serving_node import torch_models
from tests.serving_node.backends import model_calls
from tests.serving_node.backends.pytorch.served import arrays, failure, fp32, infer, raw, sent
from tests.serving_node.server.processes import NodeProcess

SHARED = 'parameters { key: "ENABLE_WEIGHT_SHARING" value { string_value: "true" } }'


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_models.save_mlp(tmp_path_factory.mktemp("mlp") / "1" / "model.pt2")


@pytest.mark.parametrize(
    ("share", "workers"),
    [pytest.param("", 2, id="apart", marks=pytest.mark.slow), pytest.param(SHARED, 1, id="shared")],
)
async def test_workers_answer_bit_equal(mlp: Path, share: str, workers: int) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    group = "instance_group { count: 2 kind: KIND_CPU }"
    model = await model_calls.load(mlp.parent, f'backend: "pytorch" max_batch_size: 16 {group} {share}')
    try:
        started = {process.pid for process in psutil.Process().children(recursive=True)} - before
        assert len([pid for pid in started if _has_torch(pid)]) == workers
        assert model.config.output[0].name == "OUTPUT__0"
        torch.set_num_threads(default_threads(2))  # other numbers add up in another order
        program = torch.export.load(mlp).module()
        for rows in (1, 7, 16):
            x = torch.randn(rows, 16)
            for _ in range(2):  # one after the other: larger batches add up in another order
                (response,) = await infer(model, [fp32("x", x)])
                assert arrays(response)["OUTPUT__0"].tobytes() == raw(program(x))
    finally:
        await model.close()


class Writes(torch.nn.Module):
    """Writes to its input, which must be nobody else's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x += 1
        return x


async def test_a_model_may_write_to_its_inputs(tmp_path: Path) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", Writes())
    tensors = 'input { name: "x" data_type: TYPE_BF16 dims: -1 } output { name: "y" data_type: TYPE_BF16 dims: -1 }'
    model = await model_calls.load(path.parent, f'platform: "pytorch_libtorch" backend: "pytorch" {tensors}')
    try:
        x = torch.arange(5, dtype=torch.bfloat16)
        tensor = sent("x", x, "BF16")
        for _ in range(2):
            (response,) = await infer(model, [tensor])
            assert bytes(response.outputs[0].data) == raw(x + 1)
        assert bytes(tensor.data) == raw(x)
        (response,) = await infer(model, [Tensor("x", "BF16", (0,), b"")])
        assert response.outputs[0].shape == (0,)
    finally:
        await model.close()


@pytest.mark.slow
async def test_errors_cross_the_process(mlp: Path, tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match="was exported for batches of 1 to 64 rows, max_batch_size is 100"):
        await model_calls.load(mlp.parent, 'backend: "pytorch" max_batch_size: 100')
    code = """
        class Moody(torch.nn.Module):
            def forward(self, x):
                if x[0, 0] < 0:
                    raise ValueError("not below zero")
                return torch.sqrt(x)
    """
    path = torch_models.save_module(tmp_path / "1" / "model.py", code)
    tensors = 'input { name: "x" data_type: TYPE_FP32 dims: 1 } output { name: "y" data_type: TYPE_FP32 dims: 1 }'
    model = await model_calls.load(path.parent, f'backend: "pytorch" max_batch_size: 4 {tensors}')
    try:
        bad, good = await asyncio.gather(
            infer(model, [fp32("x", -torch.ones(1, 1))]), infer(model, [fp32("x", 4 * torch.ones(1, 1))])
        )
        assert failure(bad[0]) == ("INTERNAL", "PyTorch execute failure: not below zero")
        assert arrays(good[0])["y"].tolist() == [[2]]
    finally:
        await model.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_worker_compiles(tmp_path: Path) -> None:
    path = torch_models.save_module(tmp_path / "1" / "model.py", torch_models.MLP_CODE)
    torch.save(torch_models.Mlp().state_dict(), path.with_suffix(".pt"))
    config = """
        backend: "pytorch" max_batch_size: 8
        input { name: "x" data_type: TYPE_FP32 dims: 16 } output { name: "y" data_type: TYPE_FP32 dims: 10 }
        parameters { key: "TORCH_COMPILE_OPTIONAL_PARAMETERS" value { string_value: "{\\"dynamic\\": true}" } }
    """
    model = await model_calls.load(path.parent, config)
    try:
        for rows in (1, 7):
            x = torch.randn(rows, 16)
            (response,) = await infer(model, [fp32("x", x)])
            found = torch.from_numpy(arrays(response)["y"].copy())
            assert torch.allclose(found, torch_models.Mlp()(x), atol=1e-6)
    finally:
        await model.close()


async def test_no_model_of_pytorch_comes_into_the_nodes_process(mlp: Path) -> None:
    host = 'parameters { key: "flotilla.host" value { string_value: "thread" } }'
    with pytest.raises(InferenceError, match="runs in worker processes only"):
        await model_calls.load(mlp.parent, f'backend: "pytorch" {host}')


@pytest.fixture(scope="module")
def node(mlp: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("node")
    (folder / "models" / "mlp").mkdir(parents=True)
    (folder / "models" / "mlp" / "1").symlink_to(mlp.parent)
    process = NodeProcess(folder / "log", f"--model-repository={folder / 'models'}")
    process.start()
    try:
        yield process.until_ready()
    finally:
        process.end()


@pytest.mark.integration
def test_a_node_serves_a_program_without_a_config(node: NodeProcess, mlp: Path) -> None:
    torch.set_num_threads(default_threads(1))
    program = torch.export.load(mlp).module()
    with triton_http.InferenceServerClient(f"127.0.0.1:{node.http}", network_timeout=60) as client:
        assert client.get_model_config("mlp")["backend"] == "pytorch"
        assert client.get_model_metadata("mlp")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 16]}]
        for rows in (1, 4):
            x = torch.randn(rows, 16)
            given = triton_http.InferInput("x", [rows, 16], "FP32")
            given.set_data_from_numpy(x.numpy())
            answer = client.infer("mlp", [given]).as_numpy("OUTPUT__0")
            assert answer is not None
            assert np.ascontiguousarray(answer).tobytes() == raw(program(x))
    assert not _has_torch(node.process.pid)
    assert any(_has_torch(child.pid) for child in psutil.Process(node.process.pid).children(recursive=True))


def _has_torch(pid: int) -> bool:
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
