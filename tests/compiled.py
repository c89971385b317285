"""A plugin that lets tests of the node run on its compiled modules: ``pytest -p tests.compiled``."""

from __future__ import annotations

import pytest

from serving_node.compiled import use

# They put doubles in the place of compiled classes or clocks in that of the module ``time``: of compiled code neither
# is seen.
_INTERPRETED_ONLY = (
    "scheduling/test_loop_instances.py::test_deadlines_of_callers_fire_while_the_only_instance_is_busy",
    "scheduling/test_scheduler_machine.py",
    "scheduling/test_scheduler_played.py",
    "scheduling/test_turns.py::test_an_instance_that_died_while_it_waits_holds_nobody_up",
)

_is_used = use()


def pytest_configure() -> None:
    """Say so when there is nothing to test."""
    if not _is_used:
        raise pytest.UsageError("there is no compiled set for this source: run make compile first")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot see into compiled code."""
    for item in items:
        if any(part in item.nodeid for part in _INTERPRETED_ONLY):
            item.add_marker(pytest.mark.skip(reason="its doubles are not seen by compiled code"))
