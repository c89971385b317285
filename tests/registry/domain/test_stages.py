"""What each stage of a change waits for, since when and until when."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.protection import Finding, Standing, Verdict
from registry.domain.stages import RequestFacts, RolloutProgress, Stage, StageState, stages

NOW = datetime(2026, 6, 5, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=15)
VERDICT = Verdict(
    (
        Finding("approvals", Standing.UNMET, "0 of 1 approvals."),
        Finding("wait", Standing.WAITS, "It waits 30 minutes.", LATER),
    )
)
OPEN = RequestFacts("open", NOW, LATER, VERDICT, has_clock=True)
LOADING = RolloutProgress(
    "progressing", "", NOW, can_revert=True, waits_for="v2 is loading.", percent=40, gives_up_at=LATER
)
MINUTE = timedelta(minutes=1)


def named(found: tuple[Stage, ...]) -> dict[str, Stage]:
    return {stage.name: stage for stage in found}


def states(found: tuple[Stage, ...]) -> dict[str, str]:
    return {stage.name: str(stage.state) for stage in found}


def test_an_open_request_says_what_is_missing_and_when_it_expires() -> None:
    found = named(stages(OPEN, None))
    assert [*found] == ["approval", "start", "load", "verify"]
    approval = found["approval"]
    assert (approval.state, approval.gate, approval.until, approval.then) == (
        "current",
        "0 of 1 approvals.",
        LATER,
        "expires",
    )
    assert (found["start"].state, found["start"].gate) == ("ahead", "It waits 30 minutes.")


def test_an_approved_request_waits_for_its_time() -> None:
    waiting = replace(OPEN, state="approved", approved_at=NOW + MINUTE, due_at=LATER)
    found = named(stages(waiting, None))
    assert (found["approval"].state, found["approval"].seconds) == ("done", 60)
    start = found["start"]
    assert (start.state, start.began_at, start.until, start.then) == ("waits", NOW + MINUTE, LATER, "starts")


def test_who_bypassed_the_rules_is_named_and_no_time_is_waited_for() -> None:
    found = stages(replace(OPEN, state="applied", applied_at=LATER, bypassed_by="alice"), LOADING)
    assert states(found) == {"approval": "skipped", "load": "current", "verify": "ahead"}
    assert found[0].gate == "alice bypassed the rules."


def test_a_rollout_under_way_says_what_it_waits_for_and_when_it_gives_up() -> None:
    load, verify = stages(None, LOADING)
    assert (load.state, load.gate, load.percent, load.until, load.then) == (
        "current",
        "v2 is loading.",
        40,
        LATER,
        "gives_up",
    )
    assert verify.state == "ahead"
    # Without a node that answers there is no deadline.
    assert stages(None, replace(LOADING, gives_up_at=None))[0].then == ""
    paused = stages(None, replace(LOADING, phase="paused", reason="Paused by alice."))[0]
    assert (paused.state, paused.gate, paused.until) == ("paused", "Paused by alice.", None)


def test_a_rollout_that_came_through_tells_how_long_each_stage_took() -> None:
    done = replace(LOADING, phase="succeeded", verifying_at=NOW + MINUTE, finished_at=NOW + 3 * MINUTE)
    load, verify = stages(None, done)
    assert (load.state, load.seconds, verify.state, verify.seconds) == ("done", 60, "done", 120)


@pytest.mark.parametrize(
    ("phase", "can_revert", "expected"),
    [
        ("aborting", True, {"load": "failed", "verify": "skipped", "back": "current"}),
        ("rolled_back", True, {"load": "failed", "verify": "skipped", "back": "done"}),
        ("failed", False, {"load": "failed", "verify": "skipped", "back": "failed"}),
        ("superseded", True, {"load": "skipped", "verify": "skipped", "back": "skipped"}),
    ],
)
def test_a_rollout_that_stops_while_it_loads(phase: str, can_revert: bool, expected: dict[str, str]) -> None:
    stopped = replace(LOADING, phase=phase, reason="No memory.", can_revert=can_revert, aborting_at=NOW + MINUTE)
    found = stages(None, stopped)
    assert states(found) == expected
    assert found[0].gate == "No memory."


def test_a_rollout_that_fails_while_it_is_verified_did_load() -> None:
    stopped = replace(LOADING, phase="rolled_back", reason="It broke.", verifying_at=NOW, aborting_at=NOW + MINUTE)
    assert states(stages(None, stopped)) == {"load": "done", "verify": "failed", "back": "done"}


def test_a_newer_change_takes_the_place_of_one_that_loads() -> None:
    replaced = replace(LOADING, phase="superseded", reason="Replaced by a newer change.", finished_at=NOW + MINUTE)
    assert states(stages(None, replaced)) == {"load": "skipped", "verify": "skipped"}


@given(
    st.booleans(),
    st.sampled_from(
        [
            "pending",
            "progressing",
            "paused",
            "verifying",
            "succeeded",
            "aborting",
            "rolled_back",
            "failed",
            "superseded",
        ]
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_at_most_one_stage_is_under_way_and_none_after_the_end(
    asked: bool, phase: str, verified: bool, stopped: bool, can_revert: bool
) -> None:
    over = phase in ("succeeded", "rolled_back", "failed", "superseded")
    turned = phase in ("aborting", "rolled_back", "failed") or (stopped and phase == "superseded")
    rollout = replace(
        LOADING,
        phase=phase,
        can_revert=can_revert,
        verifying_at=NOW if verified or phase in ("verifying", "succeeded") else None,
        aborting_at=NOW if turned else None,
        finished_at=LATER if over else None,
    )
    request = replace(OPEN, state="applied", approved_at=NOW, applied_at=LATER) if asked else None
    found = stages(request, rollout)
    busy = [stage for stage in found if stage.state in (StageState.CURRENT, StageState.WAITS, StageState.PAUSED)]
    assert len(busy) == (0 if over else 1)
    assert all(stage.until is None for stage in found if stage not in busy)
