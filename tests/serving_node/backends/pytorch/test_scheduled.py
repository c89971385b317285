"""What the scheduler adds to batches: sequences with states, ragged inputs, padding, warm-up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import torch

from serving_node.core.request import InferenceRequest, InferenceResponse
from tests.serving_node import torch_models
from tests.serving_node.backends.pytorch.served import arrays, fp32, infer, load

RAGGED = """
    max_batch_size: 8 dynamic_batching { }
    input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
    output { name: "y" data_type: TYPE_FP32 dims: 1 }
    batch_input { kind: BATCH_ELEMENT_COUNT target_name: "lengths" data_type: TYPE_FP32 source_input: "x" }
"""


async def test_ragged_requests_share_a_batch(tmp_path: Path) -> None:
    code = """
        class Sums(torch.nn.Module):
            def forward(self, x, lengths):
                parts = x.split(lengths.int().tolist())
                return torch.stack([part.sum() for part in parts]).reshape(-1, 1)
    """
    torch_models.save_module(tmp_path / "model.py", code)
    model = await load(tmp_path, RAGGED)
    requests = [[fp32("x", torch.full((1, length), float(length)))] for length in (3, 1, 5)]
    responses = await infer(model, *requests)
    assert [arrays(response)["y"].tolist() for response in responses] == [[[9]], [[1]], [[25]]]
    assert (model.statistics.inference_count, model.statistics.execution_count) == (3, 1)
    await model.close()


STATES = """
    max_batch_size: 4
    sequence_batching {
        control_input { name: "START__1" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } }
        state { input_name: "TOTAL__2" output_name: "TOTAL__1" data_type: TYPE_FP32 dims: 1 }
    }
    input { name: "INPUT__0" data_type: TYPE_FP32 dims: 1 }
    output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 1 }
"""


class Accumulate(torch.nn.Module):
    def forward(self, x: torch.Tensor, start: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = torch.where(start > 0, x, x + total)
        return total * 2, total


async def test_sequences_keep_their_states(tmp_path: Path) -> None:
    path = torch_models.save_script(tmp_path / "1" / "model.pt", Accumulate())
    model = await load(path.parent, STATES)
    found = []
    for step, value in enumerate((1.0, 2.0, 3.0)):
        answered: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()
        request = InferenceRequest("m", "", [fp32("INPUT__0", torch.tensor([[value]]))], answered.set_result)
        request.sequence_id, request.sequence_start, request.sequence_end = 7, step == 0, step == 2
        model.rules.check(request)
        model.submit(request)
        found.append(arrays(await asyncio.wait_for(answered, 20))["OUTPUT__0"].tolist())
    assert found == [[[2]], [[6]], [[12]]]
    await model.close()


PADDED = """
    max_batch_size: 8 dynamic_batching { }
    input { name: "x" data_type: TYPE_FP32 dims: -1 }
    output { name: "y" data_type: TYPE_FP32 dims: 1 }
    parameters { key: "flotilla.padding.x" value { string_value: "0" } }
    parameters { key: "flotilla.padding_mask.x" value { string_value: "mask:FP32" } }
"""


class Masked(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x * mask).sum(1, keepdim=True) + mask.sum(1, keepdim=True)


async def test_padded_requests_share_a_batch(tmp_path: Path) -> None:
    rows, length = torch_models.ROWS, torch.export.Dim("length")
    example = (torch.ones(3, 4), torch.ones(3, 4))
    path = tmp_path / "1" / "model.pt2"
    torch_models.save_exported(path, Masked(), example, ({0: rows, 1: length}, {0: rows, 1: length}))
    model = await load(path.parent, PADDED.replace('name: "y"', 'name: "OUTPUT__0"'))
    responses = await infer(model, *([fp32("x", torch.ones(1, length))] for length in (2, 5, 3)))
    assert [arrays(response)["OUTPUT__0"].tolist() for response in responses] == [[[4]], [[10]], [[6]]]
    assert model.statistics.execution_count == 1
    await model.close()
