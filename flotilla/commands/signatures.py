"""Signing a model and verifying its signature, from a shell."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show
from flotilla.sdk import Flotilla
from serving_node.contract.signing import SIGNATURE_FILE, Signer, SignerKind
from signatures.verify import NotTrustedError, OtherDigestsError, UnverifiableError, differences, signed_files

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("path", type=_FOLDER)
@click.option("--key", type=_FILE, help="PEM file of an elliptic curve private key (P-256, P-384 or P-521).")
@click.option("--password-file", type=click.File("rb"), help="File with the key's password; - for standard input.")
@click.option("--certificate", type=_FILE, help="PEM file of the key's certificate.")
@click.option("--chain", type=_FILE, multiple=True, help="PEM file of certificates between it and the authority.")
@click.option("--keyless", is_flag=True, help="Sign as the CI job or person that you are, by Sigstore.")
@click.option("--identity-token", type=click.File("r"), help="File with an OpenID Connect token for --keyless.")
@click.option("--trust-config", type=_FILE, help="Client trust config of another Sigstore than the public one.")
@json_option
def sign(path: Path, as_json: bool, **how: Any) -> None:
    """Sign all files of the folder PATH into PATH/model.sig; push the folder then.

    With --key; with --key and --certificate; or with --keyless, which needs the network and, outside of CI, a browser.
    """
    if how["keyless"] == (how["key"] is not None):
        raise CommandFailed("Give --key, or --keyless.")
    if how["certificate"] is not None and (how["key"] is None or how["password_file"] is not None):
        raise CommandFailed("A certificate is signed with --key, a key without a password.")
    if how["chain"] and how["certificate"] is None:
        raise CommandFailed("--chain is of a --certificate.")
    try:
        from model_signing import hashing, signing
        from sigstore.errors import Error as SigstoreError
        from sigstore.oidc import IdentityError
    except ImportError:
        raise CommandFailed("Signing needs the extra “signing”: pip install 'flotilla[signing]'.") from None
    target = path / SIGNATURE_FILE
    try:
        # Everything that is pushed is signed, also what git keeps there.
        files = hashing.Config().set_ignored_paths(paths=[target], ignore_git_paths=False)
        _signer(signing.Config(), **how).set_hashing_config(files).sign(path, target)
    except (ValueError, TypeError, AttributeError, OSError, SigstoreError, IdentityError) as error:
        # What the library raises for keys of other kinds and for passwords that do not fit.
        raise CommandFailed(f"The folder is not signed: {error}") from None
    by = how["certificate"] or how["key"] or "Sigstore"
    show({"signature": str(target)}, as_json, lambda: f"{target} is signed with {by}.")


def _signer(
    config: Any,
    *,
    key: Path | None,
    password_file: IO[bytes] | None,
    certificate: Path | None,
    chain: tuple[Path, ...],
    keyless: bool,
    identity_token: IO[str] | None,
    trust_config: Path | None,
) -> Any:
    """Return the library's config with the signer that the options ask for."""
    if keyless:
        token = identity_token.read().strip() if identity_token is not None else None
        return config.use_sigstore_signer(use_ambient_credentials=True, identity_token=token, trust_config=trust_config)
    if certificate is not None:
        # The library cannot read an empty chain; a file often holds the certificate and its chain.
        return config.use_certificate_signer(
            private_key=key, signing_certificate=certificate, certificate_chain=chain or (certificate,)
        )
    password = password_file.read().rstrip(b"\r\n") if password_file is not None else None
    return config.use_elliptic_key_signer(private_key=key, password=password)


@click.command()
@click.argument("path", type=_FOLDER)
@click.option("--public-key", type=_FILE, help="PEM file of the key that should have signed.")
@click.option("--certificates", type=_FILE, help="PEM file: certificates of authorities, and revoked ones.")
@click.option("--trusted-root", type=_FILE, help="Sigstore trusted root (JSON) for keyless signatures.")
@click.option("--identity", help="Whom the certificate must name; * at its end for any rest.")
@click.option("--issuer", help="OpenID Connect issuer of a keyless identity.")
@json_option
@client_command
def verify(client: Flotilla, /, path: Path, as_json: bool, **who: Any) -> None:
    """Verify PATH/model.sig over all files of the folder PATH. Status 1 when it proves nothing.

    With --public-key; with --certificates and --identity; or with --trusted-root, --identity and --issuer. Without
    these, by whom the project trusts; keyless identities count with --trusted-root then.
    """
    signature = path / SIGNATURE_FILE
    if not signature.is_file():
        raise CommandFailed(f"There is no {signature}.")
    signers = _given(**who) or _trusted(client, who["trusted_root"])
    try:
        signed = signed_files(signature, signers)
    except UnverifiableError:
        raise CommandFailed("Verifying needs the extra “signing”: pip install 'flotilla[signing]'.") from None
    except (NotTrustedError, OtherDigestsError) as error:
        raise CommandFailed(f"The signature proves nothing: {error}.") from None
    found = differences(signed.files, _digests(path))
    if found:
        parts = {"changed": found.changed, "missing": found.missing, "not signed": found.not_signed}
        told = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
        raise CommandFailed(f"The files are not those that {signed.signer.name} signed: {told}.")
    document = {
        "signer": signed.signer.name,
        "kind": signed.signer.kind.value,
        "identity": signed.identity,
        "issuer": signed.signer.issuer,
        "fingerprint": signed.fingerprint,
        "files": len(signed.files),
    }
    by = f"{signed.signer.name} ({signed.identity or 'SHA-256 ' + signed.fingerprint})"
    show(document, as_json, lambda: f"{by} signed all {len(signed.files)} files.")


def _given(
    public_key: Path | None,
    certificates: Path | None,
    trusted_root: Path | None,
    identity: str | None,
    issuer: str | None,
) -> list[Signer]:
    """Return the signer that the options name, if they do."""
    if public_key is not None:
        return [Signer(public_key.name, SignerKind.KEY, public_key.read_text())]
    if identity is None:
        if certificates is not None or issuer is not None:
            raise CommandFailed("Give --identity: whom the certificate must name.")
        return []
    if certificates is not None:
        return [Signer(certificates.name, SignerKind.CERTIFICATE, certificates.read_text(), identity)]
    if trusted_root is None or issuer is None:
        raise CommandFailed("--identity goes with --certificates, or with --trusted-root and --issuer.")
    return [Signer(trusted_root.name, SignerKind.KEYLESS, trusted_root.read_text(), identity, issuer)]


def _trusted(client: Flotilla, trusted_root: Path | None) -> list[Signer]:
    """Return whom the project trusts."""
    keys = client.signing.keys()
    signers = [Signer(key["name"], SignerKind.KEY, key["public_key"]) for key in keys]
    for one in client.signing.identities():
        kind = SignerKind(one["kind"])
        signer = Signer(one["name"], kind, one["certificates"], one["identity"], one["issuer"])
        if kind is SignerKind.CERTIFICATE:
            signers.append(signer)
        elif trusted_root is not None:
            signers.append(replace(signer, material=trusted_root.read_text()))
    return signers


def _digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of all files of a folder but the signature, by path."""
    found = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and name != SIGNATURE_FILE:
            with file.open("rb") as content:
                found[name] = hashlib.file_digest(content, "sha256").hexdigest()
    return found
