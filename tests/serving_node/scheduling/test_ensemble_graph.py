"""Which steps of an ensemble run when, and what is answered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving_node.scheduling.ensemble_graph import EnsembleGraph, EnsembleRun, Launch, Progress, Step


def step(model: str, inputs: str, outputs: str, *, decoupled: bool = False) -> Step:
    """Names of the model are those of the ensemble in lower case."""
    return Step(
        model,
        {name.lower(): name for name in inputs.split()},
        {name.lower(): name for name in outputs.split()},
        is_decoupled=decoupled,
    )


def models(graph: EnsembleGraph, progress: Progress[str]) -> list[str]:
    return [graph.steps[launch.step].model for launch in progress.launches]


def answer(run: EnsembleRun[str], launch: Launch[str], *, is_final: bool = True, **outputs: str) -> Progress[str]:
    return run.responded(launch, outputs, is_final=is_final)


CHAIN = EnsembleGraph(["IN"], ["OUT"], [step("first", "IN", "MID"), step("second", "MID", "OUT")])
FORK = EnsembleGraph(
    ["IN"],
    ["LEFT", "RIGHT"],
    [step("a", "IN", "MID"), step("b", "MID", "LEFT"), step("c", "MID", "RIGHT"), step("d", "IN", "UNUSED")],
)


def test_a_step_runs_when_its_inputs_exist() -> None:
    run: EnsembleRun[str] = EnsembleRun(CHAIN, [])
    progress = run.begin({"IN": "x"})
    assert models(CHAIN, progress) == ["first"]
    assert progress.launches[0].inputs == {"in": "x"}
    progress = answer(run, progress.launches[0], mid="y")
    assert models(CHAIN, progress) == ["second"]
    progress = answer(run, progress.launches[0], out="z")
    assert (progress.answers, progress.is_over, progress.is_stuck) == ([{"OUT": "z"}], True, False)


def test_steps_that_depend_on_the_same_run_together() -> None:
    run: EnsembleRun[str] = EnsembleRun(FORK, [])
    (first,) = run.begin({"IN": "x"}).launches
    assert models(FORK, answer(run, first, mid="y")) == ["b", "c"]


def test_what_nobody_asked_for_does_not_run() -> None:
    run: EnsembleRun[str] = EnsembleRun(FORK, ["RIGHT"])
    (first,) = run.begin({"IN": "x"}).launches
    assert models(FORK, answer(run, first, mid="y")) == ["c"]


def test_an_optional_input_that_is_missing_is_left_out() -> None:
    graph = EnsembleGraph(["A", "B"], ["OUT"], [step("m", "A B", "OUT")])
    run: EnsembleRun[str] = EnsembleRun(graph, [])
    assert run.begin({"B": "x"}).launches[0].inputs == {"b": "x"}


def test_an_output_that_never_comes_is_noticed() -> None:
    run: EnsembleRun[str] = EnsembleRun(CHAIN, [])
    (first,) = run.begin({"IN": "x"}).launches
    progress = answer(run, first)
    assert (progress.is_over, progress.is_stuck) == (True, True)


def test_nothing_follows_after_a_stop() -> None:
    run: EnsembleRun[str] = EnsembleRun(FORK, [])
    (first,) = run.begin({"IN": "x"}).launches
    assert run.stop() == 1
    progress = answer(run, first, mid="y")
    assert (progress.launches, progress.answers, progress.is_over) == ([], [], True)
    assert run.stop() == 0


DECOUPLED = EnsembleGraph(
    ["IN"],
    ["OUT", "SIDE"],
    [step("many", "IN", "MID", decoupled=True), step("each", "MID SIDE", "OUT"), step("slow", "IN", "SIDE")],
)


def test_the_steps_behind_a_decoupled_one_run_once_for_each_response() -> None:
    run: EnsembleRun[str] = EnsembleRun(DECOUPLED, [])
    many, slow = run.begin({"IN": "x"}).launches
    assert models(DECOUPLED, answer(run, slow, side="s")) == []
    launches = []
    for number in range(3):
        progress = answer(run, many, mid=f"m{number}", is_final=False)
        assert models(DECOUPLED, progress) == ["each"]
        launches += progress.launches
    assert not run.responded(many, None, is_final=True).is_over
    assert [launch.inputs for launch in launches] == [{"mid": f"m{number}", "side": "s"} for number in range(3)]
    answers = []
    for number, launch in reversed(list(enumerate(launches))):
        progress = answer(run, launch, out=f"o{number}")
        answers += progress.answers
    assert answers == [{"OUT": f"o{number}", "SIDE": "s"} for number in (2, 1, 0)]
    assert progress.is_over
    assert not progress.is_stuck


def test_responses_of_a_decoupled_step_wait_for_what_comes_later() -> None:
    run: EnsembleRun[str] = EnsembleRun(DECOUPLED, [])
    many, slow = run.begin({"IN": "x"}).launches
    for number in range(2):
        assert answer(run, many, mid=f"m{number}", is_final=number == 1).launches == []
    assert sorted(launch.inputs["mid"] for launch in answer(run, slow, side="s").launches) == ["m0", "m1"]


def test_a_decoupled_step_may_answer_nothing() -> None:
    run: EnsembleRun[str] = EnsembleRun(DECOUPLED, ["OUT"])
    many, slow = run.begin({"IN": "x"}).launches
    run.responded(many, None, is_final=True)
    progress = answer(run, slow, side="s")
    assert (progress.answers, progress.is_over, progress.is_stuck) == ([], True, False)


def test_iterations_that_are_over_are_forgotten() -> None:
    graph = EnsembleGraph(["IN"], ["OUT"], [step("many", "IN", "MID", decoupled=True), step("each", "MID", "OUT")])
    run: EnsembleRun[str] = EnsembleRun(graph, [])
    (many,) = run.begin({"IN": "x"}).launches
    for number in range(100):
        (each,) = answer(run, many, mid=str(number), is_final=False).launches
        assert answer(run, each, out="o").answers == [{"OUT": "o"}]
        assert many.iteration.children == []


@st.composite
def graphs(draw: st.DrawFn) -> EnsembleGraph:
    """Return layered graphs in which every tensor has one producer."""
    tensors = ["I0", "I1"]
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 6))):
        inputs = draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=3, unique=True))
        outputs = [f"T{number}_{place}" for place in range(draw(st.integers(1, 2)))]
        steps.append(step(f"m{number}", " ".join(inputs), " ".join(outputs)))
        tensors += outputs
    produced = tensors[2:]
    outputs = draw(st.lists(st.sampled_from(produced), min_size=1, unique=True))
    return EnsembleGraph(["I0", "I1"], outputs, steps)


@given(graphs(), st.data())
def test_any_graph_ends_with_one_answer_and_runs_only_what_is_needed(graph: EnsembleGraph, data: st.DataObject) -> None:
    requested = data.draw(st.sets(st.sampled_from(sorted(graph.outputs))))
    run: EnsembleRun[str] = EnsembleRun(graph, requested)
    progress = run.begin({"I0": "I0", "I1": "I1"})
    waiting, ran, answers = list(progress.launches), [], list(progress.answers)
    while waiting:
        launch = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
        ran.append(launch.step)
        mapped = graph.steps[launch.step]
        assert {mapped.inputs[name]: value for name, value in launch.inputs.items()} == {
            value: value for value in launch.inputs.values()
        }
        progress = run.responded(launch, {name: mapped.outputs[name] for name in mapped.outputs}, is_final=True)
        waiting += progress.launches
        answers += progress.answers
        assert progress.is_over == (not waiting)
    assert sorted(ran) == sorted(graph.needed(frozenset(requested) or graph.outputs))
    assert answers == [{name: name for name in (requested or graph.outputs)}]
    assert not progress.is_stuck
