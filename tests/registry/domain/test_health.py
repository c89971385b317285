from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from registry.domain.facts import DeploymentFacts, NodeFacts, RolloutFacts, SeenUnit, WantedUnit
from registry.domain.health import (
    HEALTH_ORDER,
    Verdict,
    deployment_health,
    deployment_sync,
    ready_percent,
    why_not_serving,
    worst,
)
from registry.domain.reconcile import (
    PROGRESS_DEADLINE,
    FinishOperation,
    MoveRollout,
    PushDesired,
    ReportOperation,
    SetStatus,
    decide,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UNIT = WantedUnit("m-v1-aaaaaaaa", 1, 1, "live", 100)
OPERATION = uuid.UUID(int=7)


def seen(state: str, text: str = "", **extra: Any) -> SeenUnit:
    return SeenUnit(UNIT.unit, 1, state, "CODE" if text else "", text, **extra)


def node(name: str = "n1", state: str = "ready", **changes: Any) -> NodeFacts:
    facts = NodeFacts(
        node_id=uuid.uuid5(uuid.NAMESPACE_DNS, name),
        name=name,
        state="ready",
        is_reachable=True,
        is_schedulable=True,
        age_seconds=1.0,
        epoch=1,
        desired_generation=3,
        generation_seen=3,
        generation_applied=3,
        units={UNIT.unit: seen(state)},
    )
    return replace(facts, **changes)


def facts(*nodes: NodeFacts, rollout: RolloutFacts | None = None, **changes: Any) -> DeploymentFacts:
    made = DeploymentFacts(uuid.UUID(int=1), "m", 2, 1, (UNIT,), nodes, "production", rollout)
    return replace(made, **changes)


def rollout(phase: str, **changes: Any) -> RolloutFacts:
    made = RolloutFacts(uuid.UUID(int=9), "deploy", phase, "", NOW, True, OPERATION)
    return replace(made, **changes)


def test_worst_child_is_shown() -> None:
    assert worst([Verdict(status) for status in HEALTH_ORDER]).status == "degraded"
    assert worst([]).status == "missing"


def test_all_ready_is_healthy_and_synced() -> None:
    assert deployment_health(facts(node())).status == "healthy"
    assert deployment_sync(facts(node())).status == "synced"
    assert why_not_serving(facts(node())) == ""


def test_a_failed_unit_names_version_node_and_reason() -> None:
    failed = facts(node(), node("n2", units={UNIT.unit: seen("failed", "opset 99 is not supported")}))
    assert why_not_serving(failed) == "v1 failed on node n2: opset 99 is not supported."
    assert deployment_health(failed).status == "degraded"
    assert deployment_health(failed).child == "n2"
    assert deployment_sync(failed).status == "out_of_sync"


@pytest.mark.parametrize("state", ["absent", "fetching", "verifying", "staged", "loading", "warming"])
def test_a_starting_unit_is_progressing(state: str) -> None:
    starting = facts(node(state=state))
    assert deployment_health(starting).status == "progressing"
    assert deployment_sync(starting).status == "progressing"
    assert "n1" in why_not_serving(starting)


def test_a_silent_node_makes_it_unknown_with_the_age() -> None:
    silent = facts(node(), node("n2", is_reachable=False, age_seconds=300.0, error="connection refused"))
    assert deployment_health(silent) == Verdict(
        "unknown", "Node n2 has not answered for 5 min: connection refused.", "n2"
    )
    assert deployment_sync(silent).status == "unknown"


def test_no_node_and_no_unit() -> None:
    assert deployment_health(facts()).status == "missing"
    assert "production" in why_not_serving(facts())
    assert deployment_sync(facts(units=())).status == "synced"
    assert why_not_serving(facts(units=())) == ""


def test_a_drained_node_is_suspended_not_degraded() -> None:
    drained = facts(replace(node("n2"), state="drained"))
    assert deployment_health(drained).status == "suspended"


def test_percent_counts_bytes() -> None:
    half = facts(node(units={UNIT.unit: seen("fetching", bytes_done=50, bytes_total=100)}))
    assert ready_percent(half) == 25
    assert ready_percent(facts(node())) == 100
    assert ready_percent(facts()) == 0


def moves(deployment: DeploymentFacts, now: datetime = NOW) -> list[tuple[str, str]]:
    return [(action.to, action.cause) for action in decide(deployment, now) if isinstance(action, MoveRollout)]


def test_a_node_behind_is_pushed_and_one_that_works_is_not() -> None:
    behind = node("n2", generation_seen=2, generation_applied=2)
    working = node("n3", generation_applied=2)
    pushed = [one.node_id for one in decide(facts(node(), behind, working), NOW) if isinstance(one, PushDesired)]
    assert pushed == [behind.node_id]


def test_the_status_is_written_last() -> None:
    actions = decide(facts(node(), rollout=rollout("progressing")), NOW)
    assert isinstance(actions[-1], SetStatus)
    assert actions[-1].observed_generation == 2


def test_a_rollout_walks_forward_one_phase_a_pass() -> None:
    assert [to for to, _why in moves(facts(node(), rollout=rollout("pending")))] == ["progressing"]
    assert [to for to, _why in moves(facts(node(), rollout=rollout("progressing")))] == ["verifying"]
    done = facts(node(), rollout=rollout("verifying"))
    assert [to for to, _why in moves(done)] == ["succeeded"]
    assert FinishOperation(OPERATION, "Deployed.") in decide(done, NOW)


def test_a_rollout_in_progress_reports() -> None:
    loading = facts(node(state="loading"), rollout=rollout("progressing"))
    assert moves(loading) == []
    assert any(isinstance(action, ReportOperation) for action in decide(loading, NOW))


def test_a_failed_unit_aborts_with_its_reason() -> None:
    failed = node(units={UNIT.unit: seen("failed", "bad opset")})
    assert moves(facts(failed, rollout=rollout("progressing"))) == [("aborting", "v1 failed on node n1: bad opset.")]


def test_a_unit_that_failed_under_an_older_generation_does_not_abort() -> None:
    stale = node(units={UNIT.unit: seen("failed", "bad opset")}, generation_applied=2)
    assert moves(facts(stale, rollout=rollout("progressing"))) == []


def test_an_unreachable_node_does_not_hold_up_the_others() -> None:
    lost = node("n2", is_reachable=False, generation_seen=1, generation_applied=1, units={})
    assert [to for to, _why in moves(facts(node(), lost, rollout=rollout("progressing")))] == ["verifying"]


def test_without_any_node_a_rollout_waits_forever() -> None:
    late = NOW + 10 * PROGRESS_DEADLINE
    assert moves(facts(rollout=rollout("progressing")), late) == []
    assert moves(facts(node(is_reachable=False), rollout=rollout("progressing")), late) == []


def test_who_waits_for_the_operation_reads_for_what_and_how_long() -> None:
    silent = node(is_reachable=False, age_seconds=300.0)
    for phase in ("progressing", "verifying", "aborting"):
        told = decide(facts(silent, rollout=rollout(phase)), NOW)
        assert ReportOperation(OPERATION, 0, "Node n1 has not answered for 5 min.") in told
        assert isinstance(told[-1], SetStatus)
        assert (told[-1].health, told[-1].sync) == ("unknown", "unknown")


def test_the_deadline_counts_from_when_a_node_answers() -> None:
    late = NOW + 10 * PROGRESS_DEADLINE
    back = facts(node(state="loading", reachable_since=late), rollout=rollout("progressing"))
    assert moves(back, late + PROGRESS_DEADLINE) == []
    assert [to for to, _why in moves(back, late + 2 * PROGRESS_DEADLINE)] == ["aborting"]


def test_too_slow_is_aborted() -> None:
    slow = facts(node(state="loading"), rollout=rollout("progressing"))
    assert moves(slow, NOW + PROGRESS_DEADLINE) == []
    assert [to for to, _why in moves(slow, NOW + PROGRESS_DEADLINE + timedelta(seconds=1))] == ["aborting"]


def test_an_abort_ends_when_the_old_state_is_back() -> None:
    going_back = rollout("aborting", phase_reason="bad opset")
    assert moves(facts(node(generation_applied=2), rollout=going_back)) == []
    back = facts(node(), rollout=going_back)
    assert moves(back) == [("rolled_back", "bad opset")]
    assert FinishOperation(OPERATION, "bad opset", "rollout_failed") in decide(back, NOW)


def test_a_first_deployment_that_fails_is_failed() -> None:
    first = rollout("aborting", can_revert=False, phase_reason="bad opset")
    failed = node(units={UNIT.unit: seen("failed", "bad opset")})
    assert moves(facts(failed, rollout=first)) == [("failed", "bad opset")]


def test_a_paused_rollout_stays() -> None:
    assert moves(facts(node(), rollout=rollout("paused")), NOW + 10 * PROGRESS_DEADLINE) == []
