"""Task ids onto queues, with short deadlines. A hint may be lost: beat finds the same work within seconds."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from celery import current_app
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

RUN_OPERATION = "workers.run_operation"
RECONCILE_NODE = "workers.reconcile_node"
RECONCILE_DEPLOYMENT = "workers.reconcile_deployment"
DELIVER_WEBHOOKS = "workers.deliver_webhooks"

_log = logging.getLogger(__name__)

# A caller waits at most one connect plus one answer (2 s), and after a failure not at all for a while.
_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 1.0
PAUSE_SECONDS = 5.0


class HintSender:
    """Sends task ids with short deadlines; while the broker is dead it gives up at once, and says so once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._silent_until = 0.0
        self._is_down = False

    def send(self, task: str, argument: uuid.UUID | str | None, queue: str) -> bool:
        """Put the task named ``task`` on ``queue``; return False when it could not be sent. Never raises.

        ``argument`` None: the task takes none.
        """
        with self._lock:
            if self._clock() < self._silent_until:
                return False
        try:
            self._publish(task, argument, queue)
        except (KombuError, RedisError, OSError) as error:
            self._failed(error)
            return False
        with self._lock:
            if self._is_down:
                _log.info("hints.broker_back")
            self._is_down = False
        return True

    def _publish(self, task: str, argument: uuid.UUID | str | None, queue: str) -> None:
        arguments = () if argument is None else (str(argument),)
        # One short-lived connection a hint: the pool's connections wait for the broker for as long as it takes.
        options: dict[str, Any] = {
            **current_app.conf.broker_transport_options,
            "socket_timeout": _ANSWER_SECONDS,
            "socket_connect_timeout": _CONNECT_SECONDS,
            "max_retries": 0,
            "retry_on_timeout": False,
        }
        with current_app.connection_for_write(transport_options=options) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
            current_app.send_task(task, args=arguments, queue=queue, connection=connection, retry=False)

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._silent_until = self._clock() + PAUSE_SECONDS
            was_down, self._is_down = self._is_down, True
        if not was_down:
            _log.warning("hints.broker_gone reason=%s (beat will find the work)", error)


sender = HintSender()
