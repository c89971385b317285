"""Limits for the size of versions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.sizes import DEFAULTS, Limit, excesses, limit_problems, limits_json, measured, read_limits

SITE = {"file_bytes": 1000, "files": 10}
THRESHOLD = st.none() | st.integers(1, 2000)


def test_what_a_project_does_not_set_is_as_usual() -> None:
    limits = read_limits({}, {})
    assert limits == DEFAULTS
    assert read_limits(limits_json(limits), {}) == DEFAULTS


def test_the_site_has_the_last_word() -> None:
    limits = read_limits({"file_bytes": {"warn": 1500, "fail": 5000}, "files": {"fail": None, "warn": 3}}, SITE)
    assert limits["file_bytes"] == Limit(None, 1000)  # a warning above the refusal would never be given
    assert limits["files"] == Limit(3, 10)


@given(st.dictionaries(st.sampled_from([*DEFAULTS]), st.fixed_dictionaries({"warn": THRESHOLD, "fail": THRESHOLD})),
       st.lists(st.integers(0, 3000), min_size=1, max_size=12))  # fmt: skip
def test_no_version_above_a_refusal_passes(document: dict[str, Any], sizes: list[int]) -> None:
    limits = read_limits(document, SITE)
    found = measured(sizes)
    above = excesses(found, limits)
    refused = {one.measure for one in above if one.is_refused}
    assert refused == {name for name, limit in limits.items() if limit.fail is not None and found[name] > limit.fail}
    assert [one.is_refused for one in above] == sorted((one.is_refused for one in above), reverse=True)
    assert all(one.found > one.limit for one in above)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"weight": {"fail": 1}}, "size_limits.weight"),
        ({"files": 3}, "size_limits.files"),
        ({"files": {"most": 3}}, "size_limits.files"),
        ({"files": {"fail": 0}}, "size_limits.files.fail"),
        ({"files": {"fail": True}}, "size_limits.files.fail"),
        ({"files": {"warn": "3"}}, "size_limits.files.warn"),
        ({"files": {"warn": 2**53 + 1}}, "size_limits.files.warn"),
        ({"files": {"warn": 4, "fail": 3}}, "size_limits.files.warn"),
    ],
)
def test_what_is_no_limit(document: dict[str, Any], field: str) -> None:
    assert [problem["field"] for problem in limit_problems(document)] == [field]
    assert not limit_problems({"files": {"warn": 3, "fail": None}, "total_bytes": {}})
