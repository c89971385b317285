"""How a machine gets a token: a person confirms a code in the console, or a CI job shows who it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import httpx2

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]

_JOB_TOKEN_SECONDS = 10.0


def begin(
    url: str, *, client: str, scopes: Sequence[str] = ("read", "write"), project: str = "", token_days: int = 30
) -> Json:
    """Begin a sign-in that a person confirms; show them ``user_code`` and ``verification_url``."""
    body = {"client": client, "scopes": [*scopes], "project": project, "token_days": token_days}
    return _call(url, "login-requests/", body)


def finish(url: str, begun: Json, *, sleep: Callable[[float], None] = time.sleep) -> Json:
    """Wait for the person and return ``{"token", "username", "scopes", "project", "expires_at"}``.

    Raises:
        ApiError: denied, or the code ran out. A console that is away for a moment is waited for.
    """
    left = datetime.fromisoformat(begun["expires_at"]).timestamp() - time.time()
    deadline = time.monotonic() + max(min(left, 3600.0), 0) + 5
    while True:
        try:
            answer = _call(url, "login-requests/claim", {"secret": begun["secret"]})
        except ApiError as error:
            if error.status not in (0, 429, 502, 503, 504):
                raise
        else:
            if "token" in answer:
                return answer
        if time.monotonic() > deadline:
            raise ApiError(0, "timed_out", "Nobody confirmed the code in time.")
        sleep(float(begun["interval_seconds"]))


def audience_of(url: str) -> str:
    """Return for whom a CI job must ask its token, so that this console takes it."""
    return str(_call(url, "oidc/exchange", None)["audience"])


def job_token(request_url: str, request_token: str, audience: str) -> str:
    """Return the identity token that GitHub Actions gives this job for an audience.

    Raises:
        ApiError: GitHub refused; the job needs ``permissions: id-token: write``.
    """
    # the address has a query of its own
    address = f"{request_url}{'&' if '?' in request_url else '?'}{urlencode({'audience': audience})}"
    try:
        answer = httpx2.get(
            address, headers={"Authorization": f"Bearer {request_token}"}, timeout=_JOB_TOKEN_SECONDS, trust_env=True
        )
        value = answer.json().get("value") if answer.status_code == 200 else None
    except (httpx2.HTTPError, ValueError, AttributeError) as error:
        raise ApiError(0, "unreachable", f"The job's identity token cannot be fetched: {error}") from None
    if not isinstance(value, str):
        raise ApiError(403, "job_token_refused", "GitHub gave this job no identity token.")
    return value


def exchange(url: str, assertion: str, *, project: str = "", rule: str = "") -> Json:
    """Return a short-lived token for a job's identity token: ``token``, ``expires_at``, ``project``, ``rule``...

    Raises:
        ApiError: the identity token is not good, or no rule fits; the sentence says which binding is not met.
    """
    return _call(url, "oidc/exchange", {"assertion": assertion, "project": project, "rule": rule})


def _call(url: str, path: str, body: Json | None) -> Json:
    """POST a body without a token, or GET where there is none."""
    transport = Transport(url.rstrip("/"), "")
    try:
        return dict(transport.send("GET" if body is None else "POST", path, json=body).json())
    finally:
        transport.close()
