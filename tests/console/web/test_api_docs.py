"""The description of the API as a page: complete, searchable, with commands that can be copied."""

from __future__ import annotations

import pytest

from console.description import document
from console.web.api_reference import groups
from tests.console.web.conftest import Browse, Served


def test_every_operation_of_the_document_is_on_one_page() -> None:
    shown = [f"{one.method} /api/v1/{one.address}" for part in groups() for one in part.operations]
    described = [f"{method.upper()} {path}" for path, item in document()["paths"].items() for method in item]
    assert sorted(shown) == sorted(described)
    anchors = [one.anchor for part in groups() for one in part.operations]
    assert len(anchors) == len(set(anchors))


def test_an_operation_shows_fields_examples_and_its_command(served: Served, browse: Browse) -> None:
    vera = browse("vera")
    shown = vera.get("/api/docs/rollouts/").content.decode()
    assert 'id="rollout_pause_post"' in shown
    assert "curl -sS -X POST" in shown
    assert "Idempotency-Key" in shown
    assert "phase_reason" in shown
    assert "{rollout}" in shown and "rollouts/{rollout}/pause \\" not in shown  # the command has a value
    assert vera.get("/api/docs/no-such-part/").status_code == 404
    assert browse("").get("/api/docs/").status_code == 302


@pytest.mark.parametrize(("words", "found"), [("rollout pause", True), ("PATCH policies", True), ("unheard-of", False)])
def test_the_search_keeps_what_has_all_words(served: Served, browse: Browse, words: str, found: bool) -> None:
    shown = browse("vera").get("/api/docs/", {"q": words}).content.decode()
    assert ("Nothing matches." not in shown) is found
    assert "oidc/exchange" not in shown
