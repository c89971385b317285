"""Whether versions of a project must be signed, and by whom."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]


class Signing:
    """The policy, the trusted keys and identities of one project. All but reading needs the scope ``admin``."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._policies = f"projects/{project}/policies/"
        self._keys = f"projects/{project}/signing-keys/"
        self._identities = f"projects/{project}/signing-identities/"

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

    def identities(self) -> list[Json]:
        """Return the trusted identities by name."""
        return [*self._transport.pages(self._identities, {})]

    def trust_identity(self, name: str, identity: str, *, certificates: str = "", issuer: str = "") -> Json:
        """Trust whom certificates of an authority (PEM) name, or a keyless identity of an issuer, and return it."""
        body = {"name": name, "identity": identity, "certificates": certificates, "issuer": issuer}
        return dict(self._transport.send("POST", self._identities, json=body).json())

    def distrust(self, name: str) -> None:
        """Trust a key or an identity no longer; a key, where both have the name.

        Raises:
            ApiError: 404 when the project trusts none of that name.
        """
        for place in (self._keys, self._identities):
            for found in self._transport.pages(place, {"name": name}):
                self._transport.change("DELETE", f"{place}{found['id']}/")
                return
        raise ApiError(404, "not_found", f"The project trusts nobody as {name}.")
