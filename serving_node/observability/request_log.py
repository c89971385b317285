"""One line for each request, while the log is verbose."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from serving_node.core.errors import InferenceError
    from serving_node.core.request import InferenceRequest, InferenceResponse

log = structlog.get_logger(__name__)

_NO_ID = "<id_unknown>"


class LoggedAnswers:
    """Passes on the responses of a request and writes a line with the last. Takes the place of ``on_response``."""

    __slots__ = ("_arrival_ns", "_count", "_respond")

    def __init__(self, request: InferenceRequest) -> None:
        self._respond: Callable[[InferenceResponse], None] = request.on_response
        self._arrival_ns = request.arrival_ns
        self._count = 0

    def __call__(self, response: InferenceResponse) -> None:
        """Take one response."""
        self._count += not response.flag_only
        if response.final:
            log.debug(
                "infer.answered",
                request_id=response.id or _NO_ID,
                model=response.model_name,
                version=response.model_version,
                responses=self._count,
                milliseconds=_since(self._arrival_ns),
                **({} if response.error is None else {"error": response.error.message}),
            )
        self._respond(response)


def log_refusal(request: InferenceRequest, error: InferenceError) -> None:
    """Write a line about a request that no model takes."""
    log.debug(
        "infer.refused",
        request_id=request.id or _NO_ID,
        model=request.model_name,
        version=request.model_version,
        milliseconds=_since(request.arrival_ns),
        error=error.message,
    )


def _since(arrival_ns: int) -> float:
    return round((time.monotonic_ns() - arrival_ns) / 1e6, 3)
