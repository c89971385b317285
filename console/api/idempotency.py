"""Idempotency-Key: a write that is sent twice happens once; the second caller gets the first answer.

Answers are kept 24 h in the cache, bound to the caller, the address and the body. Answers of 500 and above are not
kept, so that a caller may try again. The cache is a convenience: when it is down, writes go on without it.
"""

from __future__ import annotations

import hashlib
import logging
import re
from typing import Any

from django.core.cache import cache
from django.utils.translation import gettext as _
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.response import Response

from registry.errors import Conflict, ValidationFailed

log = logging.getLogger(__name__)

KEPT_SECONDS = 24 * 3600
RUNNING_SECONDS = 60
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_KEPT_HEADERS = ("Location", "ETag", "Content-Type")


class Replay:
    """One use of a key. ``earlier`` is the stored answer, or None when the write has to happen now."""

    def __init__(self, request: Request, caller: str) -> None:
        self.key = ""
        self.earlier: Response | None = None
        offered = request.headers.get("Idempotency-Key")
        if offered is None or request.method not in {"POST", "PUT", "PATCH", "DELETE"}:
            return
        if not _KEY.fullmatch(offered):
            raise ValidationFailed(_("Idempotency-Key must be 1 to 200 visible ASCII characters."))
        name = hashlib.sha256(f"{caller}\n{offered}".encode()).hexdigest()
        body = f"{request.method}\n{request.get_full_path()}\n".encode() + request.body
        self._fingerprint = hashlib.sha256(body).hexdigest()
        self._claim(f"idempotency:{name}")

    def _claim(self, key: str) -> None:
        try:
            if cache.add(key, {"fingerprint": self._fingerprint}, RUNNING_SECONDS):
                self.key = key
                return
            stored = cache.get(key)
        except (RedisError, OSError) as error:
            log.warning("idempotency.cache_unreachable: %s", error)
            return
        if stored is None:
            return
        if stored["fingerprint"] != self._fingerprint:
            raise Conflict(_("This Idempotency-Key was used for another request."))
        if "status" not in stored:
            raise Conflict(_("The first request with this Idempotency-Key is still running."))
        headers = {**stored["headers"], "Idempotent-Replay": "true"}
        self.earlier = Response(stored["data"], status=stored["status"], headers=headers)

    def keep(self, response: Any) -> None:
        """Store the answer under the key, or free the key when nothing was done: then it may be tried again."""
        if not self.key:
            return
        try:
            if response.status_code >= 400 or not isinstance(response, Response):
                cache.delete(self.key)
                return
            headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
            entry = {
                "fingerprint": self._fingerprint,
                "status": response.status_code,
                "data": response.data,
                "headers": headers,
            }
            cache.set(self.key, entry, KEPT_SECONDS)
        except (RedisError, OSError) as error:
            log.warning("idempotency.cache_unreachable: %s", error)
