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


def _runs() -> list[tuple[str, str]]:
    """Return groups and the kinds of server that they need: each is recorded on a server of its own."""
    return [
        (group, profile)
        for group, cases in GROUPS.items()
        for profile in servers.PROFILES
        if any(case.profile == profile and not case.fatal for case in cases)
    ]


@pytest.mark.parametrize(("group", "profile"), _runs())
def test_a_real_server_answers_as_recorded(group: str, profile: str) -> None:
    recorded = answers.read(group)
    cases = [case for case in GROUPS[group] if case.profile == profile and not case.fatal]
    found: list[str] = []
    for _ in range(_STARTS):
        cases = cases[_play(profile, cases, recorded, found) :]
    assert not cases, f"the server ended {_STARTS} times, at last before {cases[0].id}"
    assert not found, "\n".join(found)


# A long run sometimes ends the reference server, at no case in particular: the next one goes on.
_STARTS = 4


def _play(profile: str, cases: list[Case], recorded: answers.Recorded, found: list[str]) -> int:
    """Play cases on one server and return how many were played before it ended."""
    if not cases:
        return 0
    with servers.triton(profile) as server, contextlib.closing(Player(server)) as player:
        for number, case in enumerate(cases):
            expected = recorded[case.id]["triton"]
            try:
                got = player.play(case, expected)
            except (OSError, AssertionError) as failure:
                got = [{"failed": repr(failure)}]
            lines = differences(expected, got)
            if lines and not server.is_alive():
                return number
            found += [f"{case.id}: {line}" for line in lines]
    return len(cases)


@pytest.mark.parametrize("case", [c for cases in GROUPS.values() for c in cases if c.fatal], ids=lambda case: case.id)
def test_a_real_server_does_not_survive(case: Case) -> None:
    assert play_fatal(case) == [{"server": "ended"}]
