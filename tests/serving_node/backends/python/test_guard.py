"""The process that cleans up when the node is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

NODE = """
import os, subprocess, sys
from serving_node.backends.python.guard import Guard

guard = Guard()
started = []
for number in range(2):
    folder = f"{sys.argv[1]}/with space {number}"
    os.makedirs(folder)
    started.append(subprocess.Popen(["sleep", "100"], start_new_session=True))
    guard.add(started[-1].pid, folder)
guard.drop(started[0].pid)
print(*(one.pid for one in started), flush=True)
sys.stdin.read()
"""


def alive(pid: int) -> bool:
    """Return whether a process runs; what has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("end", ["killed", "ended"])
def test_what_was_not_dropped_ends_and_its_folder_goes(tmp_path: Path, end: str) -> None:
    node = subprocess.Popen(
        [sys.executable, "-c", NODE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert node.stdout is not None and node.stdin is not None
    dropped, kept = map(int, node.stdout.readline().split())
    try:
        assert alive(dropped) and alive(kept)
        node.kill() if end == "killed" else node.stdin.close()
        node.wait(30)
        deadline = time.monotonic() + 30
        # A killed process ends when the kernel comes to it, which may be after its folder is gone.
        while (tmp_path / "with space 1").exists() or alive(kept):
            assert time.monotonic() < deadline, "nobody cleaned up"
            time.sleep(0.01)
        assert alive(dropped) and (tmp_path / "with space 0").exists()
    finally:
        os.kill(dropped, signal.SIGKILL)
        node.stdout.close()
        node.stdin.close()
