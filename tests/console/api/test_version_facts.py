"""Source, metrics, lineage, ranking, comparison and previews of versions through the API and the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from registry.services import versions
from tests.console.conftest import Cast, signed_in

MODEL = "/api/v1/projects/wren/models/finch/"
PAGES = "/p/wren/models/finch/"


@pytest.fixture
def people(cast: Cast) -> Callable[[str], Client]:
    return lambda name: signed_in(Client(), getattr(cast, name))


def test_a_version_is_made_with_all_that_is_known(cast: Cast, api: Callable[..., Any]) -> None:
    cast.ready_version("base")
    cast.ready_version()
    bob = api("bob")
    body = {
        "source": {"git_sha": "0" * 40, "dataset": "november"},
        "metrics": {"accuracy": 0.9},
        "metadata": {"seed": 7},
        "parent": {"model": "base", "version": "latest"},
    }
    made = bob.post(f"{MODEL}versions/", body)
    assert made.status_code == 201, made.content
    assert made.json()["parent"]["model"] == "base" and made.json()["metrics"] == {"accuracy": 0.9}
    lineage = bob.get(f"{MODEL}versions/{made.json()['id']}/lineage").json()
    assert [(one["model"], one["number"]) for one in lineage["ancestors"]] == [("base", 1)]
    children = bob.get("/api/v1/projects/wren/models/base/versions/1/lineage").json()["children"]
    assert [one["id"] for one in children] == [made.json()["id"]]
    for bad, field in (
        ({"source": {"branch": "x"}}, "source.branch"),
        ({"source": {"git_sha": "?"}}, "source.git_sha"),
        ({"metrics": {"7": 1}}, "metrics.7"),
    ):
        answer = bob.post(f"{MODEL}versions/", bad)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)
    assert bob.post(f"{MODEL}versions/", {"parent": {"version": 9}}).status_code == 404
    assert bob.post(f"{MODEL}versions/", {"parent": {"model": "none", "version": 1}}).status_code == 404


def test_results_come_in_later_and_rank(cast: Cast, api: Callable[..., Any]) -> None:
    cast.ready_version(content=b"one")
    cast.ready_version(content=b"two")
    bob = api("bob")
    for number, value in ((1, 0.5), (2, 0.7)):
        address = f"{MODEL}versions/{number}/"
        tag = bob.get(address)["ETag"]
        assert bob.patch(address, {"metrics": {"accuracy": value}}, HTTP_IF_MATCH=tag).status_code == 200
    assert bob.patch(address, {"source": {}}, HTTP_IF_MATCH="*").status_code == 400
    assert api("vera").patch(address, {"metrics": {}}, HTTP_IF_MATCH="*").status_code == 403
    ranking = bob.get(f"{MODEL}ranking?metric=accuracy").json()["results"]
    assert [(one["number"], one["value"]) for one in ranking] == [(2, 0.7), (1, 0.5)]
    assert bob.get(f"{MODEL}ranking?metric=accuracy&order=lowest").json()["results"][0]["number"] == 1
    assert bob.get(f"{MODEL}ranking").status_code == 400
    assert bob.get(f"{MODEL}ranking?metric=a&order=best").status_code == 400
    found = bob.get(f"{MODEL}versions/2/compare?against=1").json()
    assert found["metrics"][0]["change"] == pytest.approx(0.2)
    assert [one["name"] for one in found["files"]] == ["model.onnx"]
    assert bob.get(f"{MODEL}versions/2/compare").status_code == 400
    assert bob.get(f"{MODEL}versions/2/compare?against=9").status_code == 404


def test_texts_are_shown_and_never_as_html(
    cast: Cast, api: Callable[..., Any], people: Callable[[str], Client]
) -> None:
    version = cast.version()
    cast.store_file(version, "labels & more.txt", b"<script>alert(1)</script>\n" + b"x" * 100_000)
    cast.store_file(version, "weights.bin", b"\0\1\2")
    vera = api("vera")
    shown = vera.get(f"{MODEL}versions/{version.pk}/preview?path=labels%20%26%20more.txt").json()
    assert shown["is_text"] and shown["is_cut"] and shown["text"].startswith("<script>") and len(shown["text"]) < 5000
    assert vera.get(f"{MODEL}versions/{version.pk}/preview?path=weights.bin").json()["is_text"] is False
    assert vera.get(f"{MODEL}versions/{version.pk}/preview?path=none").status_code == 404
    assert api("charlie").get(f"{MODEL}versions/{version.pk}/preview?path=weights.bin").status_code == 404
    versions.version_submit(version=version, actor=cast.actor("bob"))
    _accept(cast, version)
    page = people("vera").get(f"{PAGES}versions/1/preview/?path=labels+%26+more.txt").text
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    assert "This is no text" in people("vera").get(f"{PAGES}versions/1/preview/?path=weights.bin").text
    assert people("charlie").get(f"{PAGES}versions/1/preview/?path=weights.bin").status_code == 404


def _accept(cast: Cast, version: Any) -> None:
    from serving_node.contract.digests import manifest_digest
    from tests.console.conftest import SIGNATURE, FileRef

    files = [FileRef(file.path, file.blob.sha256, file.blob.size) for file in version.files.all()]
    versions.version_accept(
        version=version, signature=SIGNATURE, format="onnx", manifest_digest=manifest_digest(files), size=1
    )


def test_pages_compare_rank_and_take_metrics(cast: Cast, people: Callable[[str], Client]) -> None:
    cast.ready_version(content=b"one")
    second = cast.ready_version(content=b"two")
    child = versions.version_create(model=second.model, parent=second, actor=cast.actor("bob"))
    bob = people("bob")
    given = {"metrics": "accuracy 0.9\nloss = 0.25", "seen": ""}
    assert bob.post(f"{PAGES}versions/2/annotate/", given).status_code == 302
    second.refresh_from_db()
    assert second.metrics == {"accuracy": 0.9, "loss": 0.25}
    bob.post(f"{PAGES}versions/2/annotate/", {"metrics": "accuracy 1", "seen": ""})  # too late
    assert bob.post(f"{PAGES}versions/2/annotate/", {"metrics": "nothing", "seen": ""}).status_code == 409
    second.refresh_from_db()
    assert second.metrics["accuracy"] == 0.9
    page = bob.get(f"{PAGES}versions/2/").text
    assert 'data-testid="lineage"' in page and str(child.pk) in page and "0.25" in page
    assert "accuracy" in bob.get(f"{PAGES}versions/compare/?before=1&after=2").text
    assert "has no" in bob.get(f"{PAGES}versions/compare/?before=1&after=nobody").text
    assert 'data-testid="ranking"' in bob.get(f"{PAGES}versions/?metric=loss&order=lowest").text
    assert people("charlie").get(f"{PAGES}versions/compare/?before=1&after=2").status_code == 404
