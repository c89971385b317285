"""The life of models on a real node, against what a real Triton answered to the same steps.

``recorded_lifecycle.json`` is written by ``compare_lifecycle --save``; that script shows both sides of a difference.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from .compare_lifecycle import SCENARIOS, Scenario, node_command, play

RECORDED: dict[str, list[Any]] = json.loads(
    Path(__file__).with_name("recorded_lifecycle.json").read_text(encoding="utf-8")
)
# Each is in docs/reference/differences.md. By scenario, how the steps begin that differ.
DIFFERENCES = {
    "explicit": ("ready as text",),
    "strange names": (
        "load %20",
        "load a%2Fb",
        "load %2E%2E%2Fa",
        "load a%20",
        "load %20a",
        "load a%5Cb",
        "bad JSON",
        "parameters no object",
        "parameter no text",
        "load a unknown parameter",
        "unload a dependents no bool",
    ),
    "atomic": ("server ready", "exit status"),
    "override": ("load m no base64", "load m file fails", "infer m", "exit status"),
    "namespaces": ("counts same",),
}
QUICK = ("explicit", "failing")


@pytest.mark.integration
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(one, id=one.name, marks=() if one.name in QUICK else pytest.mark.slow) for one in SCENARIOS],
)
def test_life_of_models_is_as_recorded(scenario: Scenario) -> None:
    theirs = RECORDED[scenario.name]
    ours = json.loads(json.dumps(play(scenario, node_command(), _three_ports())))
    assert [label for label, _ in ours] == [label for label, _ in theirs]
    allowed = DIFFERENCES.get(scenario.name, ())
    for (label, answer), (_, expected) in zip(ours, theirs, strict=True):
        assert answer == expected or label.startswith(allowed), label


def _three_ports() -> int:
    """Return the first of three ports in a row that nobody listens on. Test processes that run together begin apart."""
    for step in range(500):
        port = 21500 + (os.getpid() * 37 + step) % 500 * 3
        probes = [socket.socket() for _ in range(3)]
        try:
            for offset, probe in enumerate(probes):
                probe.bind(("127.0.0.1", port + offset))
        except OSError:
            continue
        else:
            return port
        finally:
            for probe in probes:
                probe.close()
    raise AssertionError("no free ports")
