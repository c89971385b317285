from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.actors import Actor
from registry.errors import Conflict, PermissionDenied, ValidationFailed
from registry.models import ApiToken, AuditEvent, Environment, Fleet, Membership, Project, User
from registry.selectors.accounts import project_get, projects_of, tokens_visible_to, users_visible_to
from registry.services import accounts, people, tokens
from registry.services.permissions import Allowed, Denied, can

PASSWORD = "correct horse battery"


def test_only_site_administrators_make_accounts(world: Any) -> None:
    with pytest.raises(PermissionDenied):
        accounts.user_create(username="new", password=PASSWORD, actor=world.actor(world.carol))
    user = accounts.user_create(username="new", password=PASSWORD, actor=world.actor(world.alice))
    assert user.check_password(PASSWORD)
    assert PASSWORD not in str(AuditEvent.objects.filter(action="user.create").values())


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"username": "carol", "password": PASSWORD}, "username"),
        ({"username": "x", "password": "short"}, "password"),
        ({"username": "x", "password": None}, "password"),
        ({"username": "a b", "password": PASSWORD}, "username"),
        ({"username": "x", "password": PASSWORD, "site_role": "king"}, "site_role"),
    ],
)
def test_bad_accounts_name_the_field(world: Any, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        accounts.user_create(**arguments, actor=world.actor(world.alice))
    assert field in [error["field"] for error in caught.value.errors]


def test_a_service_account_cannot_sign_in(world: Any) -> None:
    user = accounts.user_create(username="ci", password=None, is_service=True, actor=world.actor(world.alice))
    assert not user.has_usable_password()


def test_who_makes_a_project_administers_it(world: Any) -> None:
    project = accounts.project_create(slug="new", name="New", actor=world.actor(world.alice))
    assert Membership.objects.get(project=project).role == "admin"
    with pytest.raises(Conflict):
        accounts.project_create(slug="new", name="Again", actor=world.actor(world.alice))
    with pytest.raises(PermissionDenied):
        accounts.project_create(slug="mine", name="", actor=world.actor(world.carol))


def test_members_change_only_by_administrators(world: Any) -> None:
    accounts.membership_set(project=world.project, user=world.eve, role="viewer", actor=world.actor(world.alice))
    assert projects_of(world.actor(world.eve)).filter(slug="team").exists()
    with pytest.raises(PermissionDenied):
        accounts.membership_set(project=world.project, user=world.eve, role="admin", actor=world.actor(world.carol))
    accounts.membership_remove(project=world.project, user=world.eve, actor=world.actor(world.alice))
    assert not projects_of(world.actor(world.eve)).filter(slug="team").exists()


def test_a_project_keeps_an_administrator(world: Any) -> None:
    with pytest.raises(Conflict):
        accounts.membership_remove(project=world.other, user=world.eve, actor=world.actor(world.eve))
    with pytest.raises(Conflict):
        accounts.membership_set(project=world.other, user=world.eve, role="viewer", actor=world.actor(world.eve))


def test_tokens_authenticate_until_revoked_or_expired(world: Any) -> None:
    actor = world.actor(world.carol)
    token, text = tokens.token_create(owner=world.carol, name="ci", scopes=["write"], actor=actor)
    assert text.startswith(f"flo_{token.public_id}_")
    assert ApiToken.objects.filter(secret_sha256=text).count() == 0
    assert tokens.token_authenticate(text) == token
    for bad in (text + "x", "flo__", "flo_" + token.public_id, "", text.replace("flo", "fla", 1)):
        assert tokens.token_authenticate(bad) is None
    ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() + timedelta(hours=1))
    assert tokens.token_authenticate(text, now=timezone.now() + timedelta(hours=2)) is None
    tokens.token_revoke(token=token, actor=actor)
    assert tokens.token_authenticate(text) is None


def test_a_blocked_account_has_no_tokens(world: Any) -> None:
    _token, text = tokens.token_create(owner=world.carol, name="ci", scopes=["read"], actor=world.actor(world.carol))
    people.user_set_active(user=world.carol, is_active=False, actor=world.actor(world.alice))
    assert tokens.token_authenticate(text) is None


def test_tokens_are_made_for_oneself_or_for_service_accounts(world: Any) -> None:
    with pytest.raises(PermissionDenied):
        tokens.token_create(owner=world.carol, name="x", scopes=["read"], actor=world.actor(world.alice))
    token, _text = tokens.token_create(owner=world.robot, name="x", scopes=["read"], actor=world.actor(world.alice))
    assert token.created_by == world.alice
    assert list(tokens_visible_to(world.actor(world.alice))) == [token]
    assert list(tokens_visible_to(world.actor(world.carol))) == []
    with pytest.raises(ValidationFailed):
        tokens.token_create(owner=world.carol, name="x", scopes=["all"], actor=world.actor(world.carol))
    with pytest.raises(ValidationFailed):
        tokens.token_create(
            owner=world.carol, name="x", scopes=["read"], project=world.other, actor=world.actor(world.carol)
        )


def token_actor(world: Any, user: User, scopes: list[str], project: Project | None = None) -> Actor:
    token, _text = tokens.token_create(owner=user, name="t", scopes=scopes, project=project, actor=world.actor(user))
    return Actor.person(user, token=token)


def test_scopes_narrow_what_a_token_may_do(world: Any) -> None:
    reader = token_actor(world, world.carol, ["read"])
    assert isinstance(can(reader, "project.view", world.project), Allowed)
    assert "write" in str(can(reader, "model.write", world.project))
    writer = token_actor(world, world.alice, ["write"])
    assert can(writer, "model.write", world.project)
    assert not can(writer, "project.members", world.project)
    assert not can(writer, "site.users")


def test_a_token_of_a_project_sees_that_project_only(world: Any) -> None:
    Membership.objects.create(project=world.other, user=world.alice, role="admin")
    narrowed = token_actor(world, world.alice, ["admin"], world.project)
    assert [project.slug for project in projects_of(narrowed)] == ["team"]
    assert not can(narrowed, "project.view", world.other)
    assert not can(narrowed, "site.users")


@pytest.mark.parametrize(
    ("permission", "names"),
    [
        ("project.view", "alice bob carol dan robot"),
        ("model.write", "alice bob carol robot"),
        ("deployment.change", "alice bob carol robot"),
        ("approval.review", "alice bob robot"),
        ("version.quarantine", "alice robot"),
        ("project.members", "alice robot"),
    ],
)
def test_roles_include_those_before_them(world: Any, permission: str, names: str) -> None:
    people = [world.alice, world.bob, world.carol, world.dan, world.eve, world.robot]
    allowed = [user.username for user in people if can(world.actor(user), permission, world.project)]
    assert allowed == names.split()


def test_denials_say_why(world: Any) -> None:
    assert can(Actor("nobody"), "project.view", world.project) == Denied("Sign in first.")
    assert "member" in str(can(world.actor(world.eve), "project.view", world.project))
    denied = can(world.actor(world.dan), "model.write", world.project)
    assert isinstance(denied, Denied)
    assert "publisher" in denied.reason
    assert "viewer" in denied.reason


def test_people_see_those_they_share_a_project_with(world: Any) -> None:
    assert {user.username for user in users_visible_to(world.actor(world.eve))} == {"eve"}
    assert users_visible_to(world.actor(world.alice)).count() == 6
    with pytest.raises(Exception, match="team"):
        project_get(world.actor(world.eve), "team")


@pytest.mark.django_db
def test_first_start_fills_an_empty_database_once() -> None:
    password = accounts.first_start("root")
    assert password is not None
    user = User.objects.get()
    assert user.check_password(password)
    assert user.is_superuser
    assert [one.slug for one in projects_of(Actor.person(user))] == ["default"]
    rules = {one.slug: one.requires_approval for one in Environment.objects.all()}
    assert rules == {"development": False, "production": True}
    assert Fleet.objects.get(slug="production").selector == {"production": "yes"}
    assert accounts.first_start("root") is None
