"""An example of each operation in the description: what was sent and answered when the tests recorded it.

``examples.json`` is written by tests/console/api/test_examples.py, which also holds it against the description.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, cast

FILE = Path(__file__).with_name("examples.json")


@cache
def examples() -> dict[str, Any]:
    """Return ``{"parameters": {name: value}, "operations": {"post /api/v1/...": {"request", "response"}}}``."""
    if not FILE.is_file():
        return {"parameters": {}, "operations": {}}
    return cast(dict[str, Any], json.loads(FILE.read_text()))


def add_examples(paths: dict[str, Any]) -> None:
    """Put the examples into the operations of an OpenAPI document, and values into their addresses."""
    known = examples()
    for path, item in paths.items():
        for method, operation in item.items():
            for parameter in operation.get("parameters", []):
                if parameter.get("in") == "path" and parameter["name"] in known["parameters"]:
                    parameter["example"] = known["parameters"][parameter["name"]]
            example = known["operations"].get(f"{method} {path}", {})
            if "request" in example:
                operation["requestBody"]["content"]["application/json"]["example"] = example["request"]
            content = success_of(operation).get("content", {}).get("application/json")
            if content is not None and "response" in example:
                content["example"] = example["response"]


def success_of(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the first answer of an operation that is no refusal; of two alike the second: something was done."""
    answers = [answer for status, answer in sorted(operation["responses"].items()) if status.startswith("2")]
    alike = [answer for answer in answers if answer.get("content") == answers[0].get("content")]
    return cast(dict[str, Any], alike[-1]) if alike else {}
