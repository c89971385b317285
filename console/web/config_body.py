"""Between the config form and a ModelConfig document: pure, and losing nothing that the form does not show.

The form shows some fields by themselves and the rest of the document as JSON under Advanced. Saving starts from
the parent's body, so that what lies inside a shown message but has no input of its own stays as it was.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

SHOWN = ("max_batch_size", "dynamic_batching", "instance_group", "response_cache")
BATCHING_FIELDS = ("preferred_batch_size", "max_queue_delay_microseconds", "preserve_ordering")
QUEUE_FIELDS = ("max_queue_size", "default_timeout_microseconds", "timeout_action", "allow_timeout_override")


def initial_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form's values for a document."""
    batching = body.get("dynamic_batching")
    on = isinstance(batching, Mapping)
    batching = batching if isinstance(batching, Mapping) else {}
    queue = batching.get("default_queue_policy") or {}
    return {
        "max_batch_size": body.get("max_batch_size", 0),
        "dynamic_batching": on,
        "preferred_batch_size": ", ".join(str(size) for size in batching.get("preferred_batch_size", [])),
        "max_queue_delay_microseconds": batching.get("max_queue_delay_microseconds", 0),
        "preserve_ordering": bool(batching.get("preserve_ordering", False)),
        "max_queue_size": queue.get("max_queue_size", 0),
        "default_timeout_microseconds": queue.get("default_timeout_microseconds", 0),
        "timeout_action": queue.get("timeout_action", "REJECT"),
        "allow_timeout_override": bool(queue.get("allow_timeout_override", False)),
        "response_cache": bool((body.get("response_cache") or {}).get("enable", False)),
        "advanced": json.dumps({key: value for key, value in body.items() if key not in SHOWN}, indent=2),
    }


def groups_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the instance groups as form rows, with GPUs as text."""
    return [
        {
            "count": group.get("count", 1),
            "kind": group.get("kind", "KIND_AUTO"),
            "gpus": ", ".join(str(gpu) for gpu in group.get("gpus", [])),
        }
        for group in body.get("instance_group", [])
    ]


def body_of(parent: Mapping[str, Any], values: Mapping[str, Any], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the document that a filled-in form means, on top of the parent's."""
    body: dict[str, Any] = {key: copy.deepcopy(parent[key]) for key in SHOWN if key in parent}
    body = {**values["advanced"], **body, "max_batch_size": values["max_batch_size"]}
    if values["dynamic_batching"]:
        body["dynamic_batching"] = _batching(body.get("dynamic_batching") or {}, values)
    else:
        body.pop("dynamic_batching", None)
    body["instance_group"] = _groups(parent.get("instance_group", []), groups)
    if values["response_cache"]:
        body["response_cache"] = {**(body.get("response_cache") or {}), "enable": True}
    else:
        body.pop("response_cache", None)
    return body


def _batching(before: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    batching = {
        **before,
        "preferred_batch_size": values["preferred_batch_size"],
        "max_queue_delay_microseconds": values["max_queue_delay_microseconds"],
        "preserve_ordering": values["preserve_ordering"],
    }
    queue = {name: values[name] for name in QUEUE_FIELDS}
    is_default = queue == {
        "max_queue_size": 0,
        "default_timeout_microseconds": 0,
        "timeout_action": "REJECT",
        "allow_timeout_override": False,
    }
    if is_default:
        batching.pop("default_queue_policy", None)
    else:
        batching["default_queue_policy"] = queue
    return batching


def _groups(before: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups: rows keep, by position, what the form does not show of the group that stood there."""
    groups = []
    for index, row in enumerate(rows):
        base = dict(before[index]) if index < len(before) else {}
        groups.append({**base, "count": row["count"], "kind": row["kind"], "gpus": row["gpus"]})
    return groups


def field_of(path: str) -> str:
    """Return the form field at which an error of a contract path is shown; "" for the head of the form."""
    head, _, rest = path.partition(".")
    head = head.partition("[")[0]
    if head == "instance_group":
        return "instance_group"
    if head == "dynamic_batching":
        tail = rest.rpartition(".")[2] or rest
        name = tail.partition("[")[0]
        return name if name in {*BATCHING_FIELDS, *QUEUE_FIELDS} else "dynamic_batching"
    if head in {"max_batch_size", "response_cache"}:
        return head
    return "advanced" if head else ""
