"""What differs between two texts: both can be read from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain import text_diff as module
from registry.domain.text_diff import text_diff

LINES = st.lists(st.sampled_from(["a", "b", "", "+ x", "@@ y", "--- z"]), max_size=12)


@given(LINES, LINES)
def test_removed_and_added_lines_are_exactly_the_changes(before: list[str], after: list[str]) -> None:
    found = text_diff("\n".join(before), "\n".join(after))
    old, new = "\n".join(before).splitlines(), "\n".join(after).splitlines()
    assert (found == []) == (old == new)
    if not any(line.kind == "gap" for line in found) and len(old) <= 3 and found:
        assert [line.text for line in found if line.kind != "added"] == old
        assert [line.text for line in found if line.kind != "removed"] == new


def test_unchanged_lines_far_away_are_left_out() -> None:
    before = [str(number) for number in range(40)]
    after = ["first", *before[1:20], "middle", *before[21:]]
    found = text_diff("\n".join(before), "\n".join(after))
    assert [(line.kind, line.text) for line in found if line.kind in ("added", "removed")] == [
        ("removed", "0"), ("added", "first"), ("removed", "20"), ("added", "middle"),
    ]  # fmt: skip
    assert sum(line.kind == "gap" for line in found) == 1 and len(found) < 20


def test_long_texts_are_compared_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 1)
    assert [line.kind for line in text_diff("a\nb", "a\nc")] == ["removed", "removed", "added", "added"]
