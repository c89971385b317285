"""Long work is followed over cut connections to its verdict, with one deadline."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from flotilla.commands.progress import Display
from flotilla.sdk.following import VERDICTS, Follower, FollowFailed, Step
from flotilla.sdk.transport import ApiError


class Answer:
    def __init__(self, document: Any) -> None:
        self._document = document

    def json(self) -> Any:
        return self._document


class Console:
    """Answers from a list: documents, or refusals; the last one again and again. Time passes only by sleeping."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.now = 0.0
        self.told: list[Step] = []

    def send(self, method: str, path: str) -> Answer:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Answer(answer)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0 or self.now >= 60
        self.now += seconds

    def follower(self, timeout_seconds: float = 60) -> Follower:
        return Follower(
            self,  # type: ignore[arg-type]
            timeout_seconds=timeout_seconds,
            tell=self.told.append,
            clock=lambda: self.now,
            sleep=self.sleep,
        )


def operation(state: str, percent: int = 0, message: str = "", **more: Any) -> dict[str, Any]:
    return {"state": state, "progress_percent": percent, "message": message, "error": None} | more


def approval(state: str, *decisions: tuple[str, str], reason: str = "") -> dict[str, Any]:
    reviews = [{"reviewer": who, "decision": what, "comment": "hm"} for who, what in decisions]
    return {"state": state, "state_reason": reason, "reviews": reviews, "approvals_given": 0, "required": 1}


def rollouts(phase: str, **more: Any) -> dict[str, Any]:
    row = {"id": "r", "phase": phase, "phase_reason": "", "operation": None, "approval": "a"} | more
    return {"results": [{**row, "id": "other", "phase": "failed"}, row]}


def gone(status: int = 0) -> ApiError:
    return ApiError(status, "unreachable", "Cannot reach it.")


def test_an_operation_is_followed_through_an_outage() -> None:
    console = Console(operation("running", 10, "Hashing"), gone(), gone(503), operation("succeeded", 100))
    assert console.follower().operation("o", "checks")["state"] == "succeeded"
    assert [step.message for step in console.told] == [
        "Hashing",
        "The console does not answer (unreachable); trying again.",
        "The console answers again.",
    ]


def test_a_refusal_that_does_not_pass_is_not_waited_out() -> None:
    console = Console(ApiError(401, "not_authenticated", "Who are you?"))
    with pytest.raises(ApiError, match="Who are you"):
        console.follower().operation("o", "checks")


FAILURES: list[tuple[Any, Callable[[Follower], Any], str, str]] = [
    (
        operation("failed", 5, "x", error={"code": "version_rejected", "message": "Truncated."}),
        lambda follower: follower.operation("o", "checks", verdict="checks_failed"),
        "checks_failed",
        "Truncated.",
    ),
    (operation("cancelled"), lambda follower: follower.operation("o", "checks"), "cancelled", "It cancelled."),
    *(
        (approval(state, reason="Because."), lambda follower: follower.approval("a"), state, "Because.")
        for state in ("rejected", "voided", "withdrawn", "expired")
    ),
    (
        approval("open", ("vera", "approve"), ("alice", "request_changes"), ("alice", "comment")),
        lambda follower: follower.approval("a"),
        "changes_requested",
        "alice asks for changes: hm",
    ),
    *(
        (
            rollouts(phase, phase_reason="Too slow."),
            lambda follower: follower.rollout("x", lambda row: row["id"] == "r"),
            phase,
            "Too slow.",
        )
        for phase in ("failed", "rolled_back", "superseded")
    ),
    (operation("running"), lambda follower: follower.operation("o", "checks"), "timed_out", "Not finished within 60 s"),
    (gone(), lambda follower: follower.approval("a"), "timed_out", "Not finished within 60 s"),
    ({"results": []}, lambda follower: follower.rollout("x", lambda row: True), "timed_out", "Not finished"),
]


@pytest.mark.parametrize(("answer", "follow", "verdict", "sentence"), FAILURES)
def test_every_bad_end_has_a_verdict(answer: Any, follow: Any, verdict: str, sentence: str) -> None:
    console = Console(answer)
    with pytest.raises(FollowFailed) as failure:
        follow(console.follower())
    assert failure.value.verdict == verdict and verdict in VERDICTS
    assert str(failure.value).startswith(sentence)
    assert console.now <= 60 and (verdict == "timed_out") == (console.now == 60)


def test_every_verdict_has_an_exit_status() -> None:
    from flotilla.commands.following import _STATUS

    assert set(_STATUS) == set(VERDICTS)
    assert 0 not in {int(status) for status in _STATUS.values()}


def test_changes_that_were_asked_for_and_taken_back_do_not_end_the_wait() -> None:
    console = Console(
        approval("open", ("alice", "request_changes"), ("alice", "approve")),
        approval("applied", ("alice", "request_changes"), ("alice", "approve")),
    )
    assert console.follower().approval("a")["state"] == "applied"
    assert [step.message for step in console.told] == ["waiting: 0 of 1 approvals", "approved by alice"]


def test_a_rollout_is_the_one_that_was_asked_for() -> None:
    console = Console(rollouts("progressing", phase_reason="Loading"), rollouts("succeeded"))
    assert console.follower().rollout("x", lambda row: row["approval"] == "a" and row["id"] == "r")["id"] == "r"
    assert [(step.state, step.message) for step in console.told] == [
        ("running", "Loading"),
        ("done", "serves on every node"),
    ]


STEPS = [
    Step("upload", "running", "model.onnx", 10),
    Step("upload", "running", "model.onnx", 20),
    Step("upload", "done", "1 file", 100, "https://x/v"),
    Step("checks", "running", "Reading", 50, "https://x/v"),
    Step("checks", "failed", "Truncated\nfile."),
]


def shown(kind: str) -> str:
    stream = io.StringIO()
    display = Display(stream, kind, clock=lambda: 0.0)
    for step in STEPS:
        display.tell(step)
    display.close()
    return stream.getvalue()


def test_a_log_gets_whole_lines_without_control_characters() -> None:
    assert shown("log").splitlines() == [
        "  upload     10 %  model.onnx",
        "+ upload    1 file  https://x/v",
        "  checks     50 %  Reading",
        "! checks    Truncated file.",
    ]


def test_a_terminal_keeps_one_line_a_stage() -> None:
    text = shown("terminal")
    assert text.count("\n") == 3  # the link, the end of the upload, the end of the checks
    assert text.endswith("! checks    Truncated file.\n")
    assert "https://x/v\n" in text


def test_json_lines_are_documents() -> None:
    rows = [json.loads(line) for line in shown("json").splitlines()]
    assert [row["stage"] for row in rows] == ["upload", "upload", "upload", "checks", "checks"]
    assert shown("none") == ""
