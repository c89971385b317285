"""Pages about a model: its card, what is said about it, archive and delete; and a project's quotas."""

from __future__ import annotations

import re
from typing import Any

import pytest

from registry.models import ModelCard, ModelVersion, Project, RegisteredModel
from registry.services import models
from tests.console.conftest import Cast
from tests.console.web.conftest import Browse, Served

MODEL = "/p/wren/models/finch/"


def seen(page: str) -> str:
    found = re.search(r'name="seen" value="([^"]*)"', page)
    assert found is not None
    return found[1].replace("&quot;", '"')


def test_a_card_is_shown_safely_edited_and_kept(served: Served, browse: Browse) -> None:
    bob = browse("bob")
    page = bob.get(f"{MODEL}card/").text
    assert "<h3>Finch</h3>" in page and "<td>2</td>" in page
    preview = bob.post(f"{MODEL}card/preview/", {"text": "**b** <script>x</script>", "seen": "1"}).text
    assert "<strong>b</strong>" in preview and "<script>" not in preview
    given = {"text": "# Other\r\nline", "comment": "shorter", "seen": "1"}
    assert bob.post(f"{MODEL}card/edit/", given).status_code == 302
    assert ModelCard.objects.get(number=2).text == "# Other\nline"
    assert "shorter" in bob.get(f"{MODEL}card/").text
    assert "<del>- # Finch" in bob.get(f"{MODEL}card/2/").text
    late = bob.post(f"{MODEL}card/edit/", {**given, "text": "# Mine"})
    assert late.status_code == 422 and "# Mine" in late.text and seen(late.text) == "2"
    assert "# Finch" in bob.get(f"{MODEL}card/edit/?revision=1").text
    assert browse("vera").post(f"{MODEL}card/edit/", {**given, "seen": "2"}).status_code in (403, 422)
    assert ModelCard.objects.count() == 2


def test_what_is_said_about_a_model_is_edited_by_one_at_a_time(served: Served, browse: Browse) -> None:
    bob = browse("bob")
    given: dict[str, Any] = {
        "description": "Small birds",
        "task": "image-classification",
        "tags": "team=birds\nfast",
        "links": "The paper https://example.org/a",
        "owner": "bob",
        "seen": seen(bob.get(f"{MODEL}edit/").text),
    }
    assert bob.post(f"{MODEL}edit/", given).status_code == 302
    page = bob.get(MODEL).text
    assert "image-classification" in page and "team=birds" in page and 'href="https://example.org/a"' in page
    model = RegisteredModel.objects.get(slug="finch")
    assert model.tags == {"team": "birds", "fast": ""} and model.links[0]["label"] == "The paper"
    late = bob.post(f"{MODEL}edit/", {**given, "task": "translation"})
    assert late.status_code == 422 and "image-classification" in late.text
    bad = {**given, "links": "nothing", "seen": seen(bob.get(f"{MODEL}edit/").text)}
    assert bob.post(f"{MODEL}edit/", bad).status_code == 422
    assert "finch" in bob.get("/p/wren/models/?task=image-classification&tag=fast&owner=bob").text
    assert "No model matches" in bob.get("/p/wren/models/?task=translation").text


def test_archive_and_delete_ask_for_the_name(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    assert alice.post(f"{MODEL}act/", {"act": "archive"}).status_code == 409
    page = alice.get(f"{MODEL}edit/").text
    assert "deployment serves it" in page and 'data-testid="model-impact"' not in page
    model = served.version.model
    other = served.cast.version("wagtail").model
    models.model_archive(model=other, actor=served.cast.actor("alice"))
    assert "wagtail" not in alice.get("/p/wren/models/").text
    assert "wagtail" in alice.get("/p/wren/models/?state=archived").text
    place = "/p/wren/models/wagtail/"
    assert 'data-testid="model-impact"' in alice.get(f"{place}edit/").text
    alice.post(f"{place}act/", {"act": "delete", "confirm": "finch"})
    assert RegisteredModel.objects.filter(slug="wagtail").exists()
    assert browse("bob").post(f"{place}act/", {"act": "delete", "confirm": "wagtail"}).status_code == 403
    assert alice.post(f"{place}act/", {"act": "delete", "confirm": "wagtail"}).status_code == 302
    assert [one.slug for one in RegisteredModel.objects.all()] == [model.slug]


def test_quotas_are_bars_and_site_administrators_change_them(served: Served, browse: Browse) -> None:
    address = "/settings/projects/wren/"
    assert 'data-testid="quota-form"' not in browse("bob").get(address).text
    alice = browse("alice")
    page = alice.get(address).text
    assert page.count('<progress class="bar') == 3
    given = {"gibibytes": "2.5", "versions": "1", "nodes": "9", "seen": seen(page)}
    assert alice.post(address, given).status_code == 302
    project = Project.objects.get(slug="wren")
    assert (project.quota_bytes, project.quota_versions, project.quota_nodes) == (5 * 1024**3 // 2, 1, 9)
    assert "Nothing more fits." in alice.get(address).text
    assert alice.post(address, {**given, "versions": "3"}).status_code == 422
    assert browse("charlie").get(address).status_code == 404


@pytest.mark.parametrize(
    ("dataset", "shown"),
    [
        ("https://data.example/birds", '<a class="link" href="https://data.example/birds"'),
        ("birds 2026", "<dd>birds 2026</dd>"),
        ("javascript:alert(1)", "<dd>javascript:alert(1)</dd>"),
    ],
)
def test_a_dataset_that_is_an_address_is_a_link(cast: Cast, browse: Browse, dataset: str, shown: str) -> None:
    version = cast.ready_version()
    ModelVersion.objects.filter(pk=version.pk).update(source={"dataset": dataset})
    assert shown in browse("vera").get("/p/wren/models/finch/versions/1/").text
