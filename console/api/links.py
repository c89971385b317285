"""Links of the description (OpenAPI): where what an answer names can be read, changed and deleted.

They follow from the addresses: what is made at ``models/`` has its own below ``models/{model}/``, and the value of
``model`` is a field of the answer. Long work leads to its operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
_PARAMETER = re.compile(r"\{(\w+)\}")
_API = "/api/v1/"
_MODEL = f"{_API}projects/{{project}}/models/{{model}}/"
_VERSION = f"{_MODEL}versions/{{version}}/"
_DEPLOYMENT = f"{_API}projects/{{project}}/deployments/{{deployment}}/"

# The field of an answer that is the parameter of the address; of all others it is ``id``.
_FIELD = {
    "project": "slug",
    "model": "slug",
    "slug": "slug",
    "issuer": "slug",
    "alias": "name",
    "name": "name",
    "username": "username",
    "account": "username",
    "number": "number",
    "sha256": "sha256",
    "kind": "kind",
}
# Method and path -> path of what the answer names though it is not below, and the fields with its parameters.
_ELSEWHERE: dict[str, tuple[str, dict[str, str]]] = {
    f"post {_MODEL}configs/copy": (f"{_MODEL}configs/{{number}}/", {"number": "number"}),
    f"post {_MODEL}configs/{{number}}/revert": (f"{_MODEL}configs/{{number}}/", {"number": "number"}),
    f"post {_VERSION}files/": (f"{_VERSION}submit", {}),
    f"post {_VERSION}submit": (_VERSION, {}),
    f"post {_VERSION}fetch": (_VERSION, {}),
    f"post {_API}webhooks/{{webhook}}/test": (
        f"{_API}webhooks/{{webhook}}/deliveries/{{delivery}}/",
        {"delivery": "id"},
    ),
    f"post {_API}webhooks/{{webhook}}/deliveries/{{delivery}}/replay": (
        f"{_API}webhooks/{{webhook}}/deliveries/{{delivery}}/",
        {"delivery": "id"},
    ),
    f"get {_DEPLOYMENT}rollouts/": (f"{_API}rollouts/{{rollout}}/", {"rollout": "results/0/id"}),
    f"post {_API}nodes/join/": (f"{_API}nodes/{{node}}/", {"node": "node"}),
}
# Names of schemas -> path of what their answers name, and the fields with its parameters.
_OF_SCHEMA: dict[str, tuple[tuple[str, dict[str, str]], ...]] = {
    "Operation": ((f"{_API}operations/{{operation}}/", {"operation": "id"}),),
    "ChangeOutcome": (
        (f"{_API}operations/{{operation}}/", {"operation": "operation"}),
        (f"{_API}approvals/{{approval}}/", {"approval": "approval"}),
        (f"{_API}rollouts/{{rollout}}/", {"rollout": "rollout"}),
        (_DEPLOYMENT, {"deployment": "deployment"}),
    ),
}


def add_links(paths: Json) -> None:
    """Put links into the answers of the operations of an OpenAPI document."""
    for path, item in paths.items():
        for method, operation in item.items():
            for status, answer in operation["responses"].items():
                if not status.startswith("2"):
                    continue
                found = dict(_links(paths, method, path, answer))
                if found:
                    answer["links"] = found


def _links(paths: Json, method: str, path: str, answer: Json) -> Iterator[tuple[str, Json]]:
    schema = str(answer.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", ""))
    name = schema.rpartition("/")[2]
    item = _item_below(paths, path)
    if name.endswith("Page") and item is not None:
        parameter = _PARAMETER.findall(item)[-1]
        # Of a list the first row stands for all, and is only read.
        fields = {parameter: f"results/0/{_FIELD.get(parameter, 'id')}"}
        yield from _to(paths, path, item, fields, {"get"})
    elif method == "post" and item is not None and name:
        parameter = _PARAMETER.findall(item)[-1]
        yield from _with_verbs(paths, path, item, {parameter: _FIELD.get(parameter, "id")})
    elif method == "put":
        yield from _to(paths, path, path, {}, {"get", "delete"})
    for target, fields in _OF_SCHEMA.get(name, ()):
        yield from _with_verbs(paths, path, target, fields)
    if f"{method} {path}" in _ELSEWHERE:
        target, fields = _ELSEWHERE[f"{method} {path}"]
        yield from _to(paths, path, target, fields, {"get", "post"})


def _item_below(paths: Json, path: str) -> str | None:
    """Return the address of one row of a list: the same with one parameter more."""
    rows = (one for one in paths if re.fullmatch(re.escape(path) + r"\{\w+\}/?", one))
    return next(rows, None) if path.endswith("/") else None


def _with_verbs(paths: Json, source: str, target: str, fields: dict[str, str]) -> Iterator[tuple[str, Json]]:
    """Yield links to an address, and to those below it that need no more parameters."""
    for path in paths:
        if path.startswith(target) and "{" not in path[len(target) :]:
            yield from _to(paths, source, path, fields, {"get", "head", "post", "put", "patch", "delete"})


def _to(paths: Json, source: str, target: str, fields: dict[str, str], methods: set[str]) -> Iterator[tuple[str, Json]]:
    """Yield links to the operations of an address. ``fields``: parameter -> pointer into the answer, without a slash.

    What the answer does not say, the address did that was asked.
    """
    asked = set(_PARAMETER.findall(source))
    parameters = {}
    for name in _PARAMETER.findall(target):
        if name not in fields and name not in asked:
            return
        parameters[name] = f"$response.body#/{fields[name]}" if name in fields else f"$request.path.{name}"
    for method, operation in paths[target].items():
        if method in methods:
            yield operation["operationId"], {"operationId": operation["operationId"], "parameters": parameters}
