"""Single sign-on: providers, what their groups give, and tokens for provisioning. For site administrators."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]
_PROVIDERS = "sso-providers/"
_TOKENS = "scim-tokens/"


class Sso:
    """Providers by their short names. All but reading needs the scope ``admin``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def providers(self) -> list[Json]:
        """Return the providers, without their secrets."""
        return [*self._transport.pages(_PROVIDERS)]

    def provider(self, slug: str) -> Json:
        """Return one. Raises ApiError (404)."""
        return dict(self._transport.send("GET", f"{_PROVIDERS}{slug}/").json())

    def create(self, slug: str, *, name: str, issuer: str, client_id: str, client_secret: str, **more: Any) -> Json:
        """Add a provider. ``more``: ``subject_claim, groups_claim, scopes, sign_up``."""
        given = {"slug": slug, "name": name, "issuer": issuer, "client_id": client_id, "client_secret": client_secret}
        return dict(self._transport.send("POST", _PROVIDERS, json={**given, **more}).json())

    def update(self, slug: str, **changes: Any) -> Json:
        """Change what is given: ``name, client_id, client_secret, groups_claim, scopes, sign_up, is_enabled``."""
        return dict(self._transport.change("PATCH", f"{_PROVIDERS}{slug}/", json=changes).json())

    def delete(self, slug: str) -> None:
        """Delete a provider with its mappings and the links of accounts to it."""
        self._transport.change("DELETE", f"{_PROVIDERS}{slug}/")

    def mappings(self, slug: str) -> list[Json]:
        """Return what the groups of a provider give."""
        return [*self._transport.pages(f"{_PROVIDERS}{slug}/mappings/")]

    def map(self, slug: str, group: str, role: str, *, project: str | None = None) -> Json:
        """Let a group give a role in a project, or (without one) on the site."""
        body: Json = {"group": group, "role": role, "project": project}
        return dict(self._transport.send("POST", f"{_PROVIDERS}{slug}/mappings/", json=body).json())

    def unmap(self, slug: str, group: str, *, project: str | None = None) -> None:
        """Let a group give nothing in a project, or on the site, any more.

        Raises:
            ApiError: 404 when it gives nothing there.
        """
        found = [row for row in self.mappings(slug) if (row["group"], row["project"]) == (group, project)]
        if not found:
            where = f"in {project}" if project else "on the site"
            raise ApiError(404, "not_found", f"The group {group} gives nothing {where}.")
        self._transport.change("DELETE", f"{_PROVIDERS}{slug}/mappings/{found[0]['id']}/")

    def groups(self, slug: str) -> list[Json]:
        """Return the groups that a provider keeps here by SCIM, with how many ``people`` are in each."""
        return [*self._transport.pages(f"{_PROVIDERS}{slug}/groups/")]

    def scim_tokens(self) -> list[Json]:
        """Return the tokens for provisioning, newest first."""
        return [*self._transport.pages(_TOKENS)]

    def create_scim_token(self, name: str, *, provider: str | None = None) -> Json:
        """Make a token for provisioning; its text, ``token``, is told only this once."""
        body: Json = {"name": name, "provider": provider}
        return dict(self._transport.send("POST", _TOKENS, json=body).json())

    def revoke_scim_token(self, name: str) -> None:
        """Revoke the token of that name or id.

        Raises:
            ApiError: 404 when none is alive, 409 when several have the name.
        """
        found = [row for row in self.scim_tokens() if name in (row["id"], row["name"]) and not row["revoked_at"]]
        if not found:
            raise ApiError(404, "not_found", f"There is no token {name}.")
        if len(found) > 1:
            raise ApiError(409, "conflict", f"{len(found)} tokens have the name {name}; name it by its id.")
        self._transport.change("DELETE", f"{_TOKENS}{found[0]['id']}/")
