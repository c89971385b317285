"""``flotilla login``, ``logout`` and ``whoami``."""

from __future__ import annotations

import socket
import sys
from typing import Any

import click

from flotilla import settings
from flotilla.commands.context import (
    CommandFailed,
    client_command,
    connection_options,
    failures,
    json_option,
    settings_of,
    show,
)
from flotilla.commands.exit_codes import Exit
from flotilla.profiles import DEFAULT, Profile
from flotilla.sdk import ApiError, Flotilla, sign_in

_SCOPES = click.Choice(["read", "write", "admin"])


@click.command()
@click.option("--token-stdin", is_flag=True, help="Read an API key from standard input and keep it.")
@click.option("--oidc", is_flag=True, help="In CI: show the job's identity and keep the short-lived token for it.")
@click.option("--id-token-var", default="FLOTILLA_ID_TOKEN", show_default=True, help="With --oidc: GitLab's variable.")
@click.option("--rule", default="", help="With --oidc: the project's rule, where several fit.")
@click.option("--scope", "scopes", multiple=True, type=_SCOPES, default=("read", "write"), show_default=True)
@click.option("--days", default=30, show_default=True, type=click.IntRange(1, 365), help="How long the token lasts.")
@click.option("--browser/--no-browser", default=None, help="Open the console's page.  [default: on a terminal]")
@json_option
@connection_options
def login(
    token_stdin: bool,
    oidc: bool,
    id_token_var: str,
    rule: str,
    scopes: tuple[str, ...],
    days: int,
    browser: bool | None,
    as_json: bool,
    **connection: Any,
) -> None:
    """Sign in to a console and keep the token in a profile that only you can read.

    Without an option: a code is shown, and whoever is signed in to the console confirms it there.
    """
    wanted, project = connection.pop("profile"), connection["project"] or ""
    if connection.pop("token"):
        raise click.UsageError("A token on the command line can be seen by others; use --token-stdin.")
    where = settings_of({**connection, "profile": None})
    name = wanted or where.profile or DEFAULT
    with failures():
        if token_stdin:
            profile = _with_token(where.url, sys.stdin.read().strip(), project)
        elif oidc:
            profile = _with_job(where.url, id_token_var, project, rule)
        else:
            profile = _with_person(where.url, scopes, days, project, browser)
        settings.profiles().save(name, profile)
    document = {"profile": name, "url": profile.url, "username": profile.username, "expires_at": profile.expires_at}
    ends = f" until {profile.expires_at}" if profile.expires_at else ""
    show(document, as_json, lambda: f"Signed in to {profile.url} as {profile.username}{ends} (profile {name}).")


@click.command()
@click.option("--keep-token", is_flag=True, help="Only forget it here; others may go on using it.")
@json_option
@connection_options
def logout(keep_token: bool, as_json: bool, **connection: Any) -> None:
    """Forget a profile and revoke its token."""
    profiles = settings.profiles()
    with failures():
        name, profile = profiles.get(connection["profile"] or "")
        if profile is None:
            raise CommandFailed(f"There is no profile {name}.")
        revoked = False
        if not keep_token:
            revoked = _revoke(profile)
        profiles.remove(name)
    said = "its token is revoked" if revoked else "its token was not revoked"
    show({"profile": name, "revoked": revoked}, as_json, lambda: f"Signed out of {profile.url}; {said}.")


@click.command()
@json_option
@client_command
def whoami(client: Flotilla, as_json: bool) -> None:
    """Show who the token belongs to, its scopes, and the roles in projects."""
    me = {"url": client.url, **client.me()}
    roles = ", ".join(f"{project}: {role}" for project, role in sorted(me["roles"].items())) or "no project"
    text = f"{me['username']} at {client.url}, scopes {', '.join(me['scopes'])}; {roles}"
    show(me, as_json, lambda: text)


def _with_token(url: str, token: str, project: str) -> Profile:
    if not token.startswith("flo_") or not token.isprintable() or " " in token:
        raise CommandFailed("Standard input holds no API key (flo_...).", Exit.USAGE)
    return _checked(Profile(url, token, project))


def _with_person(url: str, scopes: tuple[str, ...], days: int, project: str, browser: bool | None) -> Profile:
    asked = sign_in.begin(url, client=socket.gethostname(), scopes=scopes, project=project, token_days=days)
    click.echo(f"Open {asked['verification_url']} and confirm this code: {asked['user_code']}", err=True)
    if browser if browser is not None else sys.stdin.isatty() and sys.stderr.isatty():
        click.launch(asked["verification_url_complete"])
    found = sign_in.finish(url, asked)
    return Profile(url, found["token"], project, found["username"], found["expires_at"])


def _with_job(url: str, variable: str, project: str, rule: str) -> Profile:
    """Exchange the token at hand (GitLab), else one that the job asks for (GitHub)."""
    identity = settings.job_identity(variable)
    assertion = identity.token
    if not assertion:
        if not identity.request_url:
            raise CommandFailed(
                f"This job has no identity: GitHub needs permissions: id-token: write, GitLab id_tokens: {variable}.",
                Exit.NOT_ALLOWED,
            )
        assertion = sign_in.job_token(identity.request_url, identity.request_token, sign_in.audience_of(url))
    found = sign_in.exchange(url, assertion, project=project, rule=rule)
    return Profile(url, found["token"], found["project"], found["service_account"], found["expires_at"])


def _checked(profile: Profile) -> Profile:
    """Return the profile with its owner's name. Raises ApiError when the token is not good."""
    with Flotilla(profile.url, profile.token) as client:
        username = client.me()["username"]
    return Profile(profile.url, profile.token, profile.project, username, profile.expires_at)


def _revoke(profile: Profile) -> bool:
    try:
        with Flotilla(profile.url, profile.token) as client:
            client.revoke_own_token()
    except ApiError as error:
        if error.status not in (401, 403, 404):
            raise
        return error.status == 401  # it was not good any more
    return True
