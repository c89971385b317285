"""``flotilla sso`` and ``scim-tokens``: where people sign in elsewhere, and who keeps their accounts."""

from __future__ import annotations

from typing import IO

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla

_CLIENT_HELP = "File with the client secret; - for standard input."
_SIGN_UP = click.Choice(["off", "mapped", "all"])
_ROLE = click.Choice(["viewer", "publisher", "approver", "operator", "admin"])


@click.group()
def sso() -> None:
    """Add and change providers of single sign-on, and say what their groups give."""


@sso.command("list")
@json_option
@client_command
def list_all(client: Flotilla, as_json: bool) -> None:
    """List the providers."""
    found = client.sso.providers()
    rows = ([p["slug"], p["name"], p["issuer"], "on" if p["is_enabled"] else "off", p["sign_up"]] for p in found)
    show(found, as_json, lambda: table(rows, ["PROVIDER", "NAME", "ISSUER", "STATE", "NEW ACCOUNTS"]))


@sso.command()
@click.argument("provider")
@click.option("--name", required=True, help="What people read on the button.")
@click.option("--issuer", "address", required=True, help="Exactly as the provider writes it; it never changes.")
@click.option("--client-id", required=True)
@click.option("--secret-file", type=click.File("r"), required=True, help=_CLIENT_HELP)
@click.option("--subject-claim", type=click.Choice(["sub", "oid"]), default="sub", show_default=True)
@click.option("--groups-claim", default="groups", show_default=True, help="Empty: groups give nothing.")
@click.option("--scopes", default="openid profile email", show_default=True)
@click.option(
    "--sign-up", type=_SIGN_UP, default="off", show_default=True, help="Who gets an account at first sign-in."
)
@json_option
@client_command
def create(
    client: Flotilla,
    provider: str,
    name: str,
    address: str,
    client_id: str,
    secret_file: IO[str],
    subject_claim: str,
    groups_claim: str,
    scopes: str,
    sign_up: str,
    as_json: bool,
) -> None:
    """Add PROVIDER, a short name of yours; it is part of the redirect address and never changes."""
    made = client.sso.create(
        provider,
        name=name,
        issuer=address,
        client_id=client_id,
        client_secret=secret_file.read().strip(),
        subject_claim=subject_claim,
        groups_claim=groups_claim,
        scopes=scopes,
        sign_up=sign_up,
    )
    redirect = f"{client.url}/login/sso/{provider}/callback/"
    show(made, as_json, lambda: f"{provider} is added. Its redirect address is {redirect}")


@sso.command()
@click.argument("provider")
@click.option("--name", help="What people read on the button.")
@click.option("--client-id")
@click.option("--secret-file", type=click.File("r"), help=_CLIENT_HELP)
@click.option("--groups-claim", help="Empty: groups give nothing.")
@click.option("--scopes")
@click.option("--sign-up", type=_SIGN_UP, help="Who gets an account at first sign-in.")
@click.option("--on/--off", "is_enabled", default=None, help="May people sign in with it?")
@json_option
@client_command
def change(
    client: Flotilla,
    /,
    provider: str,
    secret_file: IO[str] | None,
    is_enabled: bool | None,
    as_json: bool,
    **given: str | None,
) -> None:
    """Change what is given of PROVIDER."""
    secret = secret_file.read().strip() if secret_file is not None else None
    wanted = {**given, "client_secret": secret, "is_enabled": is_enabled}
    changes = {name: value for name, value in wanted.items() if value is not None}
    if not changes:
        raise click.UsageError("Say what to change.")
    changed = client.sso.update(provider, **changes)
    show(changed, as_json, lambda: f"{provider} is changed.")


@sso.command()
@click.argument("provider")
@json_option
@client_command
def delete(client: Flotilla, provider: str, as_json: bool) -> None:
    """Delete PROVIDER with its mappings and the links of accounts to it. Roles that it gave stay."""
    client.sso.delete(provider)
    show({"deleted": provider}, as_json, lambda: f"{provider} is deleted.")


@sso.command()
@click.argument("provider")
@json_option
@client_command
def mappings(client: Flotilla, provider: str, as_json: bool) -> None:
    """List what the groups of PROVIDER give."""
    found = client.sso.mappings(provider)
    rows = ([one["group"], one["project"] or "the site", one["role"]] for one in found)
    show(found, as_json, lambda: table(rows, ["GROUP", "IN", "ROLE"]))


@sso.command()
@click.argument("provider")
@json_option
@client_command
def groups(client: Flotilla, provider: str, as_json: bool) -> None:
    """List the groups that PROVIDER keeps here by SCIM."""
    found = client.sso.groups(provider)
    rows = ([one["display_name"], one["external_id"] or "-", one["people"]] for one in found)
    show(found, as_json, lambda: table(rows, ["GROUP", "ID AT THE PROVIDER", "PEOPLE"]))


@sso.command("map")
@click.argument("provider")
@click.argument("group")
@click.argument("role", type=_ROLE)
@click.option("--in", "place", help="The project; without it the role (operator, admin) is one of the site.")
@json_option
@client_command
def map_group(client: Flotilla, provider: str, group: str, role: str, place: str | None, as_json: bool) -> None:
    """Let GROUP of PROVIDER give ROLE."""
    made = client.sso.map(provider, group, role, project=place)
    show(made, as_json, lambda: f"{group} gives {role} {f'in {place}' if place else 'on the site'}.")


@sso.command("unmap")
@click.argument("provider")
@click.argument("group")
@click.option("--in", "place", help="The project; without it what the group gives on the site.")
@json_option
@client_command
def unmap_group(client: Flotilla, provider: str, group: str, place: str | None, as_json: bool) -> None:
    """Let GROUP of PROVIDER give nothing there any more."""
    client.sso.unmap(provider, group, project=place)
    show({"unmapped": group}, as_json, lambda: f"{group} gives nothing {f'in {place}' if place else 'on the site'}.")


@click.group("scim-tokens")
def scim_tokens() -> None:
    """Let a provider keep accounts and groups here, by SCIM 2.0."""


@scim_tokens.command("list")
@json_option
@client_command
def list_tokens(client: Flotilla, as_json: bool) -> None:
    """List the tokens, newest first."""
    found = client.sso.scim_tokens()
    rows = (
        [
            one["name"],
            one["provider"] or "-",
            "revoked" if one["revoked_at"] else "active",
            one["last_used_at"] or "never",
        ]
        for one in found
    )
    show(found, as_json, lambda: table(rows, ["NAME", "PROVIDER", "STATE", "LAST USED"]))


@scim_tokens.command("create")
@click.argument("name")
@click.option("--provider", help="With which these people sign in: external ids are its subjects, groups its groups.")
@json_option
@client_command
def create_token(client: Flotilla, name: str, provider: str | None, as_json: bool) -> None:
    """Make the token NAME and print it, this once."""
    made = client.sso.create_scim_token(name, provider=provider)
    show(made, as_json, lambda: str(made["token"]))


@scim_tokens.command("revoke")
@click.argument("name")
@json_option
@client_command
def revoke_token(client: Flotilla, name: str, as_json: bool) -> None:
    """Revoke the token NAME (or its id) for good."""
    client.sso.revoke_scim_token(name)
    show({"revoked": name}, as_json, lambda: f"{name} is revoked.")
