"""Resumable uploads: tus 1.0.0 at /api/v1/uploads/, as a raw ASGI app before Django.

Bytes go from the socket to the staging file in threads, two megabytes at a time. The offset in the database is what
counts; it follows the file every second, so that a killed process loses no more than that. One PATCH at a time
for each upload, by a lock on the staging file.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils.http import http_date
from django.utils.translation import gettext as _
from rest_framework.exceptions import NotAuthenticated

from console.identity.asgi import authenticate
from console.identity.rates import count_call
from console.middleware.database import in_database_thread
from console.middleware.metrics import observe
from console.middleware.problems import CONTENT_TYPE, problem, problem_of
from console.middleware.request_context import request_facts
from console.uploads import protocol, sessions
from console.uploads.bodies import open_body
from console.uploads.protocol import Checksum, ProtocolError
from console.uploads.reception import Reception
from console.uploads.staging import StagedFile
from registry.domain.actors import Actor
from registry.errors import RegistryError
from registry.models import Upload, UploadState

log = logging.getLogger(__name__)

PREFIX = "/api/v1/uploads"
ROUTE = "api/v1/uploads/{id}"


@dataclass(frozen=True, slots=True)
class Answer:
    """One response without a body, or with a problem document."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    document: dict[str, Any] | None = None


class UploadsApp:
    """Answers /api/v1/uploads/ and below."""

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Serve one request."""
        start = time.perf_counter()
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        facts = request_facts(headers, (scope.get("client") or (None,))[0])
        method = scope["method"]
        if method == "POST":  # Only there: the check of cross-site requests looks at the real method.
            method = headers.get("x-http-method-override", method).upper()
        try:
            answer = await self._answer(scope, method, headers, receive)
        except Exception as error:
            answer = _answer_of(error, facts.request_id)
        await _send(send, answer, facts.request_id, is_head=scope["method"] == "HEAD")
        observe(method, ROUTE, answer.status, time.perf_counter() - start)

    async def _answer(self, scope: Mapping[str, Any], method: str, headers: Mapping[str, str], receive: Any) -> Answer:
        name = scope["path"].removeprefix(PREFIX).strip("/")
        if method == "OPTIONS":
            return _capabilities()
        if method == "PATCH" and name:
            return await _patch(scope, name, headers, receive)
        actor = await in_database_thread(_actor, scope, is_write=method not in {"HEAD", "GET"})
        protocol.require_version(headers)
        if not name:
            if method != "POST":
                raise ProtocolError(405, _("Create an upload with POST."))
            return await _create(actor, headers)
        upload_id = _identifier(name)
        if method == "HEAD":
            return await _head(actor, upload_id)
        if method == "DELETE":
            await in_database_thread(sessions.terminate, actor, upload_id)
            return Answer(204)
        raise ProtocolError(405, _("Use HEAD, PATCH or DELETE."))


def _capabilities() -> Answer:
    headers = {
        "Tus-Version": protocol.VERSION,
        "Tus-Extension": protocol.EXTENSIONS,
        "Tus-Max-Size": str(settings.MAX_UPLOAD_BYTES),
        "Tus-Checksum-Algorithm": ",".join(protocol.ALGORITHMS),
    }
    return Answer(204, headers)


async def _create(actor: Actor, headers: Mapping[str, str]) -> Answer:
    rate = await in_database_thread(count_call, "upload", actor.token_id or actor.user_id)
    if rate is not None and rate.is_over:
        raise ProtocolError(429, _("Too many uploads begun; wait a little."), "throttled", rate.retry_headers())
    metadata, parts = protocol.read_metadata(headers), protocol.read_concat(headers)
    if parts:
        upload = await in_database_thread(sessions.concatenate, actor, metadata, parts)
    else:
        length = protocol.read_length(headers, settings.MAX_UPLOAD_BYTES)
        upload = await in_database_thread(sessions.create, actor, metadata, length, is_part=parts is not None)
    return Answer(201, {"Location": f"{PREFIX}/{upload.pk}", **_expiry(upload)})


async def _head(actor: Actor, upload_id: uuid.UUID) -> Answer:
    def look() -> tuple[Upload, int, str]:
        upload = sessions.find(actor, upload_id)
        return upload, sessions.present_offset(upload), sessions.concat_of(upload)

    upload, offset, concat = await in_database_thread(look)
    headers = {"Upload-Offset": str(offset), "Upload-Length": str(upload.length), **_expiry(upload)}
    if concat:
        headers["Upload-Concat"] = concat
    return Answer(200, headers)


async def _patch(scope: Mapping[str, Any], name: str, headers: Mapping[str, str], receive: Any) -> Answer:
    def begin() -> tuple[Upload, StagedFile, Checksum | None]:
        actor = _actor(scope, is_write=True)
        protocol.require_version(headers)
        upload_id, offset, checksum = _identifier(name), protocol.read_offset(headers), protocol.read_checksum(headers)
        protocol.require_chunk(headers)
        return *sessions.begin(actor, upload_id, offset), checksum

    upload, staged, checksum = await in_database_thread(begin)
    with staged:
        protocol.require_fit(headers, upload.length - staged.offset)
        with contextlib.closing(open_body(scope, receive)) as body:
            reached = await Reception(upload, staged, checksum).run(body)
    return Answer(204, {"Upload-Offset": str(reached), **_expiry(upload)})


def _actor(scope: Mapping[str, Any], *, is_write: bool) -> Actor:
    actor = authenticate(scope, is_write=is_write)
    if actor is None:
        raise NotAuthenticated
    return actor


def _expiry(upload: Upload) -> dict[str, str]:
    if upload.state != UploadState.RECEIVING:
        return {}
    return {"Upload-Expires": http_date(upload.expires_at.timestamp())}


def _identifier(name: str) -> uuid.UUID:
    try:
        return uuid.UUID(name)
    except ValueError:
        raise ProtocolError(404, _("There is no such upload."), "not_found") from None


def _answer_of(error: Exception, request_id: str) -> Answer:
    if isinstance(error, ProtocolError):
        document = problem(error.status, error.detail, code=error.code, request_id=request_id)
        headers = {"Tus-Version": protocol.VERSION} if error.status == 412 else error.headers
        return Answer(error.status, headers, document)
    if isinstance(error, RegistryError):
        document = problem_of(error, request_id)
        return Answer(document["status"], {}, document)
    if isinstance(error, NotAuthenticated):
        document = problem(401, _("Sign in, or send a token."), code="not_authenticated", request_id=request_id)
        return Answer(401, {"WWW-Authenticate": 'Bearer realm="flotilla"'}, document)
    if isinstance(error, OperationalError | InterfaceError):
        log.warning("upload.database_unreachable: %s", error)
        document = problem(503, _("The database cannot be reached; try again."), request_id=request_id)
        return Answer(503, {"Retry-After": "2"}, document)
    log.exception("upload.unexpected", exc_info=error)
    return Answer(500, {}, problem(500, _("An unexpected error."), request_id=request_id))


async def _send(send: Any, answer: Answer, request_id: str, *, is_head: bool) -> None:
    body = orjson.dumps(answer.document) if answer.document else b""
    headers = {
        "Tus-Resumable": protocol.VERSION,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "X-Request-ID": request_id,
        **({"Content-Type": CONTENT_TYPE} if body else {}),
        **answer.headers,
    }
    if answer.status != 204 and not (is_head and not body):
        headers["Content-Length"] = str(len(body))
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": b"" if is_head else body})
