"""The recorded answers: one JSON file per group of cases, one line per answer, so that a change can be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.differential.steps import Answer

FOLDER = Path(__file__).parent / "recorded"
# case -> {"triton": its answers, "node": ours where a row of differences.md says that they differ}
Recorded = dict[str, dict[str, list[Answer]]]


def read(group: str) -> Recorded:
    """Return a group's answers by case; empty when nothing is recorded."""
    path = FOLDER / f"{group}.json"
    return json.loads(path.read_text()) if path.exists() else {}  # type: ignore[no-any-return]


def write(group: str, recorded: Recorded) -> None:
    """Write a group's answers, ordered by case."""
    cases = [_case(id, recorded[id]) for id in sorted(recorded)]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{group}.json").write_text("{\n" + ",\n".join(cases) + "\n}\n")


def _case(id: str, sides: dict[str, list[Answer]]) -> str:
    lines = []
    for side, answers in sides.items():
        rows = ",\n".join(f"   {_line(answer)}" for answer in answers)
        lines.append(f"  {json.dumps(side)}: [\n{rows}\n  ]")
    return f" {json.dumps(id)}: {{\n" + ",\n".join(lines) + "\n }"


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
