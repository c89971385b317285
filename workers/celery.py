"""The Celery application ``flotilla``. Start: ``python -m celery -A workers.celery worker -Q control,interactive``."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from celery import Celery, signals
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning

from workers import schedule

app = Celery("flotilla")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.beat_schedule = schedule.BEAT
app.conf.task_routes = schedule.ROUTES
app.conf.imports = ("workers.tasks.definitions",)
# The broker may be away for as long as it likes; the default gives up after a hundred attempts.
app.conf.broker_connection_max_retries = None

# Messages are ids in JSON, never pickles, so that running as root gives the broker no more power than otherwise.
warnings.filterwarnings("ignore", category=SecurityWarning, module="celery.platforms")
# Tasks go on when the broker is lost (their effects are idempotent and leases guard them): no need to say so each time.
warnings.filterwarnings("ignore", category=CPendingDeprecationWarning, module="celery.worker.consumer.consumer")


@signals.setup_logging.connect
def _keep_django_logging(**kwargs: Any) -> None:
    """Leave the root logger as settings.LOGGING made it: one line a record on standard error."""
    # Celery tells each received and finished task at INFO; ids every few seconds drown what matters.
    for name in ("celery.worker.strategy", "celery.app.trace", "celery.beat"):
        logging.getLogger(name).setLevel(logging.WARNING)
