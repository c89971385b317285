"""What is handed over once stands in no log and in no row of the audit: a whole session of an installation."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.onnx_models import write_mlp
from tests.e2e.running import RunningFlotilla, clean_environment, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

API = "/api/v1/"


@pytest.fixture(scope="module")
def admin(flotilla: RunningFlotilla) -> Iterator[httpx2.Client]:
    """The first administrator, signed in as by the page, who then calls the API by the session."""
    with httpx2.Client(base_url=flotilla.url, timeout=60, trust_env=False, follow_redirects=True) as client:
        page = client.get("/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert token is not None
        form = {"login": flotilla.username, "password": flotilla.password, "csrfmiddlewaretoken": token[1]}
        signed_in = client.post("/login/", data=form, headers={"Referer": f"{flotilla.url}/login/"})
        assert signed_in.status_code == 200 and "flotilla_session" in client.cookies
        client.headers.update({"X-CSRFToken": client.cookies["flotilla_csrf"], "Referer": flotilla.url})
        yield client


def made(client: httpx2.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(API + path, json=body)
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


def pushed_by(flotilla: RunningFlotilla, token: str, model: Path) -> str:
    """Push a model and return all that was printed."""
    told = {"FLOTILLA_URL": flotilla.url, "FLOTILLA_TOKEN": token, "FLOTILLA_CONFIG_DIR": "/nonexistent"}
    done = subprocess.run(
        [*flotilla.command, "push", "walk", str(model), "--wait"],
        capture_output=True,
        text=True,
        timeout=300,
        env=clean_environment(**told),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_nothing_secret_is_logged(flotilla: RunningFlotilla, admin: httpx2.Client, tmp_path: Path) -> None:
    password, client_secret, receiver = "an uncommon long sentence", "client-secret-of-oidc-4711", "receiver-path-0815"
    made(admin, "users/", {"username": "walker", "password": password})
    key = made(admin, "api-keys/", {"name": "walk", "scopes": ["read", "write"]})
    webhook = {"project": "default", "name": "walk", "url": f"https://hooks.example.com/{receiver}", "events": ["*"]}
    hook = made(admin, "webhooks/", webhook)
    provider = {"slug": "walk", "name": "Walk", "issuer": "https://login.example.com", "client_id": "flotilla"}
    made(admin, "sso-providers/", {**provider, "client_secret": client_secret})
    scim = made(admin, "scim-tokens/", {"name": "walk", "provider": "walk"})
    join = made(admin, "join-tokens/", {"labels": {"environment": "development"}})
    link = made(admin, "users/walker/password-link", {})["link"]
    secrets = {
        "password": password,
        "session": admin.cookies["flotilla_session"],
        "key": key["token"].rpartition("_")[2],
        "webhook": hook["secret"].removeprefix("whsec_"),
        "receiver": receiver,
        "client secret": client_secret,
        "scim token": scim["token"].rpartition("_")[2],
        "join token": join["token"].removeprefix("floj_"),
        "password link": link.rstrip("/").rpartition("-")[2],
    }
    secrets["secret key"] = (flotilla.data_dir / "secrets" / "secret-key").read_text().strip()

    # Everything is used once, right and wrong.
    wrong = {"Authorization": f"Bearer {key['token']}x"}
    assert httpx2.get(f"{flotilla.url}{API}me/", headers=wrong, trust_env=False).status_code == 401
    scim_call = {"Authorization": f"Bearer {scim['token']}"}
    assert httpx2.get(f"{flotilla.url}/scim/v2/Users", headers=scim_call, trust_env=False).status_code == 200
    assert httpx2.get(link, trust_env=False, follow_redirects=True).status_code == 200
    model = tmp_path / "walk.onnx"
    write_mlp(model, seed=1)
    pushed = pushed_by(flotilla, key["token"], model)
    admin.get(f"{API}no-such-page/?token={key['token']}")
    wait_until(lambda: admin.get(f"{API}webhooks/{hook['id']}/deliveries/").json()["results"], "a delivery")

    audit = admin.get(f"{API}audit/export").text
    log = "\n".join(flotilla.output)
    assert "First login" in log and "user.create" in audit
    for name, secret in secrets.items():
        assert len(secret) >= 16, name
        for form in (secret, base64.b64encode(secret.encode()).decode().rstrip("=")):
            assert form not in log, name
            assert form not in audit, name
            assert form not in pushed, name
