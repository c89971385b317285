"""Outlives a node that is killed, and then ends and removes what its workers left. Standard library only.

Reads lines ``add <pid> <folder>`` and ``drop <pid>`` from the node. At the end of them, which comes with the node's, it
kills the process groups that were not dropped and removes their folders.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Keep the list until the node is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever ends the node this way lets it clean up itself
    folders: dict[int, str] = {}
    for line in sys.stdin:
        verb, pid, *folder = line.rstrip("\n").split(" ", 2)
        if verb == "add":
            folders[int(pid)] = folder[0]
        else:
            folders.pop(int(pid), None)
    for pid, name in folders.items():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        shutil.rmtree(name, ignore_errors=True)


if __name__ == "__main__":
    main()
