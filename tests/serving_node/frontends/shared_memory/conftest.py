"""Shared memory objects that go away with the test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def shm() -> Iterator[Callable[..., str]]:
    """Return a function that makes an object of some bytes, or with some content, and gives its key."""
    made: list[Path] = []

    def make(size: int = 4096, content: bytes = b"") -> str:
        path = Path("/dev/shm") / f"flotilla-test-{os.getpid()}-{uuid.uuid4().hex}"
        path.write_bytes(content.ljust(size, b"\0"))
        made.append(path)
        return f"/{path.name}"

    yield make
    for path in made:
        path.unlink(missing_ok=True)


def content(key: str, start: int = 0, size: int | None = None) -> bytes:
    """Return what is in an object."""
    data = Path("/dev/shm", key.lstrip("/")).read_bytes()
    return data[start:] if size is None else data[start : start + size]
