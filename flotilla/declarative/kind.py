"""What every kind of document does: be read, made, changed and deleted over the REST API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flotilla.declarative.documents import Document
from flotilla.declarative.schema import Shape
from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]
Spec = Mapping[str, Any]
DRY_RUN = {"Flotilla-Dry-Run": "true"}


class Refused(Exception):
    """A document cannot be made so; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Write:
    """How to write: ``dry``: only try; ``secrets`` are the values that documents name (by variable)."""

    transport: Transport
    secrets: Mapping[str, str]
    dry: bool = False

    def send(self, method: str, path: str, body: Any = None, *, seen: str = "", is_new: bool = False) -> Json:
        """Send a change, of what has the tag ``seen`` when there is one, and return the answer.

        ``is_new``: only if nothing is there.
        """
        headers = {**(DRY_RUN if self.dry else {}), **({"If-Match": seen} if seen else {})}
        headers |= {"If-None-Match": "*"} if is_new else {}
        answer = self.transport.send(method, path, json=body, headers=headers)
        return dict(answer.json()) if answer.content else {}


class Kind:
    """One kind. ``unseen``: fields that cannot be read back. ``prunable``: may be deleted. Kinds come in order of need.

    ``spec_of`` turns an answer of the API into a spec; names of documents are slugs.
    """

    name: str
    shape: Shape
    is_site = False
    prunable = False
    unseen: frozenset[str] = frozenset()

    def parents(self, document: Document) -> list[tuple[str, str, str]]:
        """Return the keys of what must be there first."""
        return [("Project", "", document.project)] if document.project else []

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        """Yield name and spec of everything of this kind (of a project), by name."""
        raise NotImplementedError

    def read(self, transport: Transport, document: Document) -> tuple[Json, str] | None:
        """Return spec and tag of one thing, None when it is not there."""
        try:
            answer = transport.send("GET", self.address(document))
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return self.spec_of(dict(answer.json()), transport), answer.headers.get("ETag", "")

    def settle(self, transport: Transport, document: Document) -> Document:
        """Return the document in the words in which ``read`` answers: the server takes blanks off the ends of texts."""
        return with_spec(document, stripped(document.spec))

    def address(self, document: Document) -> str:
        """Return where one thing is."""
        raise NotImplementedError

    def spec_of(self, row: Json, transport: Transport) -> Json:
        """Return the spec of an answer."""
        return {name: row[name] for name in self.shape.fields if name in row}

    def create(self, write: Write, document: Document) -> Json:
        """Make it."""
        raise NotImplementedError

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        """Change fields of what has the tag ``seen``."""
        return write.send("PATCH", self.address(document), dict(fields), seen=seen)

    def delete(self, write: Write, document: Document, seen: str) -> Json:
        """Delete what has the tag ``seen``."""
        return write.send("DELETE", self.address(document), seen=seen)


def stripped(value: Any) -> Any:
    """Return the value with no blanks at the ends of its texts."""
    if isinstance(value, Mapping):
        return {name: stripped(one) for name, one in value.items()}
    if isinstance(value, list):
        return [stripped(one) for one in value]
    return value.strip() if isinstance(value, str) else value


def by_name(rows: Any, by: str = "slug") -> list[Json]:
    """Return rows in the order of a column."""
    return sorted(rows, key=lambda row: str(row[by]))


def with_spec(document: Document, spec: Spec) -> Document:
    """Return the document with another spec."""
    return Document(document.kind, document.name, document.project, spec, document.place)
