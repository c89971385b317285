"""Calls that need a model before they can be read, on a node that loads models on their first request."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from serving_node.core.errors import InferenceError
from serving_node.dataplane import DataPlane
from serving_node.frontends.http.answers import respond_error, respond_failure
from serving_node.wire.http1 import HttpExchange

_log = structlog.get_logger(__name__)


def serve_when_loaded(dataplane: DataPlane, exchange: HttpExchange, model: str, serve: Callable[[], None]) -> bool:
    """Call ``serve`` again when the model serves that is loaded now; False when it would not help."""

    def go_on(error: InferenceError | None) -> None:
        exchange.on_disconnect = None
        try:
            if error is not None:
                raise error
            serve()
        except InferenceError as failure:
            respond_failure(exchange, failure)
        except Exception:
            _log.exception("a call over HTTP failed after its model was loaded", model=model)
            if exchange.streaming:
                exchange.abort()
            elif not exchange.done:
                respond_error(exchange, 500, "internal error")

    leave = dataplane.await_model(model, go_on)
    if leave is not None:
        exchange.on_disconnect = leave
    return leave is not None
