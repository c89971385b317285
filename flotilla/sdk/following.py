"""Long work followed to its end over connections that come and go: checks, approvals, rollouts.

Everything is read, nothing is held open, so that an answer that got lost is asked for again; the clock is the only
thing that ends a wait before the work does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]
State = Literal["running", "done", "failed"]

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 3.0
# What passes by itself: nobody answers, too many requests, a restart behind a proxy.
_PASSING = frozenset({0, 429, 502, 503, 504})
_ENDED = frozenset({"succeeded", "failed", "cancelled"})
_PHASES_ENDED = frozenset({"succeeded", "failed", "rolled_back", "superseded"})


@dataclass(frozen=True, slots=True)
class Step:
    """Where something stands: ``stage`` upload, checks, alias, approval or rollout; ``percent`` None: not known.

    ``link`` is a page of the console for people. ``detail`` follows the message; that it changes alone is no news.
    """

    stage: str
    state: State
    message: str
    percent: int | None = None
    link: str = ""
    detail: str = ""


class FollowFailed(Exception):
    """What was followed did not come to a good end. ``verdict`` is one of VERDICTS; ``document`` is what was read last.

    The message is one sentence.
    """

    def __init__(self, stage: str, verdict: str, message: str, document: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.stage = stage
        self.verdict = verdict
        self.document = dict(document)


VERDICTS = {
    "checks_failed": "a check refused the version",
    "rejected": "a reviewer rejected the plan",
    "changes_requested": "a reviewer asked for changes",
    "voided": "what the plan is bound to has changed",
    "withdrawn": "the request was withdrawn",
    "expired": "nobody decided in time",
    "failed": "the rollout ended without success",
    "rolled_back": "the rollout went back to what was there before",
    "superseded": "another change took its place",
    "operation_failed": "the operation failed",
    "cancelled": "somebody cancelled it",
    "timed_out": "it has not ended in time",
}


class Follower:
    """Follows work with one deadline for all of it. ``tell`` hears of every change."""

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_seconds: float,
        tell: Callable[[Step], None] = lambda _step: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = transport
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._timeout = timeout_seconds
        self._deadline = clock() + timeout_seconds

    def operation(self, operation_id: str, stage: str, *, link: str = "", verdict: str = "failed") -> Json:
        """Wait until an operation has succeeded and return it.

        Raises:
            FollowFailed: it failed (with ``verdict``), was cancelled, or has not ended in time.
        """
        said: tuple[int, str] | None = None
        for found in self._readings(f"operations/{operation_id}/", stage):
            now = (int(found["progress_percent"]), str(found["message"]))
            if now != said and found["state"] not in _ENDED:
                self._tell(Step(stage, "running", now[1] or str(found["state"]), now[0], link))
            said = now
            if found["state"] == "succeeded":
                return found
            if found["state"] in _ENDED:
                message = (found.get("error") or {}).get("message") or found["message"] or f"It {found['state']}."
                self._fail(stage, "cancelled" if found["state"] == "cancelled" else verdict, message, found, link)
        raise AssertionError("readings end with an exception")

    def approval(self, approval_id: str, *, link: str = "") -> Json:
        """Wait until a request is applied and return it.

        Raises:
            FollowFailed: rejected, changes asked for, voided, withdrawn, expired, or nothing of that in time.
        """
        said = ""
        for found in self._readings(f"approvals/{approval_id}/", "approval"):
            state = str(found["state"])
            if state == "applied":
                names = ", ".join(dict.fromkeys(r["reviewer"] for r in found["reviews"] if r["decision"] == "approve"))
                self._tell(Step("approval", "done", f"approved by {names}" if names else "approved", None, link))
                return found
            if state in ("rejected", "voided", "withdrawn", "expired"):
                self._fail("approval", state, found["state_reason"] or VERDICTS[state], found, link)
            asking = _who_asks_for_changes(found["reviews"])
            if asking is not None:
                sentence = f"{asking['reviewer']} asks for changes: {asking['comment'] or 'no comment'}"
                self._fail("approval", "changes_requested", sentence, found, link)
            text = f"waiting: {found['approvals_given']} of {found['required']} approvals"
            if state == "approved":
                text = found["state_reason"] or "approved; waiting until it may be applied"
            if text != said:
                self._tell(Step("approval", "running", text, None, link))
                said = text
        raise AssertionError("readings end with an exception")

    def rollout(self, rollouts: str, match: Callable[[Json], bool], *, link: str = "") -> Json:
        """Wait until the rollout that fits ``match`` in the list at ``rollouts`` has succeeded and return it.

        Raises:
            FollowFailed: it failed, went back, was replaced by another, or has not ended in time.
        """
        said: tuple[int | None, str] | None = None
        for page in self._readings(rollouts, "rollout"):
            found: Json | None = next((row for row in page["results"] if match(row)), None)
            if found is None:
                continue
            phase = str(found["phase"])
            if phase == "succeeded":
                self._tell(Step("rollout", "done", found["phase_reason"] or "serves on every node", 100, link))
                return found
            if phase in _PHASES_ENDED:
                self._fail("rollout", phase, found["phase_reason"] or VERDICTS[phase], found, link)
            now = self._progress(found)
            if now != said:
                self._tell(Step("rollout", "running", now[1], now[0], link))
                said = now
        raise AssertionError("readings end with an exception")

    def _progress(self, rollout: Json) -> tuple[int | None, str]:
        """Return percent and sentence of a rollout that runs; its operation knows more than its phase."""
        text = str(rollout["phase_reason"] or rollout["phase"])
        if not rollout.get("operation"):
            return None, text
        try:
            operation = self._transport.send("GET", f"operations/{rollout['operation']}/").json()
        except ApiError:
            return None, text
        return int(operation["progress_percent"]), str(operation["message"] or text)

    def _readings(self, path: str, stage: str) -> Iterator[Json]:
        """Yield what is at ``path`` again and again, with growing pauses, until the deadline.

        Raises:
            FollowFailed: the deadline has passed.
            ApiError: a refusal that does not pass by itself.
        """
        pause, last, is_away = _FIRST_PAUSE, {}, False
        while True:
            try:
                last = dict(self._transport.send("GET", path).json())
            except ApiError as error:
                if error.status not in _PASSING:
                    raise
                if not is_away:
                    self._tell(Step(stage, "running", f"The console does not answer ({error.code}); trying again."))
                is_away = True
            else:
                if is_away:
                    self._tell(Step(stage, "running", "The console answers again."))
                is_away = False
                yield last
            left = self._deadline - self._clock()
            if left <= 0:
                sentence = f"Not finished within {self._timeout:.0f} s; it goes on without us."
                raise FollowFailed(stage, "timed_out", sentence, last)
            self._sleep(max(0.0, min(pause, left)))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _fail(self, stage: str, verdict: str, message: str, document: Json, link: str) -> None:
        self._tell(Step(stage, "failed", message, None, link))
        raise FollowFailed(stage, verdict, message, document)


def _who_asks_for_changes(reviews: list[Json]) -> Json | None:
    """Return the review of somebody whose last word is to ask for changes."""
    last = {review["reviewer"]: review for review in reviews if review["decision"] != "comment"}
    return next((review for review in last.values() if review["decision"] == "request_changes"), None)
