"""Models, versions and configs through the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.serializers import ModelSerializer

from console.api.v1.serializers.catalog import VersionSerializer
from registry.models import AuditEvent, VersionState
from registry.services import aliases, versions
from tests.console.conftest import Cast

MODELS = "/api/v1/projects/wren/models/"


def test_model_is_created_once_and_the_audit_names_the_request(cast: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    made = bob.post(MODELS, {"slug": "finch", "tags": {"team": "birds"}}, HTTP_X_REQUEST_ID="build-4711")
    assert made.status_code == 201
    assert made.json()["owner"] == "bob"
    event = AuditEvent.objects.get(action="model.create")
    assert (event.actor_name, event.request_id, event.ip) == ("bob", "build-4711", "127.0.0.1")
    assert event.token_id is not None
    again = bob.post(MODELS, {"slug": "finch"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert bob.post(MODELS, {"slug": "../finch"}).status_code == 400
    assert [row["slug"] for row in bob.get(MODELS).json()["results"]] == ["finch"]


def test_a_version_is_written_as_its_fields_say(cast: Cast) -> None:
    first = cast.ready_version("finch")
    aliases.alias_set(model=first.model, name="champion", version=first, actor=cast.actor("bob"))
    second = versions.version_create(
        model=first.model, metrics={"accuracy": 0.5}, metadata={"a": [1]}, parent=first, actor=cast.actor("bob")
    )
    for version in (first, second):
        version.refresh_from_db()
        quick, slow = VersionSerializer(version).data, ModelSerializer.to_representation(VersionSerializer(), version)
        assert list(quick.items()) == list(slow.items())


def test_viewer_may_look_and_not_touch(cast: Cast, api: Callable[..., Any]) -> None:
    cast.version("finch")
    vera = api("vera")
    assert vera.get(f"{MODELS}finch/").status_code == 200
    assert vera.post(MODELS, {"slug": "wagtail"}).status_code == 403
    assert vera.patch(f"{MODELS}finch/", {"description": "mine"}, HTTP_IF_MATCH="*").status_code == 403


def test_stale_write_is_412_and_unchanged_read_is_304(cast: Cast, api: Callable[..., Any]) -> None:
    cast.version("finch")
    bob = api("bob")
    tag = bob.get(f"{MODELS}finch/").headers["ETag"]
    assert bob.get(f"{MODELS}finch/", HTTP_IF_NONE_MATCH=tag).status_code == 304
    assert bob.patch(f"{MODELS}finch/", {"description": "one"}, HTTP_IF_MATCH=tag).status_code == 200
    assert bob.patch(f"{MODELS}finch/", {"description": "two"}, HTTP_IF_MATCH=tag).status_code == 412
    assert bob.get(f"{MODELS}finch/").json()["description"] == "one"


def test_repeated_write_with_a_key_happens_once(cast: Cast, api: Callable[..., Any]) -> None:
    cast.version("finch")
    bob = api("bob")
    address = f"{MODELS}finch/versions/"
    key = {"HTTP_IDEMPOTENCY_KEY": f"key-{cast.project.pk}"}
    first = bob.post(address, {"source": {"git_sha": "abcd"}}, **key)
    second = bob.post(address, {"source": {"git_sha": "abcd"}}, **key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["Idempotent-Replay"] == "true"
    other = bob.post(address, {"source": {"git_sha": "defa"}}, **key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert api("alice").post(address, {"source": {"git_sha": "abcd"}}, **key).json()["id"] != first.json()["id"]
    assert bob.post(address, {}, HTTP_IDEMPOTENCY_KEY="with space").status_code == 400


def test_version_goes_from_empty_to_checks(cast: Cast, api: Callable[..., Any]) -> None:
    version = cast.version("finch")
    bob = api("bob")
    address = f"{MODELS}finch/versions/{version.pk}/"
    assert bob.get(address).json()["state"] == "uploading"
    assert bob.post(f"{address}submit").status_code == 400
    cast.store_file(version, "model.onnx", b"not really onnx")
    files = bob.get(f"{address}files/").json()["results"]
    assert [(row["path"], row["size"]) for row in files] == [("model.onnx", 15)]
    answer = bob.post(f"{address}submit")
    assert answer.status_code == 202
    operation = bob.get(answer.headers["Location"]).json()
    assert (operation["kind"], operation["state"]) == ("validate_version", "pending")
    version.refresh_from_db()
    assert version.state == VersionState.VALIDATING
    assert bob.post(f"{address}submit").status_code == 409
    listed = bob.get(f"{MODELS}finch/versions/?state=validating&fields=id,state").json()["results"]
    assert listed == [{"id": str(version.pk), "state": "validating"}]
    assert bob.get(f"{MODELS}finch/versions/?state=ready").json()["results"] == []
    assert bob.get(f"{MODELS}finch/versions/?number=rubbish").json()["errors"][0]["parameter"] == "number"


def test_version_of_another_model_is_not_found_under_this_one(cast: Cast, api: Callable[..., Any]) -> None:
    version = cast.version("finch")
    cast.version("wagtail")
    for name in (str(version.pk), "7", "rubbish", "9" * 30):
        assert api("bob").get(f"{MODELS}wagtail/versions/{name}/").status_code == 404


def test_known_content_can_be_attached_by_those_who_may_read_it(cast: Cast, api: Callable[..., Any]) -> None:
    first, second = cast.version("finch"), cast.version("finch")
    cast.store_file(first, "model.onnx", b"shared weights")
    sha256 = first.files.get().blob.sha256
    body = {"path": "model.onnx", "sha256": sha256}
    bob = api("bob")
    assert bob.post(f"{MODELS}finch/versions/{second.pk}/files/", body).status_code == 201
    unknown = {"path": "other.onnx", "sha256": "0" * 64}
    assert bob.post(f"{MODELS}finch/versions/{second.pk}/files/", unknown).status_code == 404
    charlie = api("charlie")
    charlie.post("/api/v1/projects/elsewhere/models/", {"slug": "magpie"})
    mine = charlie.post("/api/v1/projects/elsewhere/models/magpie/versions/", {}).json()["id"]
    theft = charlie.post(f"/api/v1/projects/elsewhere/models/magpie/versions/{mine}/files/", body)
    assert theft.status_code == 404


REPORT = {
    "source": {"name": "first.onnx", "sha256": "a" * 64, "size": 5, "format": "onnx"},
    "target": {"name": "half.onnx", "sha256": "b" * 64, "size": 3, "format": "onnx"},
    "steps": ["fp16"],
    "tolerance": {"relative": 0.01, "absolute": 0.001},
    "samples": {"rows": [1, 7], "seed": 0},
    "outputs": [{"name": "y", "datatype": "FP32", "elements": 8, "worst": 0.5}],
}


def test_a_conversion_report_is_attached_before_the_version_is_submitted(cast: Cast, api: Callable[..., Any]) -> None:
    version = cast.version("finch")
    address = f"{MODELS}finch/versions/{version.pk}/"
    bob = api("bob")
    assert api("vera").post(f"{address}conversion", {"report": REPORT}).status_code == 403
    answer = bob.post(f"{address}conversion", {"report": REPORT})
    assert (answer.status_code, answer.json()["kind"], answer.json()["verdict"]) == (201, "conversion", "pass")
    assert bob.get(f"{address}checks/").json()["results"][0]["evidence"]["report"]["steps"] == ["fp16"]
    assert bob.get(address).json()["source"]["converted_from"]["file"] == "first.onnx"
    for report, field in (
        ({**REPORT, "steps": "fp16"}, "steps"),
        ({**REPORT, "extra": 1}, "extra"),
        ({}, "source"),
        ([], "report"),
    ):
        refused = bob.post(f"{address}conversion", {"report": report})
        assert refused.status_code == 400
        assert field in str(refused.json()["errors"])
    cast.store_file(version, "model.onnx", b"not really onnx")
    bob.post(f"{address}submit")
    assert bob.post(f"{address}conversion", {"report": REPORT}).status_code == 409


def test_abandoned_version_takes_no_more(cast: Cast, api: Callable[..., Any]) -> None:
    version = cast.version("finch")
    address = f"{MODELS}finch/versions/{version.pk}/"
    assert api("vera").post(f"{address}abandon", {}).status_code == 403
    assert api("bob").post(f"{address}abandon", {"reason": "wrong file"}).json()["state"] == "abandoned"
    assert api("bob").post(f"{address}submit").status_code in {400, 409}


def test_config_is_judged_stored_read_and_compared(cast: Cast, api: Callable[..., Any]) -> None:
    cast.version("finch")
    bob = api("bob")
    text = 'backend: "onnxruntime"\nmax_batch_size: 8\n'
    report = bob.post(f"{MODELS}finch/configs/validate", {"text": text, "format": "pbtxt"}).json()
    assert report["ok"], report
    assert bob.get(f"{MODELS}finch/configs/").json()["results"] == []
    bad = bob.post(f"{MODELS}finch/configs/validate", {"body": {"max_batch_sise": 8}}).json()
    assert not bad["ok"]
    assert bad["errors"]
    first = bob.post(f"{MODELS}finch/configs/", {"text": text, "format": "pbtxt"})
    assert first.status_code == 201, first.json()
    assert "max_batch_size: 8" in first.json()["pbtxt"]
    body = {**first.json()["body"], "max_batch_size": 16}
    second = bob.post(f"{MODELS}finch/configs/", {"body": body, "comment": "bigger", "parent": 1})
    assert (second.json()["number"], second.json()["parent"]) == (2, 1)
    changes = bob.get(f"{MODELS}finch/configs/2/diff?against=1").json()
    assert {"path": "max_batch_size", "before": 8, "after": 16} in changes
    assert bob.get(f"{MODELS}finch/configs/0/").json()["number"] == 2
    assert bob.get(f"{MODELS}finch/configs/9/").status_code == 404
    assert bob.get(f"{MODELS}finch/configs/2/diff").status_code == 400
    refused = bob.post(f"{MODELS}finch/configs/", {"body": {"max_batch_size": -1}})
    assert (refused.status_code, refused.json()["code"]) == (400, "validation_failed")


def test_cursor_pages_hold_every_row_once(cast: Cast, api: Callable[..., Any]) -> None:
    for number in range(7):
        cast.version(f"bird-{number}")
    bob = api("bob")
    seen: list[str] = []
    address: str | None = f"{MODELS}?page_size=3"
    while address:
        page = bob.get(address).json()
        seen += [row["slug"] for row in page["results"]]
        address = page["next"]
    assert seen == [f"bird-{number}" for number in reversed(range(7))]
    oldest = bob.get(f"{MODELS}?page_size=1&ordering=created_at").json()["results"]
    assert oldest[0]["slug"] == "bird-0"


@pytest.mark.parametrize("body", ["[1]", "{", "nonsense", "7"])
def test_body_that_is_no_object_is_400(cast: Cast, api: Callable[..., Any], body: str) -> None:
    assert api("bob").post(MODELS, body, content_type="application/json").status_code == 400


def test_body_that_is_too_large_is_413(cast: Cast, api: Callable[..., Any]) -> None:
    answer = api("bob").post(MODELS, {"slug": "finch", "description": "x" * 3_000_000})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
