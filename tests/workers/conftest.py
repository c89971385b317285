from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workers.tasks.hints import HintSender


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, settings: Any) -> None:
    """Every test has its own staging folder and artifact store."""
    settings.STAGING_DIR = tmp_path / "staging"
    settings.ARTIFACT_STORE_URL = (tmp_path / "artifacts").as_uri()


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Collects (task, id) instead of sending: a broker that loses everything."""
    sent: list[tuple[str, str]] = []

    def send(self: HintSender, task: str, argument: object, queue: str) -> bool:
        sent.append((task, str(argument)))
        return True

    monkeypatch.setattr(HintSender, "send", send)
    return sent
