"""Tasks, links and cards: what is taken."""

from __future__ import annotations

from typing import Any

import pytest

from registry.domain.cards import MAX_CARD_BYTES, card_problem
from registry.domain.model_facts import MAX_LINKS, TASKS, link_problems, task_problem


@pytest.mark.parametrize("task", ["", "own-task", "x", *TASKS])
def test_tasks(task: str) -> None:
    assert task_problem(task) == ""


@pytest.mark.parametrize("task", ["Text", "a b", "-x", "x" * 65, "x\n"])
def test_what_is_no_task(task: str) -> None:
    assert task_problem(task)


@pytest.mark.parametrize(
    "link",
    ["https://a.b", {}, {"label": "x", "url": "http://a.b"}, {"label": "x", "url": "javascript:alert(1)"},
     {"label": "x", "url": "https://u:p@a.b"}, {"label": "", "url": "https://a.b"}, {"label": "x", "url": "https://"},
     {"label": "x", "url": "https://a b"}, {"label": "x", "url": 3}, {"label": "x", "url": "https://[::1"},
     {"label": "x\n", "url": "https://a.b"}, {"label": "x", "url": "https://a.b/" + "x" * 2000},
     {"label": "x", "url": "https://a.b", "more": 1}],
)  # fmt: skip
def test_what_is_no_link(link: Any) -> None:
    assert [problem["field"] for problem in link_problems([link])] == ["links[0]"]


def test_links() -> None:
    link = {"label": "Paper, 2nd edition", "url": "https://example.org/a?b=c#d"}
    assert link_problems([link] * MAX_LINKS) == []
    assert link_problems([link] * (MAX_LINKS + 1))[0]["field"] == "links"


@pytest.mark.parametrize("text", ["", " \n", "a\0", "\ud800", "é" * (MAX_CARD_BYTES // 2 + 1)])
def test_what_is_no_card(text: str) -> None:
    assert card_problem(text)


def test_a_card_may_be_as_long_as_the_limit() -> None:
    assert card_problem("é" * (MAX_CARD_BYTES // 2)) == ""
