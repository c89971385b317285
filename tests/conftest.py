"""What holds for every test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from serving_node.observability.host import GpuProbe

# Times depend on the machine, never on the code under test. CI draws the same examples each time, so that a landing
# does not fail for a reason that was there before; people and `make test-all` draw new ones.
settings.register_profile("people", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("people"), derandomize=True)
# `make fuzz` draws as many examples as it is told to, for tests that take whatever a stranger sends.
settings.register_profile(
    "fuzz", settings.get_profile("people"), max_examples=int(os.environ.get("FUZZ_EXAMPLES", "20000"))
)
settings.load_profile("fuzz" if "FUZZ_EXAMPLES" in os.environ else "ci" if os.environ.get("CI") else "people")

# Pushes of tests are noted nowhere but in the test that asks for it.
os.environ.setdefault("FLOTILLA_CACHE_DIR", "/dev/null")

# OpenVINO reports each import to its maker unless this package is missing; the node sees to that for itself.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

_probe = GpuProbe()


@pytest.fixture(scope="session", autouse=True)
def _history_is_emptied() -> Iterator[None]:
    """Let the flush after a test with real commits empty the history, too: its triggers refuse TRUNCATE otherwise."""
    if find_spec("django") is None:
        yield
        return
    from django.test import TransactionTestCase

    from tests.history import emptying

    flush = TransactionTestCase._fixture_teardown

    def flush_all(case: Any) -> None:
        with emptying():
            flush(case)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", flush_all)
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of a GPU where there is none; which libraries they need, they say themselves."""
    if item.get_closest_marker("gpu") and not _probe.count():
        pytest.skip("there is no NVIDIA GPU, or no driver for it")
