"""Models through the API: cards, facts and filters, archive and delete, quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from registry.models import Project, RegisteredModel
from tests.console.conftest import Cast

PROJECT = "/api/v1/projects/wren/"
MODEL = f"{PROJECT}models/finch/"
CARD = f"{MODEL}card/"


def tag(client: Any, address: str) -> dict[str, str]:
    return {"HTTP_IF_MATCH": client.get(address)["ETag"]}


def test_a_card_is_written_read_and_compared(cast: Cast, api: Callable[..., Any]) -> None:
    cast.ready_version()
    bob, vera = api("bob"), api("vera")
    assert bob.get(CARD).status_code == 404
    assert bob.put(CARD, {"text": "# One"}).status_code == 428
    first = bob.put(CARD, {"text": "# One\nsmall\n", "version": "latest"}, HTTP_IF_NONE_MATCH="*")
    assert (first.status_code, first.json()["number"], first.json()["version"]) == (201, 1, 1)
    assert bob.put(CARD, {"text": "# Mine"}, HTTP_IF_NONE_MATCH="*").status_code == 412
    second = bob.put(CARD, {"text": "# Two\nsmall\n", "comment": "x"}, **tag(bob, CARD))
    assert (second.status_code, second.json()["number"]) == (200, 2)
    assert bob.put(CARD, {"text": "# Late"}, HTTP_IF_MATCH=first["ETag"]).status_code == 412
    assert vera.put(CARD, {"text": "# Vera"}, **tag(vera, CARD)).status_code == 403
    read = vera.get(CARD).json()
    assert (read["text"], read["html"]) == ("# Two\nsmall\n", "<h3>Two</h3>\n<p>small</p>\n")
    rows = vera.get(f"{CARD}revisions/").json()["results"]
    assert [(row["number"], row["author"]) for row in rows] == [(2, "bob"), (1, "bob")]
    assert vera.get(f"{CARD}revisions/1/").json()["text"].startswith("# One")
    diff = vera.get(f"{CARD}revisions/2/diff?against=1").json()["lines"]
    assert [(line["kind"], line["text"]) for line in diff] == [
        ("removed", "# One"), ("added", "# Two"), ("same", "small"),
    ]  # fmt: skip
    assert vera.get(f"{CARD}revisions/2/diff?against=x").status_code == 400
    assert vera.get(f"{CARD}revisions/2/diff").status_code == 400
    assert vera.get(f"{CARD}revisions/9/").status_code == 404
    for text in ("", "x" * (128 * 1024 + 1)):
        refused = bob.put(CARD, {"text": text}, **tag(bob, CARD))
        assert refused.status_code == 400 and refused.json()["errors"][0]["field"] == "text"


def test_facts_of_a_model_are_set_and_found(cast: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    links = [{"label": "Paper", "url": "https://example.org"}]
    made = bob.post(f"{PROJECT}models/", {"slug": "finch", "task": "translation", "links": links})
    assert made.status_code == 201 and made.json()["links"] == links
    bob.post(f"{PROJECT}models/", {"slug": "wagtail"})
    changed = bob.patch(MODEL, {"tags": {"team": "nlp"}, "owner": "alice"}, **tag(bob, MODEL))
    assert changed.json()["owner"] == "alice" and changed.json()["task"] == "translation"
    for query in (
        "task=translation",
        "tag=team",
        "tag=team%3Dnlp",
        "owner__username=alice",
        "search=FIN",
        "slug=finch",
    ):
        rows = bob.get(f"{PROJECT}models/?{query}").json()["results"]
        assert [row["slug"] for row in rows] == ["finch"], query
    assert bob.get(f"{PROJECT}models/?tag=none").json()["results"] == []
    for bad, field in (
        ({"task": "No"}, "task"),
        ({"links": [{"label": "x", "url": "ftp://a.b"}]}, "links[0]"),
        ({"owner": "charlie"}, "owner"),
    ):
        answer = bob.patch(MODEL, bad, **tag(bob, MODEL))
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)
    assert bob.patch(MODEL, {"owner": "bob"}, **tag(bob, MODEL)).status_code == 403


def test_a_model_is_archived_restored_and_deleted(cast: Cast, api: Callable[..., Any]) -> None:
    cast.ready_version()
    alice, bob = api("alice"), api("bob")
    assert alice.delete(MODEL, **tag(alice, MODEL)).status_code == 409
    assert bob.post(f"{MODEL}archive", HTTP_IF_MATCH='W/"other"').status_code == 412
    assert bob.post(f"{MODEL}archive", **tag(bob, MODEL)).json()["state"] == "archived"
    assert bob.post(f"{MODEL}versions/", {}).status_code == 409
    assert bob.get(f"{PROJECT}models/?state=active").json()["results"] == []
    assert bob.post(f"{MODEL}restore").json()["state"] == "active"
    bob.post(f"{MODEL}archive")
    assert alice.get(f"{MODEL}impact").json()["versions"] == 1
    assert bob.delete(MODEL, **tag(bob, MODEL)).status_code == 403
    assert alice.delete(MODEL, **tag(alice, MODEL)).status_code == 204
    assert alice.get(MODEL).status_code == 404 and not RegisteredModel.objects.exists()


@pytest.mark.parametrize("name", ["bob", "vera"])
def test_quotas_are_read_by_members_and_set_by_site_administrators(
    name: str, cast: Cast, api: Callable[..., Any]
) -> None:
    address, alice = f"{PROJECT}quotas/", api("alice")
    read = api(name).get(address)
    assert read.json()["versions"] == {"used": 0, "limit": 100_000}
    assert api(name).patch(address, {"versions": 1}, **tag(alice, address)).status_code == 403
    assert alice.patch(address, {"versions": -1}, **tag(alice, address)).status_code == 400
    assert alice.patch(address, {"versions": 1}, **tag(alice, address)).json()["versions"]["limit"] == 1
    assert alice.patch(address, {"versions": 2}, HTTP_IF_MATCH=read["ETag"]).status_code == 412
    cast.ready_version()
    refused = api("bob").post(f"{MODEL}versions/", {})
    assert refused.json()["code"] == "quota_exceeded" and "administrator" in refused.json()["detail"]
    assert Project.objects.get(slug="wren").quota_versions == 1
