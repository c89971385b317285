"""Documents read from a console, compared with it, and made so: try everything first, then one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flotilla.declarative.documents import Document
from flotilla.declarative.kind import Refused, Write
from flotilla.declarative.kinds import KINDS, SITE, DeploymentKind
from flotilla.declarative.plan import Change, Key, compare, follow_configs, to_prune
from flotilla.sdk.transport import ApiError, Transport

_ORDER = {name: index for index, name in enumerate(KINDS)}


@dataclass(slots=True)
class Result:
    """What was done until the end or the first refusal. ``pending`` are operations and approvals that go on."""

    done: list[Change] = field(default_factory=list)
    pending: list[dict[str, Any]] = field(default_factory=list)
    failed: Change | None = None
    error: str = ""
    is_conflict: bool = False


def export(transport: Transport, projects: Sequence[str], *, site: bool = True) -> list[Document]:
    """Return everything of the projects, and of the site, as documents in a stable order; no secrets."""
    documents: list[Document] = []
    for name, kind in KINDS.items():
        if kind.is_site and name != "Project":
            rows = kind.all(transport, "") if site else iter(())
            documents += [Document(name, one, "", spec) for one, spec in rows]
            continue
        for project in projects:
            owner = "" if kind.is_site else project
            documents += [Document(name, one, owner, spec) for one, spec in kind.all(transport, project)]
    return documents


def plan(transport: Transport, documents: Iterable[Document]) -> list[Change]:
    """Return what would change, in the order in which it must happen.

    Raises:
        Refused: a document makes no sense to the console; the message names its place.
        ApiError: the console refuses to tell.
    """
    changes = []
    for document in sorted(documents, key=lambda one: _ORDER[one.kind]):
        kind = KINDS[document.kind]
        try:
            found = kind.read(transport, document)
            settled = kind.settle(transport, document) if found is not None else document
        except Refused as error:
            raise Refused(f"{document.place}: {document}: {error}") from None
        change = compare(settled, found[0] if found else None, kind.unseen)
        changes.append(_waiting(transport, change))
    return follow_configs(changes)


def prune_plan(transport: Transport, owned: Iterable[Key], documents: Iterable[Document]) -> list[Change]:
    """Return deletions of what a set owned and no document names, last things first."""
    prunable = {name for name, kind in KINDS.items() if kind.prunable}
    changes = []
    for kind, project, name in to_prune(owned, documents, prunable):
        document = Document(kind, name, project, {})
        found = KINDS[kind].read(transport, document)
        if found is not None:
            changes.append(Change("delete", document, found[0]))
    return sorted(changes, key=lambda change: -_ORDER[change.document.kind])


def dry_run(transport: Transport, changes: Sequence[Change], secrets: Mapping[str, str]) -> list[tuple[Change, str]]:
    """Let the server try each change and forget it again; return those that it refuses, with the reason.

    What needs something that this very plan makes cannot be tried; it is judged when it is made.
    """
    made = {change.document.key for change in changes if change.action == "create"}
    write = Write(transport, secrets, dry=True)
    refused = []
    for change in changes:
        kind = KINDS[change.document.kind]
        if change.action in ("same", "wait"):
            continue
        if change.action != "delete" and made & set(kind.parents(change.document)):
            continue
        try:
            _do(write, change)
        except (ApiError, Refused) as error:
            refused.append((change, str(error)))
    return refused


def apply(
    transport: Transport,
    changes: Sequence[Change],
    secrets: Mapping[str, str],
    tell: Callable[[Change], None] = lambda _change: None,
) -> Result:
    """Make the changes, one after the other; end at the first refusal. What changed since the plan is a conflict."""
    result = Result()
    write = Write(transport, secrets)
    for change in changes:
        if change.action in ("same", "wait"):
            continue
        try:
            answer = _do(write, change)
        except (ApiError, Refused) as error:
            result.failed, result.error = change, str(error)
            result.is_conflict = isinstance(error, ApiError) and error.status in (409, 412)
            break
        result.done.append(change)
        if answer.get("operation") or answer.get("approval"):
            result.pending.append({"document": str(change.document), **answer})
        tell(change)
    return result


def _do(write: Write, change: Change) -> dict[str, Any]:
    """Make one change, if what is there is still what the plan saw."""
    kind, document = KINDS[change.document.kind], change.document
    if change.action == "create":
        return kind.create(write, document)
    found = kind.read(write.transport, document)
    if found is None or not _still(found[0], change):
        raise ApiError(412, "stale_write", f"{document} was changed since the plan was made; apply again.")
    if change.action == "delete":
        return kind.delete(write, document, found[1])
    fields = {name: after for name, (_before, after) in change.fields.items()}
    return kind.update(write, document, fields, found[1])


def _still(now: Mapping[str, Any], change: Change) -> bool:
    before = change.before or {}
    if change.document.kind == "Deployment":
        # its configs are named by what is newest, which this plan may have changed on the way
        return [r["version"] for r in now["routes"]] == [r["version"] for r in before["routes"]] and [
            r["weight"] for r in now["routes"]
        ] == [r["weight"] for r in before["routes"]]
    return all(now.get(name) == before.get(name) for name in change.fields or before)


def _waiting(transport: Transport, change: Change) -> Change:
    """Return the change as waiting when an open request asks for just that."""
    document = change.document
    kind = KINDS[document.kind]
    if not isinstance(kind, DeploymentKind) or change.action == "same":
        return change
    model, fleet = kind.split(document)
    for row in transport.pages("approvals/", {"state": "open", "project__slug": document.project}):
        if (row["model"], row["fleet"]) != (model, fleet):
            continue
        asked = kind.spec_of(row, transport)
        wanted = {**document.spec, "routes": kind.settle(transport, document).spec["routes"]}
        if all(asked.get(name) == value for name, value in wanted.items()):
            return replace(change, action="wait", note=f"waits for approval {row['id']}")
    return change


def keys_of(documents: Iterable[Document], project: str) -> list[dict[str, str]]:
    """Return what an apply set of a project (empty: of the site) owns, as it is kept."""
    return [
        {"kind": document.kind, "name": document.name}
        for document in documents
        if document.project == project and (bool(project) or document.kind in SITE)
    ]
