"""Sample inputs through the API: of a model, of a version, and what smoke inference makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from registry.models import AuditEvent, SampleSet
from tests.console.conftest import Cast
from workers.checks.smoke import _samples

MODEL = "/api/v1/projects/wren/models/finch/samples/"
VERSION = "/api/v1/projects/wren/models/finch/versions/1/samples/"
X = {"name": "x", "datatype": "FP32", "shape": [1], "data": [0.5]}
SAMPLE = {"name": "one", "inputs": [X], "expected": [{**X, "name": "y"}]}


def put(client: Any, address: str, samples: Any, **headers: str) -> Any:
    tag = {"HTTP_IF_MATCH": client.get(address)["ETag"], **headers}
    return client.put(address, {"samples": samples}, **tag)


def test_samples_are_stored_changed_and_taken_away(cast: Cast, api: Callable[..., Any]) -> None:
    version = cast.ready_version(content=b"one")
    bob, vera = api("bob"), api("vera")
    assert vera.get(MODEL).json() == {"samples": [], "sha256": "", "updated_by": None, "updated_at": None}
    assert bob.put(MODEL, {"samples": [SAMPLE]}).status_code == 428
    assert put(vera, MODEL, [SAMPLE]).status_code == 403
    early = bob.get(MODEL)["ETag"]
    made = put(bob, MODEL, [SAMPLE])
    assert (made.status_code, made.json()["samples"], made.json()["updated_by"]) == (200, [SAMPLE], "bob")
    assert put(bob, MODEL, [], HTTP_IF_MATCH=early).status_code == 412
    assert (_samples(version)[0][0].name, _samples(version)[1]) == ("one", "model")
    assert put(bob, VERSION, [{**SAMPLE, "name": "own"}, SAMPLE]).status_code == 200
    assert (len(_samples(version)[0]), _samples(version)[1]) == (2, "version")
    assert put(bob, VERSION, []).json()["samples"] == []
    assert _samples(version)[1] == "model" and SampleSet.objects.count() == 1
    events = AuditEvent.objects.filter(action="samples.save").order_by("created_at")
    counts = [((event.before or {}).get("count"), event.after["count"]) for event in events]
    assert counts == [(None, 1), (None, 2), (2, 0)]


@pytest.mark.parametrize(
    "samples",
    [
        [{"inputs": []}], [{**SAMPLE, "inputs": [{**X, "data": [1, 2]}]}], [SAMPLE, SAMPLE], [SAMPLE] * 17, [7], {},
        [{**SAMPLE, "inputs": [{**X, "datatype": "BYTES", "data": ["x" * (1 << 20)]}]}],
    ],
    ids=["empty", "count", "twice", "many", "number", "object", "long"],
)  # fmt: skip
def test_what_is_no_sample_is_refused(cast: Cast, api: Callable[..., Any], samples: Any) -> None:
    cast.ready_version(content=b"one")
    answer = put(api("bob"), MODEL, samples)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_failed")
    assert answer.json()["errors"][0]["field"].startswith("samples")
    assert not SampleSet.objects.exists()
