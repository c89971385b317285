"""Ensembles as a scheduler: what the steps get, what the caller gets, and that each request ends exactly once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse, RequestedOutput, Timing
from serving_node.core.tensor import Tensor
from serving_node.observability.statistics import FailureReason, ModelStatistics
from serving_node.scheduling import ensembles
from serving_node.scheduling.ensemble_loader import load_ensemble
from serving_node.scheduling.ensembles import EnsembleScheduler
from serving_node.scheduling.served_model import ServedModel
from serving_node.scheduling.step_links import pipeline
from tests.serving_node.scheduling.answering_models import Models, ensemble, model, step

CHAIN = ensemble(step("m", "i=A", "B"), step("n", "i=B", "Z"))


@pytest.fixture
def models() -> Models:
    return Models({name: model(name) for name in ("m", "n")} | {"many": model("many", decoupled=True)})


def scheduler(config: ModelConfig, models: Models, **limits: int) -> EnsembleScheduler:
    made = pipeline(config, [models.configs[step.model_name] for step in config.ensemble_scheduling.step])
    return EnsembleScheduler(made, models, name="e", version=1, statistics=ModelStatistics(), **limits)


@dataclass
class Caller:
    """What one caller was answered."""

    responses: list[InferenceResponse] = field(default_factory=list)

    def __call__(self, response: InferenceResponse) -> None:
        assert not any(one.final for one in self.responses), "answered after the final response"
        self.responses.append(response)

    @property
    def error(self) -> InferenceError:
        (response,) = (one for one in self.responses if one.error is not None)
        assert response.error is not None
        return response.error


def tensor(name: str, value: int = 1) -> Tensor:
    return Tensor(name, "INT32", (1,), memoryview(value.to_bytes(4, "little")))


def request(caller: Caller, *names: str, outputs: str = "", **more: Any) -> InferenceRequest:
    wanted = [RequestedOutput(name) for name in outputs.split()]
    return InferenceRequest("e", "", [tensor(name) for name in names or ("A",)], caller, outputs=wanted, **more)


def give(one: InferenceRequest, *outputs: Tensor, final: bool = True, **more: Any) -> None:
    one.on_response(InferenceResponse(one.model_name, "1", one.id, list(outputs), final=final, **more))


def fail(one: InferenceRequest, code: ErrorCode = ErrorCode.INTERNAL) -> None:
    one.on_response(InferenceResponse(one.model_name, "1", error=InferenceError(code, "broken")))


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_tensor_goes_on_as_it_is_under_another_name(models: Models) -> None:
    caller, under = Caller(), scheduler(CHAIN, models)
    asked = request(caller)
    under.submit(asked)
    assert models.requests[0].inputs[0].data is asked.inputs[0].data
    made = tensor("o", 7)
    give(models.requests[0], made)
    assert (models.requests[1].model_name, models.requests[1].inputs[0].name) == ("n", "i")
    assert models.requests[1].inputs[0].data is made.data
    last = tensor("o", 9)
    give(models.requests[1], last)
    (answer,) = caller.responses
    assert (answer.model_name, answer.model_version, answer.final) == ("e", "1", True)
    assert [(one.name, one.data) for one in answer.outputs] == [("Z", last.data)]
    assert under.inflight_count() == 0


async def test_steps_get_what_the_request_says(models: Models) -> None:
    under = scheduler(CHAIN, models)
    facts: dict[str, Any] = {
        "id": "x",
        "parameters": {"tenant": "a"},
        "priority": 3,
        "timeout_us": 9,
        "sequence_id": "s",
        "sequence_start": True,
        "deadline_ns": 10**18,
        "sticky_key": "k",
    }
    under.submit(request(Caller(), **facts))
    give(models.requests[0], tensor("o"))
    for one in models.requests:
        assert {name: getattr(one, name) for name in facts} == facts
        assert [output.name for output in one.outputs] == ["o"]
        assert one.inner, "a node that drains ends what is inside"


async def test_a_step_may_put_those_behind_it_into_another_sequence(models: Models) -> None:
    caller, under = Caller(), scheduler(CHAIN, models)
    under.submit(request(caller, sequence_id=1, sequence_start=True))
    give(models.requests[0], tensor("o"), parameters={"sequence_id": 5, "sequence_end": True})
    following = models.requests[1]
    assert (following.sequence_id, following.sequence_start, following.sequence_end) == (5, False, True)
    give(following, tensor("o"))
    assert caller.responses[0].parameters == {"sequence_id": 5, "sequence_start": False, "sequence_end": True}


async def test_a_wrong_sequence_parameter_fails_the_request(models: Models) -> None:
    caller, under = Caller(), scheduler(CHAIN, models)
    under.submit(request(caller))
    give(models.requests[0], tensor("o"), parameters={"sequence_start": 1})
    assert caller.error.message.startswith("in ensemble 'e', expected parameter 'sequence_start'")


async def test_an_optional_input_goes_on_only_when_it_is_there() -> None:
    models = Models({"m": model("m", optional="j")})
    under = scheduler(ensemble(step("m", "i=A j=B", "Z"), optional="B"), models)
    under.submit(request(Caller()))
    under.submit(request(Caller(), "A", "B"))
    assert [[one.name for one in made.inputs] for made in models.requests] == [["i"], ["i", "j"]]


async def test_an_output_that_a_step_does_not_give_is_absent_behind_it() -> None:
    models = Models({"m": model("m"), "n": model("n", inputs="", optional="i")})
    caller, under = Caller(), scheduler(CHAIN, models)
    under.submit(request(caller))
    give(models.requests[0])
    assert models.requests[1].inputs == []
    give(models.requests[1])
    assert [(one.outputs, one.error) for one in caller.responses] == [([], None)]


async def test_the_end_without_any_response_is_a_deadlock(models: Models) -> None:
    caller, under = Caller(), scheduler(CHAIN, models)
    under.submit(request(caller, id="q"))
    give(models.requests[0], flag_only=True)
    assert caller.error.message == (
        "in ensemble 'e', [request id: q] unexpected deadlock, at least one output is not set while no more ensemble"
        " steps can be made"
    )


async def test_an_error_names_the_ensemble_and_what_still_runs_is_cancelled() -> None:
    models = Models({name: model(name) for name in ("m", "n")})
    caller = Caller()
    under = scheduler(ensemble(step("m", "i=A", "Y"), step("n", "i=A", "Z"), outputs="Y Z"), models)
    under.submit(request(caller))
    fail(models.of("m")[0], ErrorCode.UNAVAILABLE)
    assert (caller.error.code, caller.error.message) == (ErrorCode.UNAVAILABLE, "in ensemble 'e', broken")
    assert models.of("n")[0].cancelled
    give(models.of("n")[0], tensor("o"))
    assert len(caller.responses) == 1
    assert under._statistics.failures[FailureReason.OTHER] == under._statistics.fail.count == 1


class Lease:
    """Memory of the caller's."""

    def store(self, tensor: Tensor) -> bool:
        return False

    def release(self) -> None: ...


async def test_memory_of_the_caller_is_not_given_back_while_a_step_reads_it() -> None:
    models = Models({name: model(name) for name in ("m", "n")})
    caller = Caller()
    under = scheduler(ensemble(step("m", "i=A", "Y"), step("n", "i=A", "Z"), outputs="Y Z"), models)
    under.submit(request(caller, lease=Lease()))
    fail(models.of("m")[0])
    assert caller.responses == []
    give(models.of("n")[0], tensor("o"))
    assert caller.error.message == "in ensemble 'e', broken"


@dataclass
class Trace:
    """What was noted about a request and those made for it."""

    rows: list[str] = field(default_factory=list)
    children: list[Trace] = field(default_factory=list)

    def begin(self, model: str, version: str, request_id: str, ns: int) -> None: ...

    def mark(self, activity: str, ns: int) -> None:
        self.rows.append(activity)

    def tensors(self, activity: str, tensors: Any) -> None: ...

    def context(self) -> str:
        return ""

    def child(self) -> Trace:
        self.children.append(Trace())
        return self.children[-1]

    def end(self, ns: int) -> None:
        self.rows.append("end")

    def finish(self) -> None:
        self.rows.append("finish")


async def test_steps_have_traces_below_that_of_the_request(models: Models) -> None:
    trace = Trace()
    under = scheduler(CHAIN, models)
    under.submit(request(Caller(), trace=trace))
    give(models.requests[0], tensor("o"))
    give(models.requests[1], tensor("o"))
    assert trace.rows == ["QUEUE_START", "end"]
    assert [one.trace for one in models.requests] == trace.children
    assert [child.rows for child in trace.children] == [["finish"], ["finish"]]


async def test_a_step_that_cannot_be_submitted_fails_the_request_at_once(models: Models) -> None:
    models.refuse["n"] = InferenceError(ErrorCode.UNAVAILABLE, "[request id: <id_unknown>] Exceeds maximum queue size")
    caller, under = Caller(), scheduler(CHAIN, models)
    under.submit(request(caller))
    give(models.requests[0], tensor("o"))
    assert caller.error.message == "in ensemble 'e', [request id: <id_unknown>] Exceeds maximum queue size"
    assert under.inflight_count() == 0


async def test_nobody_is_answered_inside_submit(models: Models) -> None:
    models.refuse["m"] = InferenceError(ErrorCode.UNAVAILABLE, "full")
    caller, under = Caller(), scheduler(CHAIN, models)
    under.submit(request(caller))
    assert caller.responses == []
    await settle()
    assert caller.error.message == "in ensemble 'e', full"


async def test_models_may_answer_at_once(models: Models) -> None:
    models.on_request = lambda one: give(one, tensor("o"))
    caller, under = Caller(), scheduler(CHAIN, models)
    under.submit(request(caller))
    await settle()
    assert [one.final for one in caller.responses] == [True]


async def test_only_what_is_asked_for_runs(models: Models) -> None:
    config = ensemble(step("m", "i=A", "Y"), step("n", "i=A", "Z"), outputs="Y Z")
    caller, under = Caller(), scheduler(config, models)
    under.submit(request(caller, outputs="Z"))
    assert [one.model_name for one in models.requests] == ["n"]
    give(models.requests[0], tensor("o"))
    assert [one.name for one in caller.responses[0].outputs] == ["Z"]


async def test_an_output_that_another_step_takes_may_be_asked_for_alone(models: Models) -> None:
    caller, under = Caller(), scheduler(ensemble(step("m", "i=A", "Y"), step("n", "i=Y", "Z"), outputs="Y Z"), models)
    under.submit(request(caller, outputs="Y"))
    give(models.requests[0], tensor("o"))
    assert [one.model_name for one in models.requests] == ["m"]
    assert [one.name for one in caller.responses[0].outputs] == ["Y"]


async def test_responses_multiply_and_the_end_comes_last(models: Models) -> None:
    caller, under = Caller(), scheduler(ensemble(step("many", "i=A", "B"), step("m", "i=B", "Z")), models)
    asked = request(caller)
    asked.decoupled = True
    under.submit(asked)
    for number in range(3):
        give(models.of("many")[0], tensor("o", number), final=False)
    give(models.of("many")[0], flag_only=True)
    for one in models.of("m"):
        give(one, Tensor("o", "INT32", (1,), one.inputs[0].data))
    values = [int.from_bytes(one.outputs[0].data, "little") for one in caller.responses[:-1]]
    assert values == [0, 1, 2]
    assert [(one.final, one.flag_only) for one in caller.responses] == [(False, False)] * 3 + [(True, True)]
    assert under._statistics.success.count == 1


async def test_an_error_inside_a_flow_of_responses_ends_it(models: Models) -> None:
    caller, under = Caller(), scheduler(ensemble(step("many", "i=A", "B"), step("m", "i=B", "Z")), models)
    under.submit(request(caller))
    give(models.of("many")[0], tensor("o"), final=False)
    give(models.of("m")[0], tensor("o"))
    give(models.of("many")[0], tensor("o"), final=False)
    fail(models.of("m")[1])
    assert [one.final for one in caller.responses] == [False, True]
    assert models.of("many")[0].cancelled
    give(models.of("many")[0], tensor("o"), final=False)
    give(models.of("many")[0], flag_only=True)
    assert len(caller.responses) == 2


async def test_cancelling_reaches_the_steps_that_run_and_stops_those_behind(models: Models) -> None:
    caller, under = Caller(), scheduler(CHAIN, models)
    asked = request(caller)
    under.submit(asked)
    asked.cancel()
    assert models.requests[0].cancelled
    assert caller.responses == []
    give(models.requests[0], tensor("o"))
    assert caller.error.code is ErrorCode.CANCELLED
    assert len(models.requests) == 1
    assert under._statistics.failures[FailureReason.CANCELED] == 1


async def test_times_are_those_of_the_steps(models: Models) -> None:
    caller, under = Caller(), scheduler(CHAIN, models)
    under.submit(request(caller, arrival_ns=1))
    for place in range(2):
        give(models.requests[place], tensor("o"), timing=Timing(1, 20, 300, 4000))
    counts = under._statistics
    assert (counts.queue.count, counts.compute_input.ns, counts.compute_infer.ns) == (1, 40, 600)
    assert (counts.compute_output.ns, counts.inference_count, counts.execution_count) == (8000, 1, 1)


async def test_more_requests_than_allowed_are_refused_before_any_step(models: Models) -> None:
    under = scheduler(CHAIN, models, max_requests=1)
    under.submit(request(Caller()))
    with pytest.raises(InferenceError, match=r"\[request id: two\] Exceeds maximum queue size") as caught:
        under.submit(request(Caller(), id="two"))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert len(models.requests) == 1
    fail(models.requests[0])
    under.submit(request(Caller()))


async def test_a_full_step_keeps_others_waiting_and_holds_back_what_feeds_it(models: Models) -> None:
    under = scheduler(CHAIN, models, max_inflight=1)
    callers = [Caller() for _ in range(3)]
    for caller in callers:
        under.submit(request(caller))
    assert [one.model_name for one in models.requests] == ["m"]
    give(models.of("m")[0], tensor("o"))
    assert [one.model_name for one in models.requests] == ["m", "n", "m"]
    give(models.of("m")[1], tensor("o"))
    # the second waits for "n" and keeps its place in "m" until it gets in
    assert len(models.of("m")) == 2
    give(models.of("n")[0], tensor("o"))
    assert (len(models.of("m")), len(models.of("n"))) == (3, 2)
    give(models.of("n")[1], tensor("o"))
    give(models.of("m")[2], tensor("o"))
    give(models.of("n")[2], tensor("o"))
    assert [len(caller.responses) for caller in callers] == [1, 1, 1]
    assert [gate.inside for gate in under._gates] == [0, 0]


async def test_nobody_waits_for_a_full_step_for_ever(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensembles, "_PATIENCE_NS", 0)
    under = scheduler(CHAIN, models, max_inflight=1)
    arrived = asyncio.Event()
    models.on_request = lambda _: arrived.set() if len(models.requests) == 2 else None
    under.submit(request(Caller()))
    under.submit(request(Caller()))
    await asyncio.wait_for(arrived.wait(), 30)


async def test_who_leaves_while_waiting_takes_nobodys_place(models: Models) -> None:
    under = scheduler(CHAIN, models, max_inflight=1)
    callers = [Caller() for _ in range(3)]
    asked = [request(caller) for caller in callers]
    for one in asked:
        under.submit(one)
    asked[1].cancel()
    await settle()
    assert callers[1].error.code is ErrorCode.CANCELLED
    give(models.requests[0], tensor("o"))
    give(models.of("m")[1], tensor("o"))
    for one in models.of("n"):
        give(one, tensor("o"))
    give(models.of("n")[1], tensor("o"))
    assert [len(caller.responses) for caller in callers] == [1, 1, 1]
    assert [gate.inside for gate in under._gates] == [0, 0]


async def test_drain_waits_for_what_is_inside_and_takes_nothing_new(models: Models) -> None:
    caller, under = Caller(), scheduler(CHAIN, models)
    under.submit(request(caller))
    draining = asyncio.ensure_future(under.drain(30))
    await settle()
    with pytest.raises(InferenceError, match="stopped accepting"):
        under.submit(request(Caller()))
    give(models.requests[0], tensor("o"))
    give(models.requests[1], tensor("o"))
    assert await draining


async def test_close_answers_who_is_left(models: Models) -> None:
    caller, under = Caller(), scheduler(CHAIN, models)
    under.submit(request(caller))
    await under.close(0.01)
    assert caller.error.code is ErrorCode.UNAVAILABLE
    give(models.requests[0], tensor("o"))
    assert len(caller.responses) == 1


async def test_it_is_ready_when_all_its_models_are(models: Models) -> None:
    under = scheduler(CHAIN, models)
    assert under.ready()
    models.unready.add("n")
    assert not under.ready()


# -- loading


async def load(config: ModelConfig, models: Models, folder: Any) -> ServedModel:
    return await load_ensemble(config, models, name="e", version=1, folder=folder)


async def test_an_ensemble_is_completed_from_its_models(models: Models, tmp_path: Any) -> None:
    served = await load(ensemble(step("many", "i=A", "B"), step("m", "i=B", "Z")), models, tmp_path)
    assert served.decoupled
    assert served.config.model_transaction_policy.decoupled
    assert served.classes.labels["Z"] == ("label of m",)
    assert served.metadata.platform == "ensemble"


async def test_a_config_limits_its_requests(models: Models, tmp_path: Any) -> None:
    more = 'parameters { key: "flotilla.max_requests" value { string_value: "1" } }'
    served = await load(ensemble(step("m", "i=A", "Z"), more=more), models, tmp_path)
    served.submit(request(Caller()))
    with pytest.raises(InferenceError, match="Exceeds maximum queue size"):
        served.submit(request(Caller()))


async def test_missing_models_are_named(models: Models, tmp_path: Any) -> None:
    config = ensemble(step("nobody", "i=A", "B"), step("no_one", "i=B", "Z"))
    with pytest.raises(InferenceError, match="that are not available or ambiguous: no_one, nobody") as caught:
        await load(config, models, tmp_path)
    assert caught.value.code is ErrorCode.INVALID_ARG


# -- any graph


@st.composite
def graphs(draw: st.DrawFn) -> tuple[ModelConfig, Models]:
    """Return an ensemble of up to six steps, of which one may give any number of responses."""
    count = draw(st.integers(1, 6))
    many = draw(st.none() | st.integers(0, count - 1))
    known, configs, steps = ["A"], {}, []
    behind: set[str] = set()
    for number in range(count):
        # Triton refuses what mixes tensors of one iteration with others
        pool = draw(st.sampled_from([[t for t in known if t in behind], [t for t in known if t not in behind]]))
        inputs = draw(st.lists(st.sampled_from(pool or ["A"]), min_size=1, max_size=3, unique=True))
        name, output = f"m{number}", f"T{number}"
        names = [f"i{place}" for place in range(len(inputs))]
        is_many = number == many and not behind
        configs[name] = model(name, decoupled=is_many, inputs=" ".join(names))
        steps.append(step(name, " ".join(f"{own}={one}" for own, one in zip(names, inputs, strict=True)), output))
        if is_many or inputs[0] in behind:
            behind.add(output)
        known.append(output)
    finals = [t for t in known[1:] if t in behind] or known[1:]
    outputs = draw(st.lists(st.sampled_from(finals), min_size=1, unique=True))
    return ensemble(*steps, outputs=" ".join(outputs)), Models(configs)


def needed(config: ModelConfig, wanted: set[str]) -> set[str]:
    found: set[str] = set()
    waiting = set(wanted)
    while waiting:
        one = waiting.pop()
        for part in config.ensemble_scheduling.step:
            if one in part.output_map.values() and part.model_name not in found:
                found.add(part.model_name)
                waiting.update(part.input_map.values())
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.integers(0, 2), st.data())
def test_any_graph_answers_each_request_once_and_keeps_nothing(
    drawn: tuple[ModelConfig, Models], max_inflight: int, data: st.DataObject
) -> None:
    config, models = drawn
    asyncio.run(_play(config, models, max_inflight, data))


async def _play(config: ModelConfig, models: Models, max_inflight: int, data: st.DataObject) -> None:
    under = scheduler(config, models, max_inflight=max_inflight)
    all_outputs = [output.name for output in config.output]
    callers: list[tuple[Caller, InferenceRequest, set[str]]] = []
    for number in range(data.draw(st.integers(1, 3))):
        wanted = data.draw(st.lists(st.sampled_from(all_outputs), unique=True))
        caller = Caller()
        asked = request(caller, outputs=" ".join(wanted), id=str(number))
        asked.decoupled = under.pipeline.graph.is_decoupled
        under.submit(asked)
        callers.append((caller, asked, set(wanted) or set(all_outputs)))
    done: set[int] = set()
    ran: dict[str, set[str]] = {asked.id: set() for _, asked, _ in callers}
    troubled: set[str] = set()
    for _ in range(400):
        waiting = [one for one in models.requests if id(one) not in done]
        if not waiting:
            break
        one = data.draw(st.sampled_from(waiting), label="next")
        ran[one.id].add(one.model_name)
        deed = data.draw(st.sampled_from(["answer"] * 6 + ["fail", "cancel"]), label="deed")
        if deed == "cancel":
            callers[int(one.id)][1].cancel()
            troubled.add(one.id)
        elif deed == "fail":
            done.add(id(one))
            troubled.add(one.id)
            fail(one)
        elif models.configs[one.model_name].model_transaction_policy.decoupled:
            for _ in range(data.draw(st.integers(0, 3), label="responses")):
                give(one, tensor("o"), final=False)
            done.add(id(one))
            give(one, flag_only=True)
        else:
            done.add(id(one))
            give(one, tensor("o"))
    else:
        raise AssertionError("it does not end")
    await settle()
    assert under.inflight_count() == 0
    assert all(gate.inside == 0 and len(gate) == 0 for gate in under._gates)
    for caller, asked, wanted in callers:
        assert [one.final for one in caller.responses].count(True) == 1
        assert caller.responses[-1].final
        assert ran[asked.id] <= needed(config, wanted)
        if asked.id not in troubled:
            assert caller.responses[-1].error is None
            assert under.pipeline.graph.is_decoupled or ran[asked.id] == needed(config, wanted)
            for response in caller.responses:
                assert response.flag_only or {one.name for one in response.outputs} == wanted
