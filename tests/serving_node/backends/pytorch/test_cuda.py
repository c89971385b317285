"""Instances on a GPU. What needs none is tested everywhere; the rest where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from serving_node.backends.pytorch.cuda import graph_shapes, shapes_of
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.errors import InferenceError
from tests.serving_node import torch_models
from tests.serving_node.backends.pytorch.served import arrays, fp32, infer, load, raw, sent

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
GPU = "instance_group { count: 2 kind: KIND_GPU gpus: 0 }"
IO = 'input {{ name: "x" data_type: TYPE_{0} dims: {1} }} output {{ name: "y" data_type: TYPE_{0} dims: -1 }}'


def test_a_graph_is_found_by_the_types_and_shapes_of_all_inputs() -> None:
    config = parse_pbtxt(
        f'max_batch_size: 8 {IO.format("FP32", 3)} input {{ name: "a" data_type: TYPE_BF16 dims: 1 reshape {{ }} }}'
        " optimization { cuda { graphs: true graph_spec { batch_size: 2 } graph_spec { batch_size: 8 } } }"
    )
    two, eight = graph_shapes(config)
    assert two == (("a", torch.bfloat16, (2,)), ("x", torch.float32, (2, 3)))
    given = {"x": torch.ones(2, 3), "a": torch.ones(2, dtype=torch.bfloat16)}
    assert shapes_of(given) == two != eight
    assert shapes_of(given | {"x": torch.ones(8, 3)}) not in (two, eight)
    assert shapes_of(given | {"words": ["a"]}) is None


def test_graphs_need_fixed_shapes() -> None:
    graphs = "optimization { cuda { graphs: true } }"
    config = parse_pbtxt(f'name: "m" max_batch_size: 8 {IO.format("FP32", -1)} {graphs}')
    with pytest.raises(InferenceError, match="need tensors of fixed shapes, and input 'x' is none"):
        graph_shapes(config)
    assert graph_shapes(parse_pbtxt(f"max_batch_size: 8 {IO.format('FP32', -1)}")) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
async def test_a_gpu_that_is_not_there_is_told_at_load(tmp_path: Path) -> None:
    path = torch_models.save_mlp(tmp_path / "1" / "model.pt2")
    with pytest.raises(InferenceError, match="model 'm' asks for GPU 0, but the PyTorch of this node has none"):
        await load(path.parent, GPU, gpu_count=1)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("rows", [1, 7, 16])
async def test_a_program_on_the_gpu_is_bit_equal_to_a_direct_call(tmp_path: Path, rows: int) -> None:
    path = torch_models.save_mlp(tmp_path / "1" / "model.pt2")
    model = await load(path.parent, f"max_batch_size: 16 {GPU}", gpu_count=1)
    direct = torch.export.passes.move_to_device_pass(torch.export.load(path), "cuda:0").module()
    x = torch.randn(rows, 16)
    for _ in range(4):
        (response,) = await infer(model, [fp32("x", x)])
        assert arrays(response)["OUTPUT__0"].tobytes() == raw(direct(x.cuda()).cpu())
    await model.close()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("more", ["", 'parameters { key: "ENABLE_CACHE_CLEANING" value { string_value: "true" } }'])
async def test_torchscript_on_the_gpu(tmp_path: Path, more: str) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", torch_models.Mlp())
    model = await load(path.parent, f"max_batch_size: 16 {IO.format('FP32', 16)} {GPU} {more}", gpu_count=1)
    x = torch.randn(3, 16)
    (response,) = await infer(model, [fp32("x", x)])
    assert arrays(response)["y"].tobytes() == raw(torch.jit.load(path, "cuda:0")(x.cuda()).cpu())
    await model.close()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("shape", [(1, 5), (16, 0), (16, 300)])
async def test_bfloat16_and_empty_tensors_through_pinned_memory(tmp_path: Path, shape: tuple[int, int]) -> None:
    torch_models.save_module(
        tmp_path / "model.py", "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    )
    model = await load(tmp_path, f"max_batch_size: 16 {IO.format('BF16', -1)} {GPU}", gpu_count=1)
    x = torch.randn(shape).to(torch.bfloat16)
    for _ in range(3):
        (response,) = await infer(model, [sent("x", x, "BF16")])
        assert bytes(response.outputs[0].data) == raw(x + 1)
    await model.close()


@pytest.mark.gpu
@needs_gpu
async def test_cuda_graphs_answer_as_without(tmp_path: Path) -> None:
    path = torch_models.save_mlp(tmp_path / "1" / "model.pt2")
    sizes = "optimization { cuda { graphs: true graph_spec { batch_size: 1 } graph_spec { batch_size: 4 } } }"
    plain = await load(path.parent, f"max_batch_size: 16 {GPU}", gpu_count=1)
    graphed = await load(path.parent, f"max_batch_size: 16 {GPU} {sizes}", gpu_count=1)
    for rows in (1, 4, 5, 1, 4):  # 5 has no graph
        x = torch.randn(rows, 16)
        (expected,), (found,) = await infer(plain, [fp32("x", x)]), await infer(graphed, [fp32("x", x)])
        assert torch.allclose(
            torch.from_numpy(arrays(found)["OUTPUT__0"].copy()), torch.from_numpy(arrays(expected)["OUTPUT__0"].copy())
        )
    await plain.close()
    await graphed.close()
