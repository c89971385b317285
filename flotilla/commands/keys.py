"""API keys from a shell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla


@click.group()
def keys() -> None:
    """Make, change, renew and revoke API keys."""


@keys.command("list")
@click.option("--owner", default="", help="Only those of this account.")
@json_option
@client_command
def list_all(client: Flotilla, /, owner: str, as_json: bool) -> None:
    """List the keys, newest first."""
    found = client.keys.all(owner=owner)
    rows = (
        [
            f"flo_{key['public_id']}",
            key["name"],
            key["owner"],
            key["project"] or "all",
            ",".join(key["scopes"]),
            "revoked" if key["revoked_at"] else key["expires_at"] or "never",
            f"{key['last_used_at'] or 'never'} {key['last_used_ip'] or ''}".strip(),
        ]
        for key in found
    )
    header = ["KEY", "NAME", "OWNER", "PROJECT", "SCOPES", "ENDS", "LAST USED"]
    show(found, as_json, lambda: table(rows, header))


@keys.command()
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(["read", "write", "admin"]), default=["write"])
@click.option("--owner", default="", help="A service account; without it the key is the caller's own.")
@click.option("--only-project", help="It works in this project only.")
@click.option("--days", type=click.IntRange(1), help="It ends after so many days.")
@click.option("--from", "networks", multiple=True, help="Address or range from where it may be used; repeatable.")
@json_option
@client_command
def create(
    client: Flotilla,
    /,
    name: str,
    scopes: tuple[str, ...],
    owner: str,
    only_project: str | None,
    days: int | None,
    networks: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make the key NAME and print it, this once."""
    ends = (datetime.now(UTC) + timedelta(days=days)).isoformat() if days else None
    made = client.keys.create(
        name, scopes=scopes, owner=owner, project=only_project, expires_at=ends, allowed_networks=networks
    )
    show(made, as_json, lambda: str(made["token"]))


@keys.command()
@click.argument("key")
@click.option("--name", help="Another name.")
@click.option("--days", type=click.IntRange(1), help="It ends so many days from now.")
@click.option("--from", "networks", multiple=True, help="Only from this address or range from now on; repeatable.")
@click.option("--from-anywhere", is_flag=True, help="From every address.")
@json_option
@client_command
def change(
    client: Flotilla,
    /,
    key: str,
    name: str | None,
    days: int | None,
    networks: tuple[str, ...],
    from_anywhere: bool,
    as_json: bool,
) -> None:
    """Change KEY (its name, beginning or id); its secret stays, and so does what is not named."""
    if networks and from_anywhere:
        raise click.UsageError("Give --from or --from-anywhere.")
    facts: dict[str, Any] = {"name": name} if name is not None else {}
    if days is not None:
        facts["expires_at"] = (datetime.now(UTC) + timedelta(days=days)).isoformat()
    if networks or from_anywhere:
        facts["allowed_networks"] = [*networks]
    if not facts:
        raise click.UsageError("Say what to change: --name, --days, --from or --from-anywhere.")
    changed = client.keys.change(key, **facts)
    show(changed, as_json, lambda: f"{changed['name']} is changed.")


@keys.command()
@click.argument("key")
@click.option("--overlap-hours", type=click.IntRange(0, 168), default=24, show_default=True)
@json_option
@client_command
def rotate(client: Flotilla, /, key: str, overlap_hours: int, as_json: bool) -> None:
    """Give KEY (its name, beginning or id) a new secret and print it, this once; both work for a while."""
    made = client.keys.rotate(key, overlap_hours=overlap_hours)
    show(made, as_json, lambda: str(made["token"]))


@keys.command()
@click.argument("key")
@json_option
@client_command
def revoke(client: Flotilla, /, key: str, as_json: bool) -> None:
    """Revoke KEY (its name, beginning or id) for good."""
    client.keys.revoke(key)
    show({"revoked": key}, as_json, lambda: f"{key} is revoked.")
