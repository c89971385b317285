"""Idempotency-Key: a write that is sent twice happens once; the second caller gets the first answer.

The answer is kept in the transaction of the write itself (registry.services.idempotency), for 24 h, bound to the
caller, the address and the body. Refusals are not kept, so that a caller may try again.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import orjson
from django.utils.translation import gettext as _
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from registry.errors import ValidationFailed
from registry.services.idempotency import answer_claim, answer_keep

HEADER = "Idempotency-Key"
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_KEPT_HEADERS = ("Location", "ETag", "Content-Type")


class Replay:
    """One use of a key, inside the transaction that holds it. ``earlier`` is the answer given before, if there is one.

    Raises:
        ValidationFailed: the header is no key.
        KeyInUse: the first request still runs.
        KeyReused: the key belongs to another request.
    """

    def __init__(self, request: Request, caller: str) -> None:
        offered = request.headers[HEADER]
        if not _KEY.fullmatch(offered):
            raise ValidationFailed(_("Idempotency-Key must be 1 to 200 visible ASCII characters."))
        self._key = hashlib.sha256(f"{caller}\n{offered}".encode()).hexdigest()
        body = f"{request.method}\n{request.get_full_path()}\n".encode() + request.body
        self._fingerprint = hashlib.sha256(body).hexdigest()
        stored = answer_claim(key=self._key, fingerprint=self._fingerprint)
        self.earlier: Response | None = None
        if stored is not None:
            headers = {**stored.headers, "Idempotent-Replay": "true"}
            self.earlier = Response(stored.document, status=stored.status, headers=headers)

    def keep(self, response: Any) -> None:
        """Store the answer, unless it is a refusal or was stored before."""
        if self.earlier is not None or response.status_code >= 400 or not isinstance(response, Response):
            return
        answer_keep(
            key=self._key,
            fingerprint=self._fingerprint,
            status=response.status_code,
            document=None if response.data is None else orjson.loads(JSONRenderer().render(response.data)),
            headers={name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers},
        )
