"""``flotilla people`` and ``members``: accounts, and their roles in the project."""

from __future__ import annotations

from typing import IO, Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla
from flotilla.sdk.quantities import counted

_SITE_ROLE = click.Choice(["none", "operator", "admin"])
_ROLE = click.Choice(["viewer", "publisher", "approver", "operator", "admin"])


@click.group()
def people() -> None:
    """Make, change and block accounts of people."""


@people.command("list")
@click.option("--search", default="", help="In user name, names and address.")
@click.option("--active/--blocked", "is_active", default=None, help="Only these.")
@json_option
@client_command
def list_all(client: Flotilla, search: str, is_active: bool | None, as_json: bool) -> None:
    """List the people whom you may see."""
    found = client.people.all(search=search, is_active=is_active)
    rows = ([p["username"], p["email"] or "-", p["site_role"], _state(p), p["last_login"] or "never"] for p in found)
    show(found, as_json, lambda: table(rows, ["NAME", "ADDRESS", "SITE ROLE", "STATE", "LAST SIGN-IN"]))


@people.command("show")
@click.argument("person")
@json_option
@client_command
def show_one(client: Flotilla, person: str, as_json: bool) -> None:
    """Show PERSON: roles and who gave them, and how they sign in. Your own, or as administrator."""
    found = {**client.people.get(person), "access": client.people.access(person)}
    show(found, as_json, lambda: _described(found))


@people.command()
@click.argument("person")
@click.option("--email", default="", help="Address.")
@click.option("--site-role", type=_SITE_ROLE, default="none", show_default=True)
@click.option("--password-file", type=click.File("r"), help="File with a first password; - for standard input.")
@json_option
@client_command
def create(
    client: Flotilla, person: str, email: str, site_role: str, password_file: IO[str] | None, as_json: bool
) -> None:
    """Make the account PERSON. Without a password they sign in elsewhere, or by the link of password-link."""
    password = password_file.read().rstrip("\r\n") if password_file is not None else None
    made = client.people.create(person, email=email, site_role=site_role, password=password)
    show(made, as_json, lambda: f"Account {person} is made.")


@people.command()
@click.argument("person")
@click.option("--username", help="Another user name.")
@click.option("--email", help="Address.")
@click.option("--first-name")
@click.option("--last-name")
@click.option("--site-role", type=_SITE_ROLE)
@json_option
@client_command
def change(client: Flotilla, /, person: str, as_json: bool, **given: str | None) -> None:
    """Change what is given of PERSON."""
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("Say what to change.")
    changed = client.people.update(person, **changes)
    show(changed, as_json, lambda: f"{changed['username']} is changed.")


@people.command()
@click.argument("person")
@click.option("--plan", "plan_only", is_flag=True, help="Only show what would stop.")
@json_option
@client_command
def block(client: Flotilla, person: str, plan_only: bool, as_json: bool) -> None:
    """Block PERSON: sessions, keys and open pages end at once, for good. History stays."""
    impact = client.people.impact(person)
    if not plan_only:
        client.people.update(person, is_active=False)
    head = f"Blocking {person} would stop:" if plan_only else f"{person} is blocked. That stopped:"
    document = {"person": person, "is_active": plan_only, "impact": impact}
    show(document, as_json, lambda: "\n".join([head, *_impact(impact)]))


@people.command("let-in")
@click.argument("person")
@json_option
@client_command
def let_in(client: Flotilla, person: str, as_json: bool) -> None:
    """Let PERSON, who is blocked, in again. Keys and sessions from before do not come back."""
    changed = client.people.update(person, is_active=True)
    show(changed, as_json, lambda: f"{person} may sign in again.")


@people.command("password-link")
@click.argument("person")
@json_option
@client_command
def password_link(client: Flotilla, person: str, as_json: bool) -> None:
    """Print a link with which PERSON sets a password, once, within a day."""
    link = client.people.password_link(person)
    show({"link": link}, as_json, lambda: link)


@people.command("reset-second-factors")
@click.argument("person")
@json_option
@client_command
def reset_second_factors(client: Flotilla, person: str, as_json: bool) -> None:
    """Take the second factors of PERSON away, and end their sessions."""
    client.people.reset_second_factors(person)
    show({"reset": person}, as_json, lambda: f"{person} has no second factors any more, and is signed out.")


@people.command()
@click.argument("person")
@json_option
@client_command
def sessions(client: Flotilla, person: str, as_json: bool) -> None:
    """List where PERSON is signed in. Your own, or as administrator."""
    found = client.people.sessions(person)
    rows = ([s["id"], s["ip"], s["created_at"], s["last_seen_at"], s["user_agent"][:40]] for s in found)
    show(found, as_json, lambda: table(rows, ["SESSION", "FROM", "BEGAN", "LAST SEEN", "WITH"]))


@people.command("end-sessions")
@click.argument("person")
@click.option("--session", type=click.IntRange(1), help="Only this one.")
@json_option
@client_command
def end_sessions(client: Flotilla, person: str, session: int | None, as_json: bool) -> None:
    """Sign PERSON out everywhere. Yourself, or as administrator."""
    ended = client.people.end_sessions(person, session)
    show({"ended": ended}, as_json, lambda: f"{counted(ended, 'session')} ended.")


@people.command()
@click.argument("person")
@click.argument("identity", type=click.IntRange(1))
@json_option
@client_command
def disconnect(client: Flotilla, person: str, identity: int, as_json: bool) -> None:
    """Disconnect the account elsewhere with id IDENTITY (of ``show``) from your own account PERSON."""
    client.people.disconnect(person, identity)
    show({"disconnected": identity}, as_json, lambda: "It is disconnected.")


@click.group()
def members() -> None:
    """Give and take roles in the project."""


@members.command("list")
@json_option
@client_command
def list_members(client: Flotilla, as_json: bool) -> None:
    """List who has which role in the project."""
    found = client.members.all()
    show(found, as_json, lambda: table(([m["username"], m["role"]] for m in found), ["NAME", "ROLE"]))


@members.command("set")
@click.argument("person")
@click.argument("role", type=_ROLE)
@json_option
@client_command
def set_member(client: Flotilla, person: str, role: str, as_json: bool) -> None:
    """Give PERSON (or a service account) ROLE in the project, in place of the one they have."""
    found = client.members.set(person, role)
    show(found, as_json, lambda: f"{person} is {role}.")


@members.command()
@click.argument("person")
@json_option
@client_command
def remove(client: Flotilla, person: str, as_json: bool) -> None:
    """Take PERSON out of the project."""
    client.members.remove(person)
    show({"removed": person}, as_json, lambda: f"{person} is no longer a member.")


def _state(person: dict[str, Any]) -> str:
    return "active" if person["is_active"] else "blocked"


def _described(found: dict[str, Any]) -> str:
    access = found["access"]
    rows = [
        ["name", found["username"]],
        ["address", found["email"] or "-"],
        ["state", _state(found)],
        ["site role", _given(access["site_role"], access["site_role_given_by"])],
        *(["role in " + one["project"], _given(one["role"], one["given_by"])] for one in access["memberships"]),
        ["password", "set" if access["has_password"] else "none"],
        *(
            ["signs in by " + one["provider"], f"{one['subject']} (identity {one['id']})"]
            for one in access["identities"]
        ),
        *(["second factor", f"{one['kind']}, since {one['created_at']}"] for one in access["second_factors"]),
    ]
    return table(rows, ["WHAT", "VALUE"])


def _given(role: str, by: str | None) -> str:
    return f"{role}, by {by}" if by else role


def _impact(impact: dict[str, Any]) -> list[str]:
    said = [f"  {counted(impact[name], word)}" for name, word in _COUNTED.items()]
    said += [f"  {project} has no other administrator" for project in impact["last_admin_of"]]
    return said + [f"  {environment} names them as an approver" for environment in impact["named_in"]]


_COUNTED = {
    "sessions": "session",
    "tokens": "API key",
    "uploads": "upload",
    "open_requests": "open request",
}
