"""Warm-up of Python models runs in their workers, and only what the config asks for."""

from __future__ import annotations

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

from .conftest import Models

NOTES = """
def initialize(self, args):
    self.notes = os.path.join(args["model_repository"], "notes")

def execute(self, requests):
    with open(self.notes, "a") as file:
        for request in requests:
            array = request.inputs()[0].as_numpy()
            file.write(f"{len(requests)} {array.shape} {array.ravel().tolist()!r}\\n")
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""
SAMPLE = """
model_warmup {{
  name: "w" batch_size: {size} count: {count}
  inputs {{ key: "IN" value {{ data_type: {datatype} dims: 2 {source} }} }}
}}
"""


def sample(source: str, *, size: int = 1, count: int = 0, datatype: str = "TYPE_FP32") -> str:
    return SAMPLE.format(size=size, count=count, datatype=datatype, source=source)


def notes(models: Models) -> list[str]:
    path = models.folder / "m" / "notes"
    return path.read_text().splitlines() if path.exists() else []


async def test_without_samples_nothing_runs(models: Models) -> None:
    await models.load(NOTES)
    assert notes(models) == []


async def test_a_sample_is_so_many_requests_in_one_execution_so_many_times(models: Models) -> None:
    await models.load(NOTES, sample("zero_data: true", size=3, count=2))
    assert notes(models) == ["3 (2,) [0.0, 0.0]"] * 6


async def test_every_instance_warms_up(models: Models) -> None:
    await models.load(NOTES, sample("zero_data: true") + "instance_group { kind: KIND_CPU count: 2 }")
    assert notes(models) == ["1 (2,) [0.0, 0.0]"] * 2


async def test_strings_come_from_a_file_with_their_lengths(models: Models) -> None:
    folder = models.folder / "m" / "warmup"
    folder.mkdir(parents=True)
    (folder / "words").write_bytes(b"\1\0\0\0a\2\0\0\0bc")
    extra = sample('input_data_file: "words"', datatype="TYPE_STRING")
    await models.load(NOTES, extra, datatype="TYPE_STRING")
    assert notes(models) == ["1 (2,) [b'a', b'bc']"]


async def test_a_sample_that_the_model_refuses_fails_the_load(models: Models) -> None:
    body = """
    def execute(self, requests):
        raise ValueError("not warm")
    """
    with pytest.raises(InferenceError) as caught:
        await models.load(body, sample("random_data: true"))
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert caught.value.message.startswith(
        "failed to run warmup sample 'w': Failed to process the request(s) for model 'm_0', message: ValueError: not"
    )
