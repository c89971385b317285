"""A token does no more than its scopes and its project allow, at every address."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from registry.models import ApiToken, Membership, Project, Role
from registry.services import tokens
from tests.console.api.test_routes import ANY, filled, routes
from tests.console.conftest import Cast, join_node

# They take a join token or a node's own.
OF_NODES = {"nodes/join/", "nodes/<uuid:node>/hello/"}
# Whoever has no token yet begins there; every token may end itself.
OF_SIGN_IN = {"login-requests/", "login-requests/claim", "me/revoke-token", "oidc/exchange"}
ROUTES = sorted((route, method) for route, method in set(routes()) if route not in OF_NODES | OF_SIGN_IN)


def bearer(text: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    return client


@pytest.fixture
def reader(cast: Cast) -> APIClient:
    """A token of Alice, who may do everything, that may only read."""
    return bearer(cast.token("alice", "read"))


@pytest.fixture
def visitor(cast: Cast) -> APIClient:
    """A token of Alice with every scope, for another project of hers."""
    elsewhere = Project.objects.get(slug="elsewhere")
    Membership.objects.create(project=elsewhere, user=cast.alice, role=Role.ADMIN)
    return bearer(cast.token("alice", "admin", project=elsewhere))


def test_a_token_that_reads_writes_nothing(cast: Cast, reader: APIClient) -> None:
    cast.ready_version()
    tried = [(route, method) for route, method in ROUTES if method != "get"]
    assert len(tried) > 30
    for route, method in tried:
        answer = getattr(reader, method)(filled(route), {}, headers=ANY)
        assert answer.status_code == 403, (route, method, answer.content)


def test_a_token_of_another_project_finds_nothing_here(cast: Cast, visitor: APIClient) -> None:
    cast.ready_version()
    tried = [(route, method) for route, method in ROUTES if route.startswith("projects/<slug:project>/")]
    assert len(tried) > 25
    for route, method in tried:
        answer = getattr(visitor, method)(filled(route), {}, headers=ANY)
        assert answer.status_code in (400, 404), (route, method, answer.content)


def test_a_token_of_one_project_lists_nothing_of_others(cast: Cast, visitor: APIClient) -> None:
    cast.ready_version()
    join_node(cast)
    other = tokens.token_create(
        owner=cast.alice, name="other", scopes=["admin"], project=cast.project, actor=cast.actor("alice")
    )[0]

    def rows(name: str) -> list[dict[str, Any]]:
        return list(visitor.get(f"/api/v1/{name}/").json()["results"])

    assert [rows(name) for name in ("approvals", "operations")] == [[], []]
    assert {row["project"] for row in rows("api-keys")} == {"elsewhere"}
    assert {row["project_id"] for row in rows("audit")} == {str(Project.objects.get(slug="elsewhere").pk)}
    assert visitor.get("/api/v1/join-tokens/").status_code == 403
    assert [row["slug"] for row in visitor.get("/api/v1/projects/").json()["results"]] == ["elsewhere"]
    assert list(visitor.get("/api/v1/me/").json()["roles"]) == ["elsewhere"]
    assert visitor.delete(f"/api/v1/api-keys/{other.pk}/", headers=ANY).status_code == 404
    assert ApiToken.objects.get(pk=other.pk).revoked_at is None


def test_a_token_of_one_project_does_nothing_on_the_site(cast: Cast, visitor: APIClient) -> None:
    node, _token = join_node(cast)
    tried = {
        "environments/": {"slug": "x", "name": "X"},
        "fleets/": {"slug": "x", "name": "X", "environment": "dev", "selector": {}},
        "join-tokens/": {"labels": {}},
        "projects/": {"slug": "x", "name": "X"},
        f"nodes/{node.pk}/drain": {},
    }
    for address, body in tried.items():
        answer = visitor.post(f"/api/v1/{address}", body)
        assert answer.status_code in (403, 404), (address, answer.content)
