"""A plugin that lets tests of the node run on its compiled modules: ``pytest -p tests.compiled``."""

from __future__ import annotations

import pytest

from serving_node.compiled import use

# What these tests put in the place of compiled classes derives from them, or changes them, which compiled ones refuse.
NOT_COMPILED: tuple[str, ...] = ()


def pytest_configure() -> None:
    """Say so when there is nothing to test."""
    if not _is_used:
        raise pytest.UsageError("there is no compiled set for this source: run make compile first")


_is_used = use()
