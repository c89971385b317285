"""What would change: documents as they shall be against what there is. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from flotilla.declarative.documents import Document

Action = Literal["create", "update", "delete", "wait", "same"]
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing: what is to be done, and each field before and after. ``note`` is a sentence for people.

    ``wait``: it was asked for already and waits for approval.
    """

    action: Action
    document: Document
    before: Mapping[str, Any] | None
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        fields = {name: {"before": before, "after": after} for name, (before, after) in self.fields.items()}
        document = self.document
        head = {"action": self.action, "kind": document.kind, "name": document.name, "project": document.project}
        return {**head, "fields": fields, "note": self.note}


def compare(document: Document, before: Mapping[str, Any] | None, unseen: Collection[str] = ()) -> Change:
    """Return the change that makes ``before`` (None: not there) the document; fields that it leaves out stay.

    ``unseen``: fields that nobody can read back, such as secrets; they matter only where a thing is made.
    """
    if before is None:
        return Change("create", document, None, {name: (None, value) for name, value in document.spec.items()})
    fields = {
        name: (before.get(name), value)
        for name, value in document.spec.items()
        if name not in unseen and before.get(name) != value
    }
    return Change("update" if fields else "same", document, before, fields)


def follow_configs(changes: Iterable[Change]) -> list[Change]:
    """Return the changes with those deployments updated that serve the latest config, which is about to change."""
    rows = list(changes)
    moved = {
        (change.document.project, change.document.name)
        for change in rows
        if change.document.kind == "ServingConfig" and change.action in ("create", "update")
    }

    def followed(change: Change) -> Change:
        document = change.document
        model = document.name.partition("@")[0]
        routes = document.spec.get("routes", []) if document.kind == "Deployment" else []
        if change.action != "same" or (document.project, model) not in moved:
            return change
        if not any(route["config"] == "latest" for route in routes):
            return change
        return replace(change, action="update", note="serves the new config")

    return [followed(change) for change in rows]


def to_prune(owned: Iterable[Key], documents: Iterable[Document], prunable: Collection[str]) -> list[Key]:
    """Return what an apply set owned and no document names any more, of the kinds that may be deleted."""
    wanted = {document.key for document in documents}
    return [key for key in owned if key not in wanted and key[0] in prunable]


def describe(change: Change) -> list[str]:
    """Return lines for people: one for the thing, one for each field."""
    marks = {"create": "+", "update": "~", "delete": "-", "wait": "?", "same": " "}
    note = f"  ({change.note})" if change.note else ""
    lines = [f"{marks[change.action]} {change.document}{note}"]
    if change.action == "update":
        for name, (before, after) in change.fields.items():
            lines += _field(name, before, after)
    elif change.action == "create":
        lines += [f"    {name}: {_short(after)}" for name, (_none, after) in change.fields.items()]
    return lines


def _field(name: str, before: Any, after: Any) -> list[str]:
    """Return a line for each difference; tables and lists of tables are walked."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        return [line for key in keys for line in _field(f"{name}.{key}", before.get(key), after.get(key))]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after) and before != after:
        pairs = enumerate(zip(before, after, strict=True))
        return [line for index, (a, b) in pairs if a != b for line in _field(f"{name}[{index}]", a, b)]
    return [f"    {name}: {_short(before)} -> {_short(after)}"]


def _short(value: Any) -> str:
    text = "nothing" if value is None else value if isinstance(value, str) and value else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 100 else f"{text[:97]}..."
