"""The same schedules in real time: on the node, over HTTP and Python models, and on a real Triton."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest

from tests.differential import servers
from tests.differential.formation.live import Formation
from tests.differential.formation.record import played, read
from tests.differential.formation.replay import replay
from tests.differential.formation.schedules import SCHEDULES, Schedule

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.timeout(3600),
    pytest.mark.xdist_group("differential-formation"),
]

# A machine that stops for a moment changes who waits with whom: such a schedule is played again.
_TRIES = 4


def test_the_node_forms_what_the_batcher_forms() -> None:
    expected = {schedule.id: replay(schedule) for schedule in SCHEDULES}
    assert not _different(servers.node, SCHEDULES, expected)


@pytest.mark.skipif(servers.oracle() is None, reason="FLOTILLA_ORACLE names no folder with a real Triton's scripts")
def test_a_real_server_forms_what_is_recorded() -> None:
    assert not _different(servers.triton, SCHEDULES, read())


def _different(
    start: Callable[..., AbstractContextManager[servers.Server]],
    schedules: Sequence[Schedule],
    expected: dict[str, Formation],
) -> dict[str, list[Formation]]:
    """Return, for each schedule that never went as expected, how it went."""
    found: dict[str, list[Formation]] = {schedule.id: [] for schedule in schedules}
    left = list(schedules)
    for _ in range(_TRIES):
        for id, formed in played(left, start=start).items():
            found[id] += formed
        left = [schedule for schedule in left if expected[schedule.id] not in found[schedule.id]]
    return {schedule.id: found[schedule.id] for schedule in left}
