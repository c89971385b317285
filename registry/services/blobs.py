"""Collection of content that no version holds any more."""

from __future__ import annotations

from datetime import datetime


def blobs_collect(now: datetime, *, grace_seconds: int = 24 * 3600, limit: int = 100) -> int:
    """Delete blobs without references that are older than the grace time; return how many."""
    raise NotImplementedError
