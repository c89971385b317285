"""The page of aliases: seeing what a move means, moving, and being too late."""

from __future__ import annotations

from typing import Any

import pytest

from registry.models import Alias, ModelVersion
from registry.services import aliases
from tests.console.web.conftest import Browse, Served

PAGE = "/p/wren/models/finch/aliases/"


@pytest.fixture
def second(served: Served) -> ModelVersion:
    return served.cast.ready_version(content=b"two")


def given(**changes: Any) -> dict[str, Any]:
    return {"name": "blue", "version": "1", "comment": "", "seen": "", **changes}


def test_a_look_changes_nothing_and_says_what_it_means(served: Served, second: ModelVersion, browse: Browse) -> None:
    page = browse("bob").post(f"{PAGE}preview/", given(version="2")).text
    assert "aliases/blue/" in page and "-X PUT" in page and "v2" in page
    assert not Alias.objects.filter(name="blue").exists()


def test_it_is_set_shown_everywhere_and_deleted(served: Served, second: ModelVersion, browse: Browse) -> None:
    alice = browse("alice")
    assert alice.post(PAGE, given(is_protected="on", comment="best so far")).status_code == 302
    page = alice.get(PAGE).text
    assert "best so far" in page and "protected" in page
    for path in ("/", "/p/wren/models/", "/p/wren/models/finch/", "/p/wren/models/finch/versions/",
                 "/p/wren/models/finch/versions/1/"):  # fmt: skip
        assert 'data-alias="blue"' in alice.get(path).text, path
    assert "blue" in browse("bob").get("/p/wren/models/finch/deploy/?version=champion").text
    assert "alias-edit-blue" not in browse("bob").get(PAGE).text
    assert browse("bob").post(f"{PAGE}delete/", {"name": "blue"}).status_code == 403
    assert alice.post(f"{PAGE}delete/", {"name": "blue"}).status_code == 302
    assert not Alias.objects.filter(name="blue").exists() and "deleted" in alice.get(PAGE).text


def test_who_is_too_late_is_told_and_keeps_the_form(served: Served, second: ModelVersion, browse: Browse) -> None:
    aliases.alias_set(model=second.model, name="blue", version=second, actor=served.cast.actor("alice"))
    answer = browse("bob").post(PAGE, given(comment="mine"))
    assert answer.status_code == 422 and "read it again" in answer.text and "mine" in answer.text
    assert Alias.objects.get(name="blue").version == second
    assert browse("bob").post(PAGE, given(seen=str(second.pk))).status_code == 302
