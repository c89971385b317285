from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.protection import CheckedVersion, Facts, RequiredCheck, Rules, Timing, judge, read_checks, timing
from registry.domain.windows import Window
from registry.errors import ValidationFailed

NOW = datetime(2026, 6, 5, 12, tzinfo=UTC)  # a Friday
EVENING = Window("weekend", "deny", "0 18 * * FRI", 60 * 60, "UTC")


def version(**verdicts: str) -> CheckedVersion:
    return CheckedVersion("mlp v1", "onnx", verdicts)


def test_no_rules_allow_everything() -> None:
    verdict = judge(Rules(), Facts(), NOW)
    assert verdict.is_allowed
    assert not verdict.is_denied
    assert verdict.until is None


def test_every_reason_is_told() -> None:
    rules = Rules(approvals=2, checks=(RequiredCheck("smoke"), RequiredCheck("config", allow_warn=True)))
    facts = Facts(approvals=1, changes_requested=1, versions=(version(config="warn"),))
    verdict = judge(rules, facts, NOW)
    assert verdict.is_denied
    assert [finding.rule for finding in verdict.findings] == ["approvals", "changes", "checks", "checks"]
    assert verdict.reasons == (
        "1 of 2 approvals.",
        "1 asked for changes.",
        "mlp v1 has no check “Smoke inference” yet.",
    )


@pytest.mark.parametrize(
    ("verdict", "allow_warn", "is_met"),
    [
        ("pass", False, True),
        ("warn", False, False),
        ("warn", True, True),
        ("fail", True, False),
        ("error", True, False),
        ("running", True, False),
    ],
)
def test_a_required_check_passes_or_warns_where_that_is_allowed(verdict: str, allow_warn: bool, is_met: bool) -> None:
    rules = Rules(checks=(RequiredCheck("smoke", allow_warn),))
    assert judge(rules, Facts(versions=(version(smoke=verdict),)), NOW).is_allowed is is_met
    both = (version(smoke="pass"), version(smoke=verdict))
    assert judge(rules, Facts(versions=both), NOW).is_allowed is is_met


def test_the_wait_begins_with_the_approval() -> None:
    rules = Rules(approvals=1, wait_minutes=30)
    before = judge(rules, Facts(approvals=1), NOW)
    assert not before.is_allowed
    approved = Facts(approvals=1, approved_at=NOW)
    assert judge(rules, approved, NOW).until == NOW + timedelta(minutes=30)
    assert not judge(rules, approved, NOW + timedelta(minutes=29, seconds=59)).is_allowed
    assert judge(rules, approved, NOW + timedelta(minutes=30)).is_allowed


def test_windows_are_looked_at_when_the_wait_is_over() -> None:
    rules = Rules(wait_minutes=7 * 60, windows=(EVENING,))
    verdict = judge(rules, Facts(approved_at=NOW), NOW)
    assert verdict.until == NOW.replace(hour=18) + timedelta(hours=60)
    assert verdict.reasons == ("It waits 420 minutes.", "Closed for changes by: weekend.")
    assert judge(rules, Facts(approved_at=NOW), verdict.until).is_allowed
    short = judge(Rules(wait_minutes=30, windows=(EVENING,)), Facts(approved_at=NOW), NOW)
    assert short.until == NOW + timedelta(minutes=30)


def test_timing_tells_what_the_clock_alone_asks() -> None:
    assert not timing((), 0, NOW)
    assert timing((), 30, NOW) == Timing(wait_minutes=30)
    assert not timing((EVENING,), 0, NOW)
    opens = NOW.replace(hour=18) + timedelta(hours=60)
    assert timing((EVENING,), 0, NOW.replace(hour=19)) == Timing(opens, "weekend")
    # The wait ends inside the window: what counts is when that opens, which does not move with the clock.
    assert timing((EVENING,), 7 * 60, NOW) == Timing(opens, "weekend", wait_minutes=7 * 60)
    always = Window("always", "deny", "* * * * *", 5, "UTC")
    assert timing((always,), 0, NOW) == Timing(None, "always", is_shut=True)


def test_a_window_that_never_opens_denies() -> None:
    always = Window("always", "deny", "* * * * *", 5, "UTC")
    assert judge(Rules(windows=(always,)), Facts(), NOW).is_denied


RULES = st.builds(
    Rules,
    approvals=st.integers(0, 3),
    checks=st.lists(
        st.builds(RequiredCheck, st.sampled_from(["smoke", "config"]), st.booleans()),
        max_size=2,
        unique_by=lambda check: check.kind,
    ).map(tuple),
    wait_minutes=st.integers(0, 43_200),
    windows=st.sampled_from([(), (EVENING,)]),
)
FACTS = st.builds(
    Facts,
    approvals=st.integers(0, 4),
    changes_requested=st.integers(0, 1),
    approved_at=st.none() | st.just(NOW),
    versions=st.dictionaries(
        st.sampled_from(["smoke", "config"]), st.sampled_from(["pass", "warn", "fail", "error", "running"])
    ).map(lambda verdicts: (version(**verdicts),)),
)


@given(RULES, FACTS, st.integers(0, 100_000))
def test_a_verdict_is_one_thing_and_comes_true_at_its_time(rules: Rules, facts: Facts, minutes: int) -> None:
    now = NOW + timedelta(minutes=minutes)
    verdict = judge(rules, facts, now)
    assert verdict.is_allowed is (not verdict.reasons)
    assert not (verdict.is_allowed and verdict.is_denied)
    if verdict.is_allowed:
        assert verdict.until is None
        assert facts.approvals >= rules.approvals
        assert not facts.changes_requested
        assert not rules.wait_minutes or now >= NOW + timedelta(minutes=rules.wait_minutes)
    if verdict.until is not None and facts.approved_at is not None:
        assert verdict.until > now
        assert judge(rules, facts, verdict.until).is_allowed


def test_reading_checks() -> None:
    assert read_checks([{"kind": "smoke"}, {"kind": "config", "allow_warn": True}]) == (
        RequiredCheck("smoke"),
        RequiredCheck("config", True),
    )
    bad: list[object] = [{}, [{"kind": "nonsense"}], [{"kind": "smoke"}] * 2, [{"kind": "smoke", "allow_warn": 1}], [1]]
    bad += [[{"kind": "smoke", "more": 1}], [{"kind": ["smoke"]}]]
    for document in bad:
        with pytest.raises(ValidationFailed):
            read_checks(document)
