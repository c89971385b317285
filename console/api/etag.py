"""Optimistic locking over HTTP: weak ETags out, If-Match in. Source: RFC 9110 sections 8.8.3 and 13.1, RFC 6585.

How an address takes part:

- Answers of GET get the ETag of their document by themselves (ApiView). A document with parts that change by themselves
  (ages, what nodes say) answers with ``tagged(request, document, version=...)``: a smaller document of what writers
  change, so that the tag stays while nobody writes.
- PUT, PATCH and DELETE without If-Match are refused by themselves (428). The view writes inside ``matched``, which
  locks the row, makes the document that GET would answer now, compares (412), and commits with the block::

      with matched(request, selectors.webhook_get(self.actor, webhook), document_of) as hook:
          changed = services.webhook_update(webhook=hook, ..., actor=self.actor)
      return tagged(request, document_of(changed))

  ``document_of`` is the same function as for GET. Where other writers lock another row first (a membership: its
  project), hold that row. PUT that makes something new comes with ``If-None-Match: *`` instead; then ``matched`` holds
  the row above it, and ``document_of`` returns None while there is nothing.
- POST verbs use ``matched`` as well; without the header they go on unchecked.
- A view whose address is not one resource says so with ``needs_match = False`` (rare; say why).

tests/console/api/test_preconditions.py walks all addresses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import orjson
from django.db import models
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response

from registry.errors import PreconditionRequired, StaleWrite, ValidationFailed
from registry.services.locking import held

Row = TypeVar("Row", bound=models.Model)

NEED_MATCH = frozenset({"PUT", "PATCH", "DELETE"})


def etag_of(document: Any) -> str:
    """Return a weak ETag of a JSON document: equal documents have equal tags."""
    try:
        body = orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
    except TypeError:  # numbers beyond 64 bits, from before they were refused
        body = json.dumps(document, sort_keys=True, default=str).encode()
    return f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'


def matches(header: str, tag: str) -> bool:
    """Return whether an If-Match or If-None-Match header names the tag (weak comparison)."""
    wanted = tag.removeprefix("W/")
    return any(part.strip() == "*" or part.strip().removeprefix("W/") == wanted for part in header.split(","))


def require_precondition(request: Request) -> None:
    """Refuse a change that does not say which state it changes.

    Raises:
        PreconditionRequired: PUT, PATCH or DELETE without If-Match (for PUT, ``If-None-Match: *`` will do).
        ValidationFailed: PUT with another If-None-Match.
    """
    if request.method not in NEED_MATCH:
        return
    is_for_new = request.method == "PUT" and "If-None-Match" in request.headers
    if is_for_new and request.headers["If-None-Match"].strip() != "*":
        raise ValidationFailed(
            _("With PUT, If-None-Match is *: only if there is none yet. A tag that was read goes into If-Match.")
        )
    if is_for_new or request.headers.get("If-Match"):
        return
    raise PreconditionRequired(_("Send the ETag of what you read as If-Match, so that no other change is lost."))


def require_match(request: Request, document: Any) -> None:
    """Refuse a write whose If-Match names another state than ``document``, what GET answers now (None: 404).

    Call it under the lock of what is written (``matched`` does). Without the headers nothing is checked.

    Raises:
        StaleWrite: somebody changed, made or deleted it since the caller read it.
    """
    header = request.headers.get("If-Match")
    if header and (document is None or not matches(header, etag_of(document))):
        raise StaleWrite(_("It was changed since you read it; read it again."))
    if document is not None and not header and request.headers.get("If-None-Match", "").strip() == "*":
        raise StaleWrite(_("There is one already; read it, and send its ETag as If-Match."))


@contextmanager
def matched(request: Request, row: Row, document_of: Callable[[Row], Any]) -> Iterator[Row]:
    """Yield ``row`` as it is now, locked until the block ends, when it is still what the caller saw.

    Raises:
        StaleWrite: it is not.
        NotFound: the row is gone.
    """
    if "If-Match" not in request.headers and "If-None-Match" not in request.headers:
        yield row
        return
    with held(row) as locked:
        require_match(request, document_of(locked))
        yield locked


def tagged(request: Request, document: Any, *, version: Any = None) -> Response:
    """Return 200 with the document and its ETag, or 304 when the caller has it already.

    With ``version`` the tag is of that alone; the document may differ under one tag, so there is no 304 then.
    """
    tag = etag_of(document if version is None else version)
    header = request.headers.get("If-None-Match")
    if header and version is None and request.method in {"GET", "HEAD"} and matches(header, tag):
        return Response(status=304, headers={"ETag": tag})
    return Response(document, headers={"ETag": tag})
