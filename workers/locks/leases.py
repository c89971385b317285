"""The lease of one operation, renewed by a thread while its task works."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
import uuid
from types import TracebackType
from typing import Self

from django.conf import settings
from django.db import DatabaseError, connections

from registry.services.operations import operation_renew, operation_report

_log = logging.getLogger(__name__)


class LeaseLost(Exception):
    """Somebody else may work on the operation now, or it was cancelled: stop and write nothing more."""


class Unfinished(Exception):
    """A part of the work is done and noted; the rest is for another task. The message says how far it is."""


def new_owner() -> str:
    """Return a name for one attempt, unique across hosts, processes and attempts."""
    return f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(6)}"


class Lease:
    """A claimed operation. As a context manager it renews the lease every third of its length.

    Work calls ``check`` or ``report`` between steps; both raise LeaseLost once the lease is gone.
    """

    def __init__(self, operation_id: uuid.UUID, owner: str, seconds: float | None = None) -> None:
        self.operation_id = operation_id
        self.owner = owner
        self._seconds = float(seconds if seconds is not None else settings.OPERATION_LEASE_SECONDS)
        self._lost = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease-{operation_id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=self._seconds)

    @property
    def is_lost(self) -> bool:
        """Return whether the lease is known to be gone."""
        return self._lost.is_set()

    def check(self) -> None:
        """Do nothing while the lease holds.

        Raises:
            LeaseLost: it does not.
        """
        if self._lost.is_set():
            raise LeaseLost(str(self.operation_id))

    def report(self, percent: int, message: str, *, log_line: str = "") -> None:
        """Show progress.

        Raises:
            LeaseLost: the lease is gone.
        """
        self.check()
        reported = operation_report(
            self.operation_id, self.owner, percent=percent, message=message, log_line=log_line or message
        )
        if not reported:
            self._lost.set()
            raise LeaseLost(str(self.operation_id))

    def _renew(self) -> None:
        valid_until = time.monotonic() + self._seconds
        try:
            while not self._stop.wait(self._seconds / 3):
                asked_at = time.monotonic()
                try:
                    if not operation_renew(self.operation_id, self.owner):
                        break
                    valid_until = asked_at + self._seconds
                except DatabaseError as error:
                    _log.warning("lease.renewal_failed operation=%s reason=%s", self.operation_id, error)
                    connections.close_all()
                    if time.monotonic() >= valid_until:
                        break
            else:
                return
            self._lost.set()
            _log.warning("lease.lost operation=%s owner=%s", self.operation_id, self.owner)
        finally:
            connections.close_all()
