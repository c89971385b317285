"""Metrics that models make for themselves, in real workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from serving_node.backends.python.metrics import WorkerMetrics
from serving_node.backends.python.worker.flotilla_wire import WireError
from serving_node.core.errors import InferenceError
from serving_node.observability.families import to_text
from serving_node.observability.model_metrics import ModelMetrics

from .conftest import Models

COUNTING = """
def initialize(self, args):
    self.family = pb_utils.MetricFamily("asked", "Requests", pb_utils.MetricFamily.COUNTER)
    self.metric = self.family.Metric(labels={"by": "all"})
    self.times = pb_utils.MetricFamily("seconds", "Times", pb_utils.MetricFamily.HISTOGRAM)
    self.time = self.times.Metric({"by": args["model_name"]}, [0.5, 1])

def execute(self, requests):
    for _ in requests:
        self.metric.increment(2)
        self.time.observe(0.75)
    value = self.metric.value()
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.float32))]) for _ in requests]
"""
TRYING = """
def execute(self, requests):
    def text(deed):
        try:
            return repr(deed())
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    scope = {"pb": pb_utils, "nan": float("nan")}
    code = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy().ravel()
    lines = [text(lambda: eval(one, scope)) for one in (line.decode() for line in code)]
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(lines, dtype=object))])]
"""


def shown(models: Models) -> list[str]:
    page = to_text(models.backends.metric_families()).decode()
    return [line for line in page.splitlines() if not line.startswith("#")]


async def tried(models: Models, *lines: str) -> list[str]:
    model = await models.load(TRYING, datatype="TYPE_STRING")
    asked = models.ask(model, [line.encode() for line in lines], dtype="BYTES")
    return [text.decode() for text in await asked.array()]


async def test_models_share_series_and_take_them_along(models: Models) -> None:
    first = await models.load(COUNTING, "instance_group { count: 2 }", name="first")
    second = await models.load(COUNTING, name="second")
    assert float((await models.ask(first, [1.0]).array())[0]) == 2
    assert float((await models.ask(second, [1.0]).array())[0]) == 4
    assert shown(models) == [
        'asked{by="all"} 4',
        'seconds_count{by="first"} 1',
        'seconds_sum{by="first"} 0.75',
        'seconds_bucket{by="first",le="0.5"} 0',
        'seconds_bucket{by="first",le="1"} 1',
        'seconds_bucket{by="first",le="+Inf"} 1',
        'seconds_count{by="second"} 1',
        'seconds_sum{by="second"} 0.75',
        'seconds_bucket{by="second",le="0.5"} 0',
        'seconds_bucket{by="second",le="1"} 1',
        'seconds_bucket{by="second",le="+Inf"} 1',
    ]
    await first.close(5)
    assert [line.split()[0] for line in shown(models)][:2] == ['asked{by="all"}', 'seconds_count{by="second"}']
    await second.close(5)
    models.loaded.clear()
    assert shown(models) == []


async def test_they_go_with_a_process_that_dies(models: Models, until: Callable[[Callable[[], bool]], Any]) -> None:
    model = await models.load(COUNTING.replace("value = ", "pid = os.getpid(); value = ").replace("[value]", "[pid]"))
    pid = int((await models.ask(model, [1.0]).array())[0])
    os.kill(pid, signal.SIGKILL)
    await until(lambda: shown(models)[:1] == ['asked{by="all"} 0'])
    await models.ask(model, [1.0]).answer()
    assert shown(models)[0] == 'asked{by="all"} 2'


async def test_gauges_take_what_numbers_there_are(models: Models) -> None:
    lines = await tried(
        models,
        "globals().setdefault('g', pb.MetricFamily('g', 'd', pb.MetricFamily.GAUGE))",
        "globals().setdefault('m', g.Metric())",
        "m.set(1e300), m.value()",
        "m.set(nan), m.value()",
        "m.set(-float('inf')), m.value()",
        "m.set(4), m.increment(-1.5), m.value()",
    )
    assert lines[2:] == ["(None, 1e+300)", "(None, nan)", "(None, -inf)", "(None, None, 2.5)"]


async def test_a_series_may_be_asked_for_with_every_request(models: Models) -> None:
    lines = await tried(
        models,
        "globals().setdefault('c', pb.MetricFamily('c', 'd', pb.MetricFamily.COUNTER)).__class__.__name__",
        "[c.Metric({'a': str(n % 3)}).increment(1) for n in range(30_000)][-1]",
        "[c.Metric({'a': str(n)}).value() for n in range(3)]",
    )
    assert lines[1:] == ["None", "[10000.0, 10000.0, 10000.0]"]


async def test_mistakes_are_named_as_triton_names_them(models: Models) -> None:
    lines = await tried(
        models,
        "globals().setdefault('c', pb.MetricFamily('c', 'd', pb.MetricFamily.COUNTER)).__class__.__name__",
        "globals().setdefault('m', c.Metric({'a': '1'})).__class__.__name__",
        "m.increment(-1)",
        "m.set(1)",
        "pb.MetricFamily('c', 'd', pb.MetricFamily.GAUGE)",
        "c.Metric(labels=5)",
        "c.Metric(labels={'bad label': ''})",
        "c.Metric(buckets=[1])",
        "pb.MetricFamily('h', 'd', pb.MetricFamily.HISTOGRAM).Metric()",
        "pb.MetricFamily('h', 'd', pb.MetricFamily.HISTOGRAM).Metric(buckets=(1, 2))",
        "pb.MetricFamily('h', 'd', pb.MetricFamily.HISTOGRAM).Metric(buckets=[2, 1])",
        "pb.MetricFamily('h', 'd', pb.MetricFamily.HISTOGRAM).Metric(buckets=[1]).observe(1)",
        "m.value()",
    )
    message = "Failed to process the request for model 'm_0', message:"
    assert lines == [
        "'MetricFamily'",
        "'Metric'",
        f"TritonModelException: Failed to increment metric value: {message} TRITONSERVER_METRIC_KIND_COUNTER can only"
        " be incremented monotonically by non-negative values.",
        f"TritonModelException: Failed to set metric value: {message} TRITONSERVER_METRIC_KIND_COUNTER does not support"
        " Set",
        f"TritonModelException: Error when creating MetricFamily: {message} Family name already exists with different"
        " type",
        "TritonModelException: Failed to create metric. Labels must be a dictionary.",
        f"TritonModelException: Error when creating Metric: {message} Invalid label name",
        "TritonModelException: Failed to create metric. Unexpected buckets found.",
        "TritonModelException: Failed to create metric. Missing required buckets.",
        "TritonModelException: Failed to create metric. Buckets must be a list.",
        f"TritonModelException: Error when creating Metric: {message} Bucket Boundaries must be strictly sorted",
        "TritonModelException: Failed to observe metric value: Invalid metric operation as the corresponding"
        " 'MetricFamily' has been deleted. The 'MetricFamily' object should be deleted AFTER its corresponding 'Metric'"
        " objects have been deleted.",
        "0.0",
    ]


@pytest.mark.parametrize(
    ("verb", "number", "details"),
    [
        ("family", "1", ["n", "", 0]),
        ("family", 1, ["n", "", 0]),
        ("family", 2, ["n", "", 9]),
        ("family", 2, ["n"]),
        ("series", 2, [9, {}, None]),
        ("series", 2, [1, ["a"], None]),
        ("series", 2, [1, None, None]),
        ("series", 2, [1, {"a": "1"}, ["x"]]),
        ("increment", 9, ["1"]),
        ("increment", 5, ["one"]),
        ("increment", 5, []),
        ("value", [], []),
        ("explode", 5, []),
        (None, None, None),
    ],
)
def test_a_worker_is_not_trusted(verb: Any, number: Any, details: Any) -> None:
    metrics = ModelMetrics()
    held = WorkerMetrics(metrics)
    held.do("family", 1, ["n", "", 0])
    held.do("series", 5, [1, {"a": "1"}, None])
    with pytest.raises(WireError, match="metric"):
        held.do(verb, number, details)
    assert held.do("value", 5, []) == "0.0"


def test_what_a_worker_holds_goes_once() -> None:
    metrics = ModelMetrics()
    one, other = WorkerMetrics(metrics), WorkerMetrics(metrics)
    for held in (one, other):
        held.do("family", 1, ["n", "", 0])
        held.do("series", 2, [1, {}, None])
        held.do("series", 3, [1, {}, None])
    one.drop(1)
    one.drop(1)
    one.drop("nonsense")
    other.do("increment", 2, ["2"])
    assert other.do("value", 3, []) == "2.0"
    with pytest.raises(WireError):
        one.do("increment", 2, ["1"])
    other.close()
    other.close()
    assert metrics.families() == []
    with pytest.raises(InferenceError, match="the model is being unloaded"):
        other.do("family", 4, ["n", "", 0])
