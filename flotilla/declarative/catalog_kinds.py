"""The kinds of the catalog: models, their cards and their serving configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flotilla.declarative.documents import Document
from flotilla.declarative.kind import Json, Kind, Refused, Write, by_name, with_spec
from flotilla.declarative.schema import Anything, Flag, Items, Shape, Table, Text, Whole
from flotilla.sdk.transport import ApiError, Transport


class ModelKind(Kind):
    """Registered models and their aliases. Never pruned: they hold versions.

    Of ``aliases`` those that are named are set; others stay. Versions come from ``flotilla push``.
    """

    name = "Model"
    shape = Shape(
        {
            "description": Text(),
            "task": Text(),
            "tags": Table(Text()),
            "links": Items(Shape({"label": Text(), "url": Text()}, frozenset({"label", "url"}))),
            "owner": Text(),
            "aliases": Table(
                Shape({"version": Whole(1), "is_protected": Flag()}, frozenset({"version"}), {"is_protected": False})
            ),
        }
    )

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        rows = transport.pages(f"projects/{project}/models/")
        return ((row["slug"], self.spec_of(row, transport)) for row in by_name(rows))

    def address(self, document: Document) -> str:
        return f"projects/{document.project}/models/{document.name}/"

    def spec_of(self, row: Json, transport: Transport) -> Json:
        pages = transport.pages(f"projects/{row['project']}/models/{row['slug']}/aliases/")
        aliases = {
            a["name"]: {"version": a["version"], "is_protected": a["is_protected"]} for a in by_name(pages, "name")
        }
        return super().spec_of(row, transport) | {"aliases": aliases}

    def read(self, transport: Transport, document: Document) -> tuple[Json, str] | None:
        found = super().read(transport, document)
        named = document.spec.get("aliases")
        if found is not None and named is not None:
            # what the document does not name stays, so it is no difference
            found[0]["aliases"] = {name: value for name, value in found[0]["aliases"].items() if name in named}
        return found

    def create(self, write: Write, document: Document) -> Json:
        at_once = ("description", "task", "tags", "links")
        body = {"slug": document.name} | {name: document.spec[name] for name in at_once if name in document.spec}
        made = write.send("POST", f"projects/{document.project}/models/", body)
        rest = {name: document.spec[name] for name in ("owner", "aliases") if name in document.spec}
        if rest.get("owner") == made["owner"]:
            del rest["owner"]
        if rest and not write.dry:
            tag = write.transport.send("GET", self.address(document)).headers["ETag"]
            made = self.update(write, document, rest, tag)
        return made

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        own = {name: value for name, value in fields.items() if name != "aliases"}
        answer = write.send("PATCH", self.address(document), own, seen=seen) if own else {}
        for name, alias in fields.get("aliases", {}).items():
            address = f"{self.address(document)}aliases/{name}/"
            tag = _tag(write.transport, address)
            write.send("PUT", address, dict(alias), seen=tag, is_new=not tag)
        return answer


class ModelCardKind(Kind):
    """The card of a model; the name is the model's. A change is a new revision. Never pruned: cards are not deleted."""

    name = "ModelCard"
    shape = Shape({"text": Text()}, frozenset({"text"}))

    def parents(self, document: Document) -> list[tuple[str, str, str]]:
        return [*super().parents(document), ("Model", document.project, document.name)]

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        for row in by_name(transport.pages(f"projects/{project}/models/")):
            found = self.read(transport, Document(self.name, row["slug"], project, {}))
            if found is not None:
                yield row["slug"], found[0]

    def address(self, document: Document) -> str:
        return f"projects/{document.project}/models/{document.name}/card/"

    def settle(self, transport: Transport, document: Document) -> Document:
        """Return the document as it is: every blank of a card stays."""
        return document

    def create(self, write: Write, document: Document) -> Json:
        return write.send("PUT", self.address(document), self._body(document), is_new=True)

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        return write.send("PUT", self.address(document), self._body(document), seen=seen)

    def _body(self, document: Document) -> Json:
        return {"text": document.spec["text"], "comment": "flotilla apply"}


class ServingConfigKind(Kind):
    """The newest serving config of a model; the name is the model's. A change is a new revision."""

    name = "ServingConfig"
    shape = Shape({"body": Table(Anything())}, frozenset({"body"}))

    def parents(self, document: Document) -> list[tuple[str, str, str]]:
        return [*super().parents(document), ("Model", document.project, document.name)]

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        for row in by_name(transport.pages(f"projects/{project}/models/")):
            found = self.read(transport, Document(self.name, row["slug"], project, {}))
            if found is not None:
                yield row["slug"], found[0]

    def address(self, document: Document) -> str:
        return f"projects/{document.project}/models/{document.name}/configs/0/"

    def spec_of(self, row: Json, transport: Transport) -> Json:
        return {"body": row["body"]}

    def settle(self, transport: Transport, document: Document) -> Document:
        """Let the server complete what the config leaves out, so that equal configs compare equal."""
        path = f"projects/{document.project}/models/{document.name}/configs/validate"
        try:
            report = transport.send("POST", path, json={"body": document.spec["body"], "format": "json"}).json()
        except ApiError as error:
            if error.status != 404:
                raise
            return document
        if not report["ok"]:
            raise Refused("; ".join(f"{problem['field']}: {problem['message']}" for problem in report["errors"]))
        return with_spec(document, {"body": report["body"]})

    def create(self, write: Write, document: Document) -> Json:
        path = f"projects/{document.project}/models/{document.name}/configs/"
        return write.send("POST", path, {"body": document.spec["body"], "format": "json"})

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        path = f"projects/{document.project}/models/{document.name}/configs/"
        return write.send("POST", path, {"body": fields["body"], "format": "json"}, seen=seen)


def _tag(transport: Transport, address: str) -> str:
    """Return the tag of what is at an address, empty when nothing is."""
    try:
        return str(transport.send("GET", address).headers["ETag"])
    except ApiError as error:
        if error.status != 404:
            raise
    return ""
