"""Saying whose signatures count, from a shell."""

from __future__ import annotations

from typing import IO

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show, table
from flotilla.sdk import Flotilla


@click.group()
def signing() -> None:
    """Say whether versions must be signed, and by whom."""


@signing.command()
@json_option
@client_command
def keys(client: Flotilla, /, as_json: bool) -> None:
    """List the keys that the project trusts."""
    found = client.signing.keys()
    rows = ([key["name"], key["fingerprint"], key["created_by"] or "", key["created_at"]] for key in found)
    show(found, as_json, lambda: table(rows, ["NAME", "SHA-256", "ADDED BY", "ADDED"]))


@signing.command()
@click.argument("policy", type=click.Choice(["off", "optional", "required"]), required=False)
@json_option
@client_command
def policy(client: Flotilla, /, policy: str | None, as_json: bool) -> None:
    """Show the policy of the project, or set it to POLICY."""
    if policy is not None:
        client.signing.set_policy(policy)
    now = client.signing.policy()
    show({"signing_policy": now}, as_json, lambda: now)


@signing.command()
@json_option
@client_command
def identities(client: Flotilla, /, as_json: bool) -> None:
    """List the identities that the project trusts: by certificates, or keyless."""
    found = client.signing.identities()
    rows = ([one["name"], one["kind"], one["identity"], one["issuer"], one["created_by"] or ""] for one in found)
    show(found, as_json, lambda: table(rows, ["NAME", "KIND", "IDENTITY", "ISSUER", "ADDED BY"]))


@signing.command()
@click.argument("name")
@click.option("--public-key", type=click.File("r"), help="PEM file of a key; - for standard input.")
@click.option("--certificates", type=click.File("r"), help="PEM file: certificates of authorities, and revoked ones.")
@click.option("--issuer", help="OpenID Connect issuer that vouches for a keyless identity.")
@click.option("--identity", help="Whom the certificate names: the subject, an address; * at its end for any rest.")
@json_option
@client_command
def trust(
    client: Flotilla,
    /,
    name: str,
    public_key: IO[str] | None,
    certificates: IO[str] | None,
    issuer: str | None,
    identity: str | None,
    as_json: bool,
) -> None:
    """Trust a key, or an identity that certificates name, as NAME.

    One of --public-key, --certificates and --issuer; the last two with --identity.
    """
    if sum(one is not None for one in (public_key, certificates, issuer)) != 1:
        raise CommandFailed("Give one of --public-key, --certificates and --issuer.")
    if public_key is not None:
        made = client.signing.trust(name, public_key.read())
        show(made, as_json, lambda: f"{name} is trusted: SHA-256 {made['fingerprint']}")
        return
    if identity is None:
        raise CommandFailed("Give --identity: whom the certificate must name.")
    authority = certificates.read() if certificates is not None else ""
    made = client.signing.trust_identity(name, identity, certificates=authority, issuer=issuer or "")
    show(made, as_json, lambda: f"{name} is trusted: {made['identity']}")


@signing.command()
@click.argument("name")
@json_option
@client_command
def distrust(client: Flotilla, /, name: str, as_json: bool) -> None:
    """Trust the key or the identity NAME no longer."""
    client.signing.distrust(name)
    show({"distrusted": name}, as_json, lambda: f"{name} is trusted no longer.")
