"""The Celery application ``flotilla``. Start: ``python -m celery -A workers.celery worker -Q control,interactive``."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery, signals

from workers import schedule

app = Celery("flotilla")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.beat_schedule = schedule.BEAT
app.conf.task_routes = schedule.ROUTES
app.conf.imports = ("workers.tasks.definitions",)


@signals.setup_logging.connect
def _keep_django_logging(**kwargs: Any) -> None:
    """Leave the root logger as settings.LOGGING made it: one line a record on standard error."""
    # Celery tells each received and finished task at INFO; ids every few seconds drown what matters.
    for name in ("celery.worker.strategy", "celery.app.trace", "celery.beat"):
        logging.getLogger(name).setLevel(logging.WARNING)
