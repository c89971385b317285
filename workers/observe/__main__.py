"""``python -m workers.observe``: watch all nodes until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

import django


async def _main() -> None:
    from workers.observe.fleet_watch import observe_forever

    task = asyncio.ensure_future(observe_forever())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    django.setup()
    asyncio.run(_main())
    sys.exit(0)
