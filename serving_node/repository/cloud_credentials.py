"""Which credentials belong to an object store. Pure, but for the files that are named.

From ``TRITON_CLOUD_CREDENTIAL_PATH``: a JSON file with credentials by kind of store and beginning of the URL, the
longest that fits counts. Else from the clouds' own variables. Source: Triton's guide to cloud model repositories.
"""

from __future__ import annotations

import configparser
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving_node.repository.remote_location import RemoteLocation, StoreKind


class CredentialError(Exception):
    """Credentials cannot be read. One sentence, without any of them."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a store is opened with. Never shown: ``repr`` has no values.

    S3: key_id, secret_key, session_token, region. GS: path of a key file. AS: account_str, account_key, client_id,
    auth_type. What is missing is empty.
    """

    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")


# credential -> environment variables, the first that is set counts
_VARIABLES: dict[StoreKind, dict[str, tuple[str, ...]]] = {
    StoreKind.S3: {
        "key_id": ("AWS_ACCESS_KEY_ID",),
        "secret_key": ("AWS_SECRET_ACCESS_KEY",),
        "session_token": ("AWS_SESSION_TOKEN",),
        "region": ("AWS_DEFAULT_REGION", "AWS_REGION"),
        "profile": ("AWS_PROFILE",),
    },
    StoreKind.GS: {"path": ("GOOGLE_APPLICATION_CREDENTIALS",)},
    StoreKind.AS: {
        "account_str": ("AZURE_STORAGE_ACCOUNT",),
        "account_key": ("AZURE_STORAGE_KEY",),
        "client_id": ("AZURE_STORAGE_CLIENT_ID",),
        "auth_type": ("AZURE_STORAGE_AUTH_TYPE",),
    },
}
_FILE_VARIABLE = "TRITON_CLOUD_CREDENTIAL_PATH"
VARIABLES = frozenset(
    {_FILE_VARIABLE, "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "HOME"}
    | {name for kind in _VARIABLES.values() for names in kind.values() for name in names}
)


def find_credentials(location: RemoteLocation, environment: Mapping[str, str]) -> Credentials:
    """Return the credentials of a location. ``environment`` holds variables of ``VARIABLES``. Reads files.

    Raises:
        CredentialError: the file with credentials cannot be read, or has none that fit.
    """
    file = environment.get(_FILE_VARIABLE, "")
    values = _from_file(location, Path(file)) if file else _from_environment(location.kind, environment)
    if location.kind is StoreKind.S3 and not (values.get("key_id") and values.get("secret_key")):
        values = {**_from_profile(values.get("profile", ""), environment), **_given(values)}
    return Credentials(_given(values))


def _given(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _from_environment(kind: StoreKind, environment: Mapping[str, str]) -> dict[str, str]:
    return {
        credential: next((environment[name] for name in names if environment.get(name)), "")
        for credential, names in _VARIABLES[kind].items()
    }


def _from_file(location: RemoteLocation, file: Path) -> dict[str, str]:
    try:
        document: Any = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CredentialError(f"the file with cloud credentials {file} cannot be read: {error.strerror}") from error
    except ValueError:
        # the error shows what it could not parse, which may be a secret
        raise CredentialError(f"the file with cloud credentials {file} is not JSON") from None
    entries = document.get(location.kind) if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        entries = {}
    fitting = [name for name in entries if location.text.startswith(name)]
    if not fitting:
        raise CredentialError(f"the file with cloud credentials {file} has none for {location.text}")
    entry = entries[max(fitting, key=len)]
    if location.kind is StoreKind.GS and isinstance(entry, str):
        return {"path": entry}
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise CredentialError(f"the credentials for {location.text} in {file} are not texts by name")
    return dict(entry)


def _from_profile(profile: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what AWS' own files have for a profile; nothing when there are none."""
    home = Path(environment.get("HOME", "/")) / ".aws"
    name = profile or "default"
    found: dict[str, str] = {}
    for variable, default, section in (
        ("AWS_CONFIG_FILE", home / "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", home / "credentials", name),
    ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(environment.get(variable) or default, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            raise CredentialError(f"the AWS file {environment.get(variable) or default} cannot be read") from None
        for credential, option in (
            ("key_id", "aws_access_key_id"),
            ("secret_key", "aws_secret_access_key"),
            ("session_token", "aws_session_token"),
            ("region", "region"),
        ):
            value = parser.get(section, option, fallback="")
            if value:
                found[credential] = value
    if profile and not found:
        raise CredentialError(f"there is no AWS profile '{profile}'")
    return found
