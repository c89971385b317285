"""GET /api/v1/operations/{id}/events: one operation as server-sent events until it ends, for command lines and CI."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from django.db import InterfaceError, OperationalError
from django.utils.translation import gettext as _
from rest_framework.utils.encoders import JSONEncoder

from console.api.v1.serializers.operations import OperationSerializer
from console.live.asgi import Authenticate, EventStream, refuse
from console.live.hub import Hub
from console.live.places import NoPlace, Places
from console.middleware.database import in_database_thread
from console.middleware.problems import STATUS_BY_CODE
from registry.domain.actors import Actor
from registry.errors import RegistryError
from registry.models import OperationState
from registry.selectors.operations import operation_get

ENDED = {OperationState.SUCCEEDED.value, OperationState.FAILED.value, OperationState.CANCELLED.value}


class OperationEventsApp:
    """Sends ``event: operation`` with the JSON of the operation at once and at every change."""

    def __init__(self, hub: Hub, authenticate: Authenticate, places: Places) -> None:
        self._hub = hub
        self._authenticate = authenticate
        self._places = places

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any, operation_id: uuid.UUID) -> None:
        """Serve one request."""
        if scope["method"] != "GET":
            return await refuse(send, 405, _("Events are read with GET."))

        def admit() -> tuple[Actor, bytes] | None:
            actor = self._authenticate(scope)
            if actor is None:
                return None
            document = OperationSerializer(operation_get(actor, operation_id)).data
            return actor, json.dumps(document, cls=JSONEncoder).encode()

        def look() -> bytes | None:
            found = admit()
            return found[1] if found is not None else None

        try:
            admitted = await in_database_thread(admit)
        except RegistryError as error:
            return await refuse(send, STATUS_BY_CODE.get(error.code, 403), error.message)
        except (OperationalError, InterfaceError):
            return await refuse(send, 503, _("The database cannot be reached; try again."))
        if admitted is None:
            return await refuse(send, 401, _("Sign in, or send a token."))
        actor, _first = admitted
        try:
            with self._places.taken(actor):
                subscription = self._hub.subscribe(
                    {f"operation:{operation_id}": ""}, wants_fragments=False, account=f"account:{actor.user_id}"
                )
                subscription.send(b"first")
                await EventStream(self._hub, subscription, receive, send).run(
                    _still_allowed(look, subscription.topics), _transform(look, subscription.close)
                )
        except NoPlace as full:
            await refuse(send, full.status, full.detail, full.headers)


def _still_allowed(look: Callable[[], bytes | None], topics: dict[str, str]) -> Callable[[], Any]:
    async def recheck() -> dict[str, str] | None:
        return topics if await in_database_thread(look) is not None else None

    return recheck


def _transform(look: Callable[[], bytes | None], close: Callable[[], None]) -> Callable[[bytes], Any]:
    last = b""

    async def transform(_block: bytes) -> bytes | None:
        nonlocal last
        document = await in_database_thread(look)
        if document is None:
            return None
        if json.loads(document)["state"] in ENDED:
            close()
        if document == last:
            return b""
        last = document
        return b"event: operation\ndata: " + document + b"\n\n"

    return transform
