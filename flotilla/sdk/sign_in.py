"""How a command line gets a token: a person confirms its code in the console."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]


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


def _call(url: str, path: str, body: Json) -> Json:
    transport = Transport(url.rstrip("/"), "")
    try:
        return dict(transport.send("POST", path, json=body).json())
    finally:
        transport.close()
