"""Signing models, and saying whose signatures count, from a shell."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show, table
from flotilla.sdk import Flotilla

SIGNATURE_FILE = "model.sig"


@click.command()
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--key", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True, help="PEM file.")
@click.option("--password-file", type=click.File("rb"), help="File with the key's password; - for standard input.")
@json_option
def sign(path: Path, key: Path, password_file: IO[bytes] | None, as_json: bool) -> None:
    """Sign all files of the folder PATH into PATH/model.sig; push the folder then.

    The key is an elliptic curve private key (P-256, P-384 or P-521).
    """
    try:
        from model_signing import hashing, signing
    except ImportError:
        raise CommandFailed("Signing needs the extra “signing”: pip install 'flotilla[signing]'.") from None
    target = path / SIGNATURE_FILE
    password = password_file.read().rstrip(b"\r\n") if password_file is not None else None
    try:
        # Everything that is pushed is signed, also what git keeps there.
        how = hashing.Config().set_ignored_paths(paths=[target], ignore_git_paths=False)
        signer = signing.Config().use_elliptic_key_signer(private_key=key, password=password)
        signer.set_hashing_config(how).sign(path, target)
    except (ValueError, TypeError, AttributeError, OSError) as error:
        # What the library raises for keys of other kinds and for passwords that do not fit.
        raise CommandFailed(f"The folder is not signed: {error}") from None
    show({"signature": str(target)}, as_json, lambda: f"{target} is signed with {key}.")


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
@click.argument("name")
@click.option("--public-key", type=click.File("r"), required=True, help="PEM file; - for standard input.")
@json_option
@client_command
def trust(client: Flotilla, /, name: str, public_key: IO[str], as_json: bool) -> None:
    """Trust a public key as NAME."""
    made = client.signing.trust(name, public_key.read())
    show(made, as_json, lambda: f"{name} is trusted: SHA-256 {made['fingerprint']}")


@signing.command()
@click.argument("name")
@json_option
@client_command
def distrust(client: Flotilla, /, name: str, as_json: bool) -> None:
    """Trust the key NAME no longer."""
    client.signing.distrust(name)
    show({"distrusted": name}, as_json, lambda: f"{name} is trusted no longer.")
