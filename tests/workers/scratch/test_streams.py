"""Models that answer any number of times, and models of sequences, on real scratch nodes in the real sandbox."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.workers.scratch import models
from tests.workers.scratch.test_trial import recheck, row, validated, work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def sandboxed(settings: Any) -> None:
    settings.SANDBOX = True
    settings.SANDBOX_SECONDS = 100


def test_a_decoupled_model_is_asked_over_a_stream() -> None:
    sample = {"inputs": [{"name": "count", "datatype": "INT32", "shape": [1], "data": [4]}]}
    expected = {
        **sample,
        "name": "three",
        "expected": [{"name": "left", "datatype": "INT32", "shape": [1], "data": [4]}],
    }
    samples = json.dumps([sample, expected]).encode()
    version = validated({"model.py": models.DECOUPLED, "sample_inputs.json": samples})
    assert version.state == "ready", version.state_reason
    work(version)
    smoke = row(version, "smoke")
    summary = "10 answers to 2 requests are as the config says. 1 is as its sample expects."
    assert (smoke.verdict, smoke.summary) == ("pass", summary), smoke.log
    first = smoke.evidence["answers"][0]
    assert (first["stream"]["answers"], first["stream"]["is_final"], first["asked"]) == (5, True, "sample 1")
    assert first["milliseconds"] >= first["stream"]["first_milliseconds"] > 0
    assert first["stream"]["between_milliseconds_most"] >= first["stream"]["between_milliseconds_p50"] > 0
    assert [(one["name"], one["least"], one["most"]) for one in first["outputs"]] == [("left", 0.0, 4.0)]
    latency = recheck(version, "latency")
    assert latency.verdict == "pass", (latency.summary, latency.log)
    (cell,) = latency.evidence["cells"]
    assert cell["answers_p50"] in (1, 2)  # of a made-up 0 or 1
    assert 0 < cell["first_p50_ms"] <= cell["latency_p50_ms"]
    assert latency.summary.startswith("Batch 1: first of ")


@pytest.mark.parametrize(
    ("change", "verdict", "sentence"),
    [
        ((b"range(count, -1, -1)", b"range(0)"), "warn", "It ended a request without an answer."),
        ((b"[left], np.int32", b"[left] * (1 + left), np.int32"), "fail", "has the shape [2], the config says [1]"),
    ],
    ids=["none", "later"],
)
def test_streams_that_are_not_as_promised(change: tuple[bytes, bytes], verdict: str, sentence: str) -> None:
    sample = {"inputs": [{"name": "count", "datatype": "INT32", "shape": [1], "data": [1]}]}
    files = {"model.py": models.DECOUPLED.replace(*change), "sample_inputs.json": json.dumps(sample).encode()}
    version = validated(files)
    work(version)
    smoke = row(version, "smoke")
    assert smoke.verdict == verdict, (smoke.summary, smoke.log)
    assert sentence in smoke.summary


def test_a_sequence_has_a_beginning_a_middle_and_an_end() -> None:
    version = validated({"model.py": models.SEQUENCE, "config.pbtxt": models.SEQUENCE_CONFIG})
    assert version.state == "ready", version.state_reason
    work(version)
    smoke = row(version, "smoke")
    assert (smoke.verdict, smoke.summary) == ("pass", "3 answers are as the config says."), (smoke.summary, smoke.log)
    names = [answer["asked"] for answer in smoke.evidence["answers"]]
    assert names == ["sequence, start", "sequence, middle", "sequence, end"]
    latency = recheck(version, "latency")
    assert latency.verdict == "pass", (latency.summary, latency.log)
    assert [cell["batch"] for cell in latency.evidence["cells"]] == [1]
