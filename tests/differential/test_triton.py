"""What is recorded is still what a real Triton answers; the node is held to the same records."""

from __future__ import annotations

import contextlib

import pytest

from tests.differential import answers, servers
from tests.differential.cases import GROUPS
from tests.differential.comparing import differences
from tests.differential.playing import Player
from tests.differential.record import play_fatal
from tests.differential.steps import Case

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("differential-triton"),
    pytest.mark.skipif(servers.oracle() is None, reason="FLOTILLA_ORACLE names no folder with a real Triton's scripts"),
]


@pytest.mark.parametrize("profile", servers.PROFILES)
def test_a_real_server_answers_as_recorded(profile: str) -> None:
    found: list[str] = []
    with servers.triton(profile) as server, contextlib.closing(Player(server)) as player:
        for group, cases in GROUPS.items():
            recorded = answers.read(group)
            for case in cases:
                if case.profile == profile and not case.fatal:
                    found += _differences(player, case, recorded)
    assert not found, "\n".join(found)


def _differences(player: Player, case: Case, recorded: answers.Recorded) -> list[str]:
    expected = recorded[case.id]["triton"]
    return [f"{case.id}: {line}" for line in differences(expected, player.play(case, expected))]


@pytest.mark.parametrize("case", [c for cases in GROUPS.values() for c in cases if c.fatal], ids=lambda case: case.id)
def test_a_real_server_does_not_survive(case: Case) -> None:
    assert play_fatal(case) == [{"server": "ended"}]
