"""Writers at once. Where which race is run:

- One object, two writers, with the tag that both read: every PUT, PATCH and DELETE, test_preconditions.py.
- One name, made twice at once: test_preconditions.py; aliases, webhooks, names of models in
  registry/services/test_concurrency.py.
- Double clicks and replays, with a key and without: every POST, here; the key itself, and a server killed in the middle
  of a write, in test_idempotency.py.
- State moves: tests/registry/services/test_transition.py (each step of many movers is in the table), approvals,
  rollouts, rollbacks and numbers of versions in test_concurrency.py, reviews in test_protection.py, code permissions in
  test_code_permissions.py.
- Uploads: two senders of one file in tests/registry/services/test_uploads.py, kills at each point in
  tests/console/uploads/test_killed.py, cuts in test_cut_uploads.py.
- Long work: two workers of one operation, leases that ran out and late renewals in
  tests/registry/services/test_operations.py and test_operation_machine.py; killed workers in
  tests/workers/test_worker_process.py and tests/e2e/test_recovery.py.
- Clocks: times that decide are those of the database (test_protection.py); tokens of jobs from the future and the past
  in test_ci_exchange.py; samples of nodes whose clock is wrong in tests/workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from console.api.v1.urls import urlpatterns
from registry.models import AuditEvent
from tests.console.api.world import World, body_for, cut_off, make_world
from tests.console.conftest import Cast, RunningConsole, in_threads

# It ends the token that the others are called with.
_LAST = {"me/revoke-token"}
_WRITERS = 3


def posts() -> Iterator[tuple[str, bool]]:
    """Yield the route of each POST, and whether its answers are kept under a key."""
    for pattern in urlpatterns:
        view = getattr(pattern.callback, "view_class", None)
        if hasattr(view, "post") and str(pattern.pattern) not in _LAST:
            yield str(pattern.pattern), getattr(view, "keeps_answers", False)


def at_once(console: RunningConsole, world: World, token: str, route: str, **headers: str) -> list[httpx2.Response]:
    """Return the answers to the same POST, sent several times at once."""
    address, body = world.address(route), body_for(world, "post", route)

    def send(_index: int) -> httpx2.Response:
        with console.client(token, **headers) as client:
            return client.post(address, json=body)

    answers: list[Any] = in_threads(_WRITERS, send)
    assert all(answer.status_code < 500 for answer in answers), (route, [answer.text for answer in answers])
    return answers


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_post_at_once_with_a_key_is_done_once(
    transactional_db: None, shared_cast: Cast, console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(monkeypatch)
    world, done = make_world(shared_cast), 0
    token = shared_cast.token("alice")
    for route, keeps in sorted(set(posts())):
        if not keeps:
            continue
        before = AuditEvent.objects.count()
        answers = at_once(console, world, token, route, **{"Idempotency-Key": f"key-{done}-{len(route)}"})
        statuses = {answer.status_code for answer in answers}
        made = set(AuditEvent.objects.order_by("-created_at")[: AuditEvent.objects.count() - before])
        if statuses <= {200, 201, 202, 204}:
            done += 1
            said = [answer.json() if answer.content else None for answer in answers]
            assert all(one == said[0] for one in said), (route, said)
            assert len({event.request_id for event in made}) <= 1, route
            replays = [answer.headers.get("Idempotent-Replay", "") for answer in answers]
            assert replays.count("true") == _WRITERS - 1, route
        else:
            # What is refused is refused to all: none of them did it.
            assert min(statuses) >= 400, (route, statuses)
            assert not made, route
    assert done > 30


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_post_at_once_without_a_key_writes_down_only_what_it_did(
    transactional_db: None, shared_cast: Cast, console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(monkeypatch)
    world, done = make_world(shared_cast), 0
    token = shared_cast.token("alice")
    for route, _keeps in sorted(set(posts())):
        before = AuditEvent.objects.count()
        answers = at_once(console, world, token, route)
        made = AuditEvent.objects.order_by("-created_at")[: AuditEvent.objects.count() - before]
        did = {answer.headers["X-Request-ID"] for answer in answers if answer.status_code < 300}
        assert {event.request_id for event in made} <= did, (route, [answer.text for answer in answers])
        done += bool(did)
    assert done > 40
