"""The description and the console hold each other to their word: schemathesis over every operation, and along links.

A real console (uvicorn) on real PostgreSQL and Valkey answers requests that are made from its own description: right
ones about things that are there, wrong ones, and right ones about things that are not. No answer may be a 5xx, and none
may be one that the document does not announce: status, content type, headers, body.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky, Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure
from schemathesis.specs.openapi import checks

from console.description import document
from tests.console.api.world import BODIES, World, cut_off, make_world
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
# Chunks of files are no JSON; tests/console/uploads sends them.
CHUNKS = {"/api/v1/uploads/{upload}"}
ORDER = ("get", "head", "options", "post", "patch", "put", "delete")


@dataclass
class Fuzzed:
    """A running console, what is in it, and every operation, in the order in which the least is destroyed."""

    url: str
    world: World
    operations: list[Any]
    schema: Any

    def follow(self, walks: int, steps: int) -> Counter[str]:
        """Walk along links from what is made; return how often each operation was called and did what was asked."""
        done: Counter[str] = Counter()
        for walk in range(walks):
            # What earlier walks made stays, so that the same steps may end otherwise; then the walk is over.
            with contextlib.suppress(Flaky):
                seed(20261122 + walk)(_walker(self, done)).run(
                    settings=settings(
                        max_examples=2,  # the first is always the simplest
                        stateful_step_count=steps,
                        deadline=None,
                        database=None,
                        phases=[Phase.generate],
                        suppress_health_check=list(HealthCheck),
                    )
                )
        return done

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


def _walker(fuzzed: Fuzzed, done: Counter[str]) -> Any:
    """Return the state machine of schemathesis that begins with what can be made, and goes where links lead.

    Bodies are those of the world, which are accepted, each under a name of its own; so walks lead far.
    """
    token = fuzzed.world.cast.token("alice")
    names = (f"new-{len(done)}-{number}" for number in itertools.count(sum(done.values())))
    bodies = {f"{method} /api/v1/{_template(route)}": body for (method, route), body in BODIES.items()}

    class Walker(fuzzed.schema.as_state_machine()):  # type: ignore[misc]
        def step(self, input: Any) -> Any:
            case = input.case
            if case.meta.generation.mode.is_positive:
                body = bodies.get(f"{case.operation.method} {case.operation.path}")
                if body is not None:
                    new = next(names)
                    case.body = {
                        key: new if value in ("new", "machine", "dora") else value for key, value in body.items()
                    }
                linked = {name for _location, name in input.applied_parameters}
                for one in case.operation.path_parameters:
                    if one.name not in linked and one.name in fuzzed.world.values:
                        case.path_parameters[one.name] = fuzzed.world.values[one.name]
            return super().step(input)

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            headers = {"Authorization": f"Bearer {token}", "If-Match": "*"}
            return {"base_url": fuzzed.url, "headers": headers, "timeout": 30}

        def after_call(self, response: Any, case: Any) -> None:
            super().after_call(response, case)
            if response.status_code < 300:
                done[case.operation.label] += 1

        def validate_response(self, response: Any, case: Any, additional_checks: Any = None, **kwargs: Any) -> None:
            case.validate_response(
                response,
                checks=[*CHECKS, checks.use_after_free, checks.ensure_resource_availability],
                recorder=self.recorder,
                transport_kwargs=kwargs,
                headers=kwargs["headers"],
            )

    return Walker


def _template(route: str) -> str:
    return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route)


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
    return Fuzzed(console.url, world, found, schema.exclude(path=[*STREAMS, *CHUNKS]))


def test_right_and_wrong_requests_get_only_announced_answers(fuzzed: Fuzzed) -> None:
    assert len(fuzzed.operations) > 90
    assert fuzzed.try_out(GenerationMode.NEGATIVE, 1, present=True) > 60
    assert fuzzed.try_out(GenerationMode.POSITIVE, 1, present=False) > 90
    assert fuzzed.try_out(GenerationMode.POSITIVE, 1, present=True) > 90


def test_a_walk_along_links_meets_only_announced_answers(fuzzed: Fuzzed) -> None:
    assert len(fuzzed.follow(walks=1, steps=12)) > 5


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_walks_along_links_meet_only_announced_answers(fuzzed: Fuzzed) -> None:
    done = fuzzed.follow(walks=40, steps=25)
    print(sum(done.values()), len(done), done)
    assert len(done) > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("mode", "examples", "present"),
    [(GenerationMode.NEGATIVE, 100, True), (GenerationMode.POSITIVE, 60, False), (GenerationMode.POSITIVE, 100, True)],
    ids=["wrong", "right about what is not there", "right"],
)
def test_many_requests_get_only_announced_answers(
    fuzzed: Fuzzed, mode: GenerationMode, examples: int, present: bool
) -> None:
    assert fuzzed.try_out(mode, examples, present=present) > 90
