"""A provider of single sign-on, and how it provisions over SCIM."""

from __future__ import annotations

import httpx2
import pytest

from registry.models import SsoProvider
from registry.services import scim_tokens, sso
from tests.console.conftest import Cast, RunningConsole


@pytest.fixture
def okta(shared_cast: Cast) -> SsoProvider:
    return sso.sso_provider_create(
        slug="okta",
        name="Okta",
        issuer="https://corp.okta.com",
        client_id="x",
        client_secret="y",
        actor=shared_cast.actor("alice"),
    )


@pytest.fixture
def scim(console: RunningConsole, shared_cast: Cast, okta: SsoProvider) -> httpx2.Client:
    _row, token = scim_tokens.scim_token_create(name="okta", provider=okta, actor=shared_cast.actor("alice"))
    client = console.client(token, **{"Content-Type": "application/scim+json"})
    client.base_url = f"{console.url}/scim/v2/"
    return client
