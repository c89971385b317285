"""The description and the console hold each other to their word: schemathesis over every operation.

A real console (uvicorn) on real PostgreSQL and Valkey answers requests that are made from its own description: right
ones about things that are there, wrong ones, and right ones about things that are not. No answer may be a 5xx, and none
may be one that the document does not announce: status, content type, headers, body.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure
from schemathesis.specs.openapi import checks

from console.description import document
from tests.console.api.world import World, cut_off, make_world
from tests.console.conftest import RunningConsole, make_cast

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
# What ends a stream, or the server's patience, is tested where the streams are.
STREAMS = {"/api/v1/operations/{operation}/events"}
ORDER = ("get", "head", "options", "post", "patch", "put", "delete")


@dataclass
class Fuzzed:
    """A running console, what is in it, and every operation, in the order in which the least is destroyed."""

    url: str
    world: World
    operations: list[Any]

    def try_out(self, mode: GenerationMode, examples: int, *, present: bool) -> int:
        """Send examples of every operation; return how many were sent."""
        sent, problems = 0, []
        for operation in self.operations:
            here = self._parameters(operation) if present else None
            try:
                sent += self._try_one(operation, mode, here, examples)
            except* Failure as found:
                problems += [f"{operation.label}: {one}" for one in (found, *_leaves(found))]
        assert not problems, "\n\n".join(problems)
        return sent

    def _parameters(self, operation: Any) -> dict[str, str]:
        names = [one.name for one in operation.path_parameters]
        return {name: self.world.values[name] for name in names if name in self.world.values}

    def _try_one(self, operation: Any, mode: GenerationMode, here: dict[str, str] | None, examples: int) -> int:
        token = self.world.cast.token("alice")
        headers = {"Authorization": f"Bearer {token}"}
        if here is not None and operation.method in ("patch", "put", "delete"):
            headers["If-Match"] = "*"
        extra = {"path_parameters": here} if here else {}
        strategy = operation.as_strategy(generation_mode=mode, **extra)
        sent = 0

        @seed(20261122)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def ask(case: Any) -> None:
            nonlocal sent
            sent += 1
            answer = case.call(base_url=self.url, headers=headers, timeout=30)
            case.validate_response(answer, checks=CHECKS, headers=headers)

        try:
            ask()
        except (Unsatisfiable, schemathesis.errors.SchemathesisError):
            return sent  # there is nothing to get wrong about this operation
        return sent


def _leaves(group: Any) -> Iterator[Any]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one


@pytest.fixture
def fuzzed(transactional_db: None, console: RunningConsole, monkeypatch: pytest.MonkeyPatch) -> Fuzzed:
    cut_off(monkeypatch)
    world = make_world(make_cast())
    schema = schemathesis.openapi.from_dict(document())
    refusals = ["4XX"]  # tus answers 412 to another version of itself
    schema.config.checks.negative_data_rejection.expected_statuses = refusals
    found = [result.ok() for result in schema.get_all_operations() if result.ok().path not in STREAMS]
    found.sort(key=lambda one: ORDER.index(one.method.lower()))
    return Fuzzed(console.url, world, found)


def test_right_and_wrong_requests_get_only_announced_answers(fuzzed: Fuzzed) -> None:
    assert len(fuzzed.operations) > 90
    assert fuzzed.try_out(GenerationMode.NEGATIVE, 1, present=True) > 60
    assert fuzzed.try_out(GenerationMode.POSITIVE, 1, present=False) > 90
    assert fuzzed.try_out(GenerationMode.POSITIVE, 1, present=True) > 90


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_requests_get_only_announced_answers(fuzzed: Fuzzed) -> None:
    assert fuzzed.try_out(GenerationMode.NEGATIVE, 100, present=True)
    assert fuzzed.try_out(GenerationMode.POSITIVE, 60, present=False)
    assert fuzzed.try_out(GenerationMode.POSITIVE, 100, present=True)
