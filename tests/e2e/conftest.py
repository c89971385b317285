"""One running Flotilla for the tests of a session; tests that break things start their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.running import RunningFlotilla
from tests.ports import held_ports


@pytest.fixture(scope="session")
def flotilla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFlotilla]:
    """A Flotilla that was just started for the first time."""
    first = held_ports(5)
    running = RunningFlotilla(tmp_path_factory.mktemp("flotilla") / "data", first, first + 1)
    try:
        running.start()
        yield running
    finally:
        running.discard()


@pytest.fixture
def own_flotilla(tmp_path: Path) -> Iterator[RunningFlotilla]:
    """A Flotilla for one test, not started yet; whatever is left of it is ended."""
    first = held_ports(5)
    running = RunningFlotilla(tmp_path / "data", first, first + 1)
    yield running
    running.discard()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these first and on one worker: they share a running Flotilla, and two would fight for the processor."""
    ours = [item for item in items if "tests/e2e/" in item.nodeid]
    for item in ours:
        item.add_marker(pytest.mark.xdist_group("e2e"))
    items[:] = ours + [item for item in items if item not in ours]
