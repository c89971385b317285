"""Whether a project takes code: shown to all, set by its administrators, by page and API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils import timezone

from registry.models import ModelVersion, Project
from tests.console.conftest import Cast
from tests.console.web.conftest import Browse, Served


def test_administrators_set_it_on_the_page(served: Served, browse: Browse) -> None:
    alice, vera = browse("alice"), browse("vera")
    assert "project-code-wren" in alice.get("/settings/projects/").content.decode()
    assert "project-code-wren" not in vera.get("/settings/projects/").content.decode()
    assert (
        vera.post("/settings/projects/", {"project": "wren", "seen": "allow", "code_formats": "forbid"}).status_code
        == 403
    )
    assert (
        browse("charlie").post("/settings/projects/", {"project": "wren", "code_formats": "allow"}).status_code == 404
    )
    alice.post("/settings/projects/", {"project": "wren", "seen": "allow", "code_formats": "forbid"})
    assert Project.objects.get(slug="wren").code_formats == "forbid"
    assert "Forbidden" in vera.get("/settings/projects/").content.decode()


def test_and_through_the_api(cast: Cast, api: Callable[..., Any]) -> None:
    address = "/api/v1/projects/wren/policies/"
    assert api("vera").get(address).json()["code_formats"] == "allow"
    assert api("bob").patch(address, {"code_formats": "forbid"}, HTTP_IF_MATCH="*").status_code == 403
    assert api("alice").patch(address, {"code_formats": "maybe"}, HTTP_IF_MATCH="*").status_code == 400
    assert api("alice").patch(address, {"code_formats": "forbid"}, HTTP_IF_MATCH="*").json()["code_formats"] == "forbid"
    assert api("vera").get(address).json()["code_formats"] == "forbid"


def test_a_version_says_which_files_are_code_and_who_allowed_them(
    served: Served, browse: Browse, api: Callable[..., Any]
) -> None:
    page = "/p/wren/models/finch/versions/1/"
    assert ">none<" in browse("vera").get(page).content.decode()
    ModelVersion.objects.filter(pk=served.version.pk).update(
        code_files=[{"path": "model.py", "why": "Python source"}],
        code_permitted_by=served.cast.bob,
        code_permitted_at=timezone.now(),
    )
    text = browse("vera").get(page).content.decode()
    assert "model.py" in text and "Python source" in text and "allowed by bob" in text
    document = api("vera").get("/api/v1/projects/wren/models/finch/versions/1/").json()
    assert document["code_files"] == [{"path": "model.py", "why": "Python source"}]
    assert document["code_permitted_by"] == "bob"


def test_a_permission_is_withdrawn_on_a_page_that_says_what_stops(served: Served, browse: Browse) -> None:
    page = "/p/wren/models/finch/versions/1/code/"
    ModelVersion.objects.filter(pk=served.version.pk).update(
        code_files=[{"path": "model.py", "why": "Python source"}],
        code_permitted_by=served.cast.bob,
        code_permitted_at=timezone.now(),
    )
    alice = browse("alice")
    shown = alice.get(page).text
    assert "nothing answers any more" in shown and served.deployment.served_name in shown
    assert "Code that nodes run" in alice.get("/settings/projects/wren/policies/").text
    assert alice.post(page, {"act": "withdraw", "reason": ""}).status_code == 422
    assert browse("vera").post(page, {"act": "withdraw", "reason": "leak"}).status_code == 422
    assert alice.post(page, {"act": "withdraw", "reason": "leak"}).status_code == 302
    assert "withdrawn by alice" in browse("vera").get("/p/wren/models/finch/versions/1/").text
    assert 'data-testid="code-permit"' in alice.get(page).text
    assert alice.post(page, {"act": "permit"}).status_code == 302
    assert ModelVersion.objects.get(pk=served.version.pk).code_permitted_by == served.cast.alice
    every = "/settings/projects/wren/policies/code/"
    Project.objects.update(code_formats="forbid")
    assert 'data-testid="code-decision"' in alice.get("/settings/projects/wren/policies/").text
    assert browse("bob").post(every, {"reason": "leak"}).status_code == 403
    assert alice.post(every, {"reason": "leak"}).status_code == 302
    assert ModelVersion.objects.get(pk=served.version.pk).code_permitted_at is None
