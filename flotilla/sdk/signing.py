"""Whether versions of a project must be signed, and by whom."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]


class Signing:
    """The policy and the trusted keys of one project. All but reading needs the scope ``admin``."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._policies = f"projects/{project}/policies/"
        self._keys = f"projects/{project}/signing-keys/"

    def policy(self) -> str:
        """Return ``off``, ``optional`` or ``required``."""
        return str(self._transport.send("GET", self._policies).json()["signing_policy"])

    def set_policy(self, policy: str) -> None:
        """Set it: ``off``, ``optional`` or ``required``."""
        self._transport.change("PATCH", self._policies, json={"signing_policy": policy})

    def keys(self) -> list[Json]:
        """Return the trusted keys by name."""
        return [*self._transport.pages(self._keys, {})]

    def trust(self, name: str, public_key: str) -> Json:
        """Trust a public key (PEM) and return it."""
        return dict(self._transport.send("POST", self._keys, json={"name": name, "public_key": public_key}).json())

    def distrust(self, name: str) -> None:
        """Trust a key no longer.

        Raises:
            ApiError: 404 when the project trusts none of that name.
        """
        found = [*self._transport.pages(self._keys, {"name": name})]
        if not found:
            raise ApiError(404, "not_found", f"The project trusts no key {name}.")
        self._transport.change("DELETE", f"{self._keys}{found[0]['id']}/")
