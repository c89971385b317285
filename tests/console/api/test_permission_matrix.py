"""Who may call what: every address, every caller. docs/reference/access.md holds the expected answers.

After a change that means to move a permission, or adds an address:
``FLOTILLA_UPDATE_ACCESS=1 pytest tests/console/api/test_permission_matrix.py``, then read the difference, cell by cell.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from rest_framework.test import APIClient

from registry.domain.actors import Actor
from registry.models import Membership, Project, Role, SiteRole, User
from registry.services import fleet, tokens
from tests.console.api.test_routes import ANY, routes
from tests.console.api.world import QUERIES, World, body_for, cut_off, make_world
from tests.console.conftest import NODE_ENDPOINTS, Cast

TABLE = Path(__file__).parents[3] / "docs/reference/access.md"
HEAD = """# Who may call what

Checked by `tests/console/api/test_permission_matrix.py`, which writes it with `FLOTILLA_UPDATE_ACCESS=1`.

Each cell is the answer to a call that is right in form, about things that exist in a project. 2xx: done. 409, 410 and
412: allowed, but not in the state in which the test's things are. 401: nobody, or a token of the wrong kind. 403: known
but not allowed. 404: not there, as far as this caller may know; what is in a project that the caller is not in answers
exactly as if it did not exist. Callers: nobody; a node with its own token; an administrator of another project; people
with a role on the site and none in the project; members by role; and service accounts that are administrators of the
project, by the scope of their token. Permissions by name are in [permissions](permissions.md).
"""
PEOPLE = ("viewer", "publisher", "approver", "operator", "admin")
SCOPES = {"bot: read": ["read"], "bot: write": ["read", "write"], "bot: admin": ["admin"]}
# What is in BODIES is no credential that counts there, or an address that this site does not allow: 400 is right.
REFUSED = {
    "nodes/join/",
    "login-requests/claim",
    "oidc/exchange",
    "projects/<slug:project>/models/<str:model>/versions/<str:version>/fetch",
}
CALLERS = ("nobody", "node", "outsider", "site operator", "site admin", *PEOPLE, *SCOPES)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off(monkeypatch)


@pytest.fixture(autouse=True)
def _some_addresses_are_allowed(settings: Any) -> None:
    settings.IMPORT_SOURCES = ["https://models.example.com/"]


class _Undo(Exception):
    """Takes back what a call did."""


def bearer(text: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    return client


def token_of(user: User, scopes: list[str]) -> str:
    actor = Actor.system("test") if user.is_service else Actor.person(user)
    return tokens.token_create(owner=user, name="matrix", scopes=scopes, actor=actor)[1]


def callers_of(cast: Cast) -> dict[str, APIClient]:
    """Return a client for each column."""
    _row, join = fleet.join_token_create(labels={}, actor=cast.actor("alice"))
    _node, node_token = fleet.node_join(
        token=join, name="other-node", endpoints=NODE_ENDPOINTS, admin_secret="s" * 32, inventory={}, contract_version=1
    )
    found = {"nobody": APIClient(), "node": bearer(node_token), "outsider": bearer(cast.token("charlie"))}
    every = ["read", "write", "admin"]
    for name, site_role in (("site operator", SiteRole.OPERATOR), ("site admin", SiteRole.ADMIN)):
        user = User.objects.create_user(name.replace(" ", "-"), site_role=site_role)
        found[name] = bearer(token_of(user, every))
    for role in PEOPLE:
        user = User.objects.create_user(f"as-{role}")
        Membership.objects.create(project=cast.project, user=user, role=role)
        found[role] = bearer(token_of(user, every))
    bot = User.objects.create_user("bot", is_service=True)
    Membership.objects.create(project=cast.project, user=bot, role=Role.ADMIN)
    return found | {name: bearer(token_of(bot, scopes)) for name, scopes in SCOPES.items()}


def call(world: World, client: APIClient, method: str, route: str, **others: str) -> Any:
    """Return the answer of one call, whose effects are taken back."""
    answer: Any = None
    try:
        with transaction.atomic():
            address = world.address(route, **others) + QUERIES.get(route, "")
            body = body_for(world, method, route)
            answer = client.get(address) if method == "get" else getattr(client, method)(address, body, headers=ANY)
            raise _Undo
    except _Undo:
        return answer


def table_of(found: dict[tuple[str, str], list[int]]) -> str:
    heads = ["Method", "Address", *CALLERS]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for (route, method), cells in sorted(found.items()):
        address = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route)
        lines.append(f"| {method.upper()} | `{address}` | " + " | ".join(map(str, cells)) + " |")
    return HEAD + "\n" + "\n".join(lines) + "\n"


def rows_of(text: str) -> dict[str, str]:
    return {line.partition("` |")[0]: line for line in text.splitlines() if line.startswith("| ") and "`" in line}


def test_every_caller_gets_the_expected_answer_at_every_address(cast: Cast) -> None:
    world = make_world(cast)
    clients = callers_of(cast)
    found = {
        (route, method): [call(world, clients[name], method, route).status_code for name in CALLERS]
        for route, method in sorted(set(routes()))
    }
    unclear = {key: cells for key, cells in found.items() if {400, 428, 500} & set(cells) and key[0] not in REFUSED}
    assert not unclear, f"Give these a body that is accepted, in BODIES of tests/console/api/world.py: {unclear}"
    text = table_of(found)
    if os.environ.get("FLOTILLA_UPDATE_ACCESS"):
        TABLE.write_text(text)
    wanted, now = rows_of(TABLE.read_text()), rows_of(text)
    missing = sorted(set(now) - set(wanted))
    assert not missing, (
        f"docs/reference/access.md has no row for {missing}. Run FLOTILLA_UPDATE_ACCESS=1 pytest on this file, and"
        " check that the new row says who should be able to call it."
    )
    assert now == wanted
    assert text == TABLE.read_text()


def test_what_is_elsewhere_answers_as_if_it_did_not_exist(cast: Cast) -> None:
    world = make_world(cast)
    charlie = bearer(cast.token("charlie"))
    assert Project.objects.filter(slug="elsewhere").exists()
    ours = {name: value for name, value in world.values.items() if name not in {"slug", "node", "issuer"}}
    tried = 0
    for route, method in sorted(set(routes())):
        names = [name for name in ours if re.search(rf"[<:]{name}>", route)]
        if not names:
            continue
        absent = {name: _like(ours[name]) for name in names}
        here, nowhere = call(world, charlie, method, route), call(world, charlie, method, route, **absent)
        assert here.status_code == nowhere.status_code, (route, method, here.content)
        assert here.status_code == 404 or not route.startswith("projects/"), (route, method, here.content)
        assert here.status_code in (403, 404), (route, method, here.content)
        values = {*ours.values(), *absent.values(), "robot"}
        assert _plain(here, values) == _plain(nowhere, values), (route, method)
        tried += 1
    assert tried > 60


def _like(value: str) -> str:
    """Return a value of the same form that nothing has."""
    try:
        uuid.UUID(value)
    except ValueError:
        return "9" if value.isdigit() else "f" * 64 if len(value) == 64 else f"no-{value}"
    return str(uuid.UUID(int=9))


def _plain(answer: Any, values: set[str]) -> dict[str, Any]:
    document = {**answer.json(), "request_id": ""}
    for value in sorted(values, key=len, reverse=True):
        document["detail"] = document["detail"].replace(value, "…")
    return document
