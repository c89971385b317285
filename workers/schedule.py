"""What happens by the clock, and the scheduler that lets only one beat act."""

from __future__ import annotations

import logging
from typing import Any

from celery.beat import Scheduler
from django.db import DatabaseError, connection

from workers.locks import lock_key
from workers.tasks.hints import RUN_OPERATION

_log = logging.getLogger(__name__)

ROUTES = {RUN_OPERATION: {"queue": "jobs"}}


def _every(seconds: float, task: str, **kwargs: Any) -> dict[str, Any]:
    # A tick that could not run in its interval is worth nothing: the next one does the same work.
    options = {"expires": max(seconds, 5.0), "queue": "control"}
    return {"task": task, "schedule": seconds, "kwargs": kwargs, "options": options}


BEAT: dict[str, dict[str, Any]] = {
    "sweep": _every(5, "workers.sweep"),
    "void-approvals": _every(15, "workers.void_approvals"),
    "seal-audit": _every(10, "workers.seal_audit"),
    "seal-late-audit": _every(3600, "workers.seal_audit", everything=True),
    "roll-up": _every(60, "workers.roll_up"),
    "tidy": _every(300, "workers.tidy"),
}

STANDBY_SECONDS = 5.0


class SingleScheduler(Scheduler):
    """Celery's scheduler over ``BEAT``, acting only while this process holds the advisory lock ``beat``.

    A second beat waits and takes over within seconds when the first one, or its database connection, is gone.
    """

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due and return the seconds until the next look."""
        if not self._holds_lock():
            return STANDBY_SECONDS
        return min(float(super().tick(*args, **kwargs)), STANDBY_SECONDS)

    def _holds_lock(self) -> bool:
        """Return whether the lock is ours. It is taken again each time: that is cheap, and tells a lost connection."""
        key = lock_key("role", "beat")
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT CASE WHEN EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted"
                    " AND pid = pg_backend_pid() AND ((classid::bigint << 32) | objid::bigint) = %s)"
                    " THEN true ELSE pg_try_advisory_lock(%s) END",
                    [key, key],
                )
                return bool(cursor.fetchone()[0])
        except DatabaseError as error:
            _log.warning("beat.database_gone reason=%s", error)
            connection.close()
            return False
