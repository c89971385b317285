from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from registry.models import ApiToken, Project
from registry.services import accounts, tokens
from tests.console.conftest import PASSWORD, Cast


def bearer(token: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return client


def test_token_acts_for_its_owner_and_remembers_its_use(cast: Cast) -> None:
    row, token = cast.token_row("bob")
    answer = bearer(token).get("/api/v1/me/")
    assert answer.status_code == 200
    assert answer.json()["username"] == "bob"
    assert answer.json()["roles"] == {"wren": "publisher"}
    row.refresh_from_db()
    assert row.last_used_at is not None


def test_unusable_tokens_are_401_with_a_challenge(cast: Cast) -> None:
    revoked, revoked_text = cast.token_row("bob")
    tokens.token_revoke(token=revoked, actor=cast.actor("bob"))
    expired, expired_text = cast.token_row("bob")
    ApiToken.objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    inactive = cast.token("vera")
    cast.vera.is_active = False
    cast.vera.save()
    good = cast.token("bob")
    for text in (revoked_text, expired_text, inactive, good[:-1] + "~", "flo_", "flo__", "rubbish", ""):
        answer = bearer(text).get("/api/v1/me/")
        assert answer.status_code == 401, text
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.json()["request_id"]


def test_read_token_may_not_write_and_write_token_may_not_administer(cast: Cast, api: Callable[..., Any]) -> None:
    model = {"slug": "finch"}
    assert api("bob", "read").get("/api/v1/projects/wren/models/").status_code == 200
    refused = api("bob", "read").post("/api/v1/projects/wren/models/", model)
    assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
    assert api("bob", "read", "write").post("/api/v1/projects/wren/models/", model).status_code == 201
    assert api("alice", "write").post("/api/v1/api-keys/", {"name": "x", "scopes": ["read"]}).status_code == 403


def test_token_of_one_project_does_not_see_the_other(cast: Cast) -> None:
    elsewhere = Project.objects.get(slug="elsewhere")
    accounts.membership_set(project=elsewhere, user=cast.bob, role="publisher", actor=cast.actor("charlie"))
    token = bearer(cast.token("bob", project=cast.project))
    assert [row["slug"] for row in token.get("/api/v1/projects/").json()["results"]] == ["wren"]
    assert token.get("/api/v1/projects/elsewhere/").status_code == 404


def test_session_writes_need_csrf(cast: Cast) -> None:
    browser = APIClient(enforce_csrf_checks=True)
    assert browser.login(username="bob", password=PASSWORD)
    assert browser.get("/api/v1/me/").status_code == 200
    refused = browser.post("/api/v1/projects/wren/models/", {"slug": "finch"})
    assert refused.status_code == 403
    assert "CSRF" in refused.json()["detail"]


@pytest.mark.parametrize("password", ["", PASSWORD])
def test_basic_authentication_is_not_a_way_in(cast: Cast, password: str) -> None:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Basic bob:{password}")
    assert client.get("/api/v1/me/").status_code == 401
