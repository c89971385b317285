"""Sources and metrics of versions: what is taken, and what is refused at its name."""

from __future__ import annotations

from typing import Any

import pytest

from registry.domain.version_facts import MAX_METRICS, metric_problems, source_problems


def test_a_whole_source() -> None:
    assert source_problems({
        "git_sha": "0aB1" * 10, "git_ref": "refs/heads/main", "repository": "https://example.org/a/b.git",
        "ci_run": "http://ci.internal:8080/run/7", "author": "Ada", "dataset": "s3://sets/november@3",
    }) == []  # fmt: skip


@pytest.mark.parametrize(
    ("source", "words"),
    [({"branch": "main"}, "no “branch”; known are git_sha"), ({"git_sha": "main"}, "hexadecimal"),
     ({"ci_run": "javascript:alert(1)"}, "http"), ({"repository": "https://u:p@a.b"}, "user"),
     ({"author": ""}, "visible"), ({"dataset": "a\nb"}, "visible"), ({"git_ref": 7}, "text"),
     ({"converted_from": {}}, "report"), ({"ci_run": "https://[x"}, "http")],
)  # fmt: skip
def test_what_is_no_source(source: dict[str, Any], words: str) -> None:
    problems = source_problems(source)
    assert [problem["field"] for problem in problems] == [f"source.{next(iter(source))}"]
    assert words in problems[0]["message"]


@pytest.mark.parametrize(
    "metrics",
    [{"": 1}, {"1st": 1}, {"a__b\n": 1}, {"x" * 65: 1}, {"a": "1"}, {"a": True}, {"a": float("nan")},
     {"a": float("inf")}, {"a": 10**400}, {"a": None}, {f"m{n}": 1 for n in range(MAX_METRICS + 1)}],
)  # fmt: skip
def test_what_are_no_metrics(metrics: dict[str, Any]) -> None:
    assert len(metric_problems(metrics)) == 1


def test_metrics() -> None:
    assert metric_problems({"accuracy": 0.93, "p99 latency/ms": 12, "recall@10": -1.5, "a": 0}) == []
