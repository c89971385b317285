"""Processes that are killed at a given point, as by the kernel: ``FLOTILLA_TEST_DIE_AT`` names it.

``module:function before|after number``: at the number-th call. As a web server: ``uvicorn
tests.console.uploads.dying:application``; as a worker: ``python -m tests.console.uploads.dying OPERATION``.
"""

from __future__ import annotations

import functools
import itertools
import os
import pkgutil
import signal
import sys
import threading
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


def arm(text: str) -> None:
    """Let this process die at the point."""
    name, when, number = text.split()
    module, _colon, path = name.partition(":")
    owner_path, _dot, attribute = path.rpartition(".")
    owner = pkgutil.resolve_name(f"{module}:{owner_path}" if owner_path else module)
    real, calls, lock = getattr(owner, attribute), itertools.count(1), threading.Lock()

    @functools.wraps(real)
    def dying(*arguments: Any, **named: Any) -> Any:
        with lock:
            is_now = next(calls) == int(number)
        if is_now and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(*arguments, **named)
        if is_now:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, attribute, dying)


def main() -> None:
    """Work on the operation that the command line names."""
    import django

    django.setup()
    import uuid

    from workers.tasks.operations import work_on

    if point := os.environ.get("FLOTILLA_TEST_DIE_AT"):
        arm(point)
    work_on(uuid.UUID(sys.argv[1]))


if __name__ == "__main__":
    main()
else:
    from console.asgi import application  # noqa: F401  # what uvicorn serves

    if point := os.environ.get("FLOTILLA_TEST_DIE_AT"):
        arm(point)
