from __future__ import annotations

import pytest

from registry.telemetry import channel_of


@pytest.mark.parametrize(
    ("url", "channel"),
    [
        ("redis://127.0.0.1:6379/3", "flotilla:events:3"),
        ("rediss://:secret@valkey:6380", "flotilla:events:0"),
        ("redis://127.0.0.1:6379/", "flotilla:events:0"),
    ],
)
def test_each_database_has_a_channel_of_its_own(url: str, channel: str) -> None:
    assert channel_of(url) == channel
