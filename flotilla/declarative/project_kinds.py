"""The kinds about a project itself: its policies and quotas, its members, whom it trusts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from flotilla.declarative.documents import Document
from flotilla.declarative.kind import Json, Kind, Refused, Write, by_name, stripped, with_spec
from flotilla.declarative.schema import Flag, Items, Maybe, Shape, Text, Whole
from flotilla.sdk.transport import Transport

# A measure is replaced as a whole: a threshold that is left out is the usual one, null is none.
_LIMIT = Shape({"warn": Maybe(Whole(1)), "fail": Maybe(Whole(1))})
_TREATMENT = Text(("accept", "review", "refuse"))
_POLICIES = ("code_formats", "pickles_known_only", "signing_policy", "size_limits", "licence_policy")


class ProjectKind(Kind):
    """Projects with their policies and quotas. Never pruned: they hold everything else.

    What ``size_limits``, ``licence_policy`` and ``quotas`` do not name stays.
    """

    name, is_site = "Project", True
    shape = Shape(
        {
            "title": Text(),
            "description": Text(),
            "code_formats": Text(("allow", "approve", "forbid")),
            "pickles_known_only": Flag(),
            "signing_policy": Text(("off", "optional", "required")),
            "size_limits": Shape(dict.fromkeys(("total_bytes", "file_bytes", "files"), _LIMIT)),
            "licence_policy": Shape(
                {"allowed": Items(Text()), "forbidden": Items(Text()), "unlisted": _TREATMENT, "missing": _TREATMENT}
            ),
            "quotas": Shape({"bytes": Whole(), "versions": Whole(), "nodes": Whole()}),
        }
    )

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        rows = transport.pages("projects/")
        return ((row["slug"], self.spec_of(row, transport)) for row in by_name(rows) if row["slug"] == project)

    def address(self, document: Document) -> str:
        return f"projects/{document.name}/"

    def spec_of(self, row: Json, transport: Transport) -> Json:
        address = f"projects/{row['slug']}/"
        policies, _tag = _read(transport, f"{address}policies/")
        # Those in force are never above the site's, whatever the project asks for.
        policies["size_limits"] = policies["own_size_limits"]
        found = {"title": row["name"], "description": row["description"]} | {name: policies[name] for name in _POLICIES}
        return found | {"quotas": _limits(_read(transport, f"{address}quotas/")[0])}

    def settle(self, transport: Transport, document: Document) -> Document:
        """Return the document with what its tables leave out as it is now."""
        spec = stripped(document.spec)
        if tables := {name for name, value in spec.items() if isinstance(value, dict)}:
            found = self.read(transport, document)
            spec |= {name: {**(found[0][name] if found else {}), **spec[name]} for name in tables}
        if "size_limits" in spec:
            spec["size_limits"] = {name: limit for name, limit in spec["size_limits"].items() if limit}
        return with_spec(document, spec)

    def create(self, write: Write, document: Document) -> Json:
        spec = document.spec
        body = {
            "slug": document.name,
            "name": spec.get("title") or document.name,
            "description": spec.get("description", ""),
        }
        made = write.send("POST", "projects/", body)
        if not write.dry:
            self._set(write, document, spec)
        return made

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        body = {
            ("name" if name == "title" else name): fields[name] for name in ("title", "description") if name in fields
        }
        made = write.send("PATCH", self.address(document), body, seen=seen) if body else {}
        self._set(write, document, fields)
        return made

    def _set(self, write: Write, document: Document, fields: Mapping[str, Any]) -> None:
        """Set policies and quotas where they are others; they have addresses and tags of their own."""
        policies = {name: fields[name] for name in _POLICIES if name in fields}
        if policies:
            address = f"{self.address(document)}policies/"
            now, tag = _read(write.transport, address)
            _send_changed(write, address, now | {"size_limits": now["own_size_limits"]}, policies, tag)
        if "quotas" in fields:
            address = f"{self.address(document)}quotas/"
            now, tag = _read(write.transport, address)
            _send_changed(write, address, _limits(now), fields["quotas"], tag)


def _read(transport: Transport, address: str) -> tuple[Json, str]:
    answer = transport.send("GET", address)
    return dict(answer.json()), answer.headers["ETag"]


def _limits(quotas: Json) -> Json:
    return {name: quota["limit"] for name, quota in quotas.items()}


def _send_changed(write: Write, address: str, now: Json, wanted: Mapping[str, Any], tag: str) -> None:
    changed = {name: value for name, value in wanted.items() if value != now[name]}
    if changed:
        write.send("PATCH", address, changed, seen=tag)


class MembershipKind(Kind):
    """Roles of accounts in a project; the name is the account's."""

    name, prunable = "Membership", True
    shape = Shape({"role": Text(("viewer", "publisher", "approver", "operator", "admin"))}, frozenset({"role"}))

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        rows = transport.pages(f"projects/{project}/members/")
        return ((row["username"], {"role": row["role"]}) for row in by_name(rows, "username"))

    def address(self, document: Document) -> str:
        return f"projects/{document.project}/members/{quote(document.name, safe='')}/"

    def create(self, write: Write, document: Document) -> Json:
        body = {"username": document.name, "role": document.spec["role"]}
        return write.send("POST", f"projects/{document.project}/members/", body)

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        return self.create(write, document)


class TrustedKind(Kind):
    """Base of what a project trusts: rows below one address, with a name for people and an id for addresses."""

    prunable = True
    # Below the project, and what one of them is called in sentences.
    place: str
    noun: str
    fixed: frozenset[str]
    """Fields that stay as they were made."""

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        rows = transport.pages(f"projects/{project}/{self.place}/")
        return ((row["name"], self.spec_of(row, transport)) for row in by_name(rows, "name"))

    def spec_of(self, row: Json, transport: Transport) -> Json:
        return dict(stripped(super().spec_of(row, transport)))

    def read(self, transport: Transport, document: Document) -> tuple[Json, str] | None:
        address = self._found(transport, document)
        if address is None:
            return None
        row, tag = _read(transport, address)
        return self.spec_of(row, transport), tag

    def create(self, write: Write, document: Document) -> Json:
        body = {**document.spec, "name": document.name}
        return write.send("POST", f"projects/{document.project}/{self.place}/", body)

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        if told := sorted(self.fixed & fields.keys()):
            raise Refused(f"The {told[0]} of {self.noun} does not change; give the new one another name.")
        return write.send("PATCH", self._there(write.transport, document), dict(fields), seen=seen)

    def delete(self, write: Write, document: Document, seen: str) -> Json:
        return write.send("DELETE", self._there(write.transport, document), seen=seen)

    def _there(self, transport: Transport, document: Document) -> str:
        address = self._found(transport, document)
        if address is None:
            raise Refused(f"{document} is gone.")
        return address

    def _found(self, transport: Transport, document: Document) -> str | None:
        base = f"projects/{document.project}/{self.place}/"
        rows = (row["id"] for row in transport.pages(base) if row["name"] == document.name)
        found = next(rows, None)
        return None if found is None else f"{base}{found}/"


class SigningKeyKind(TrustedKind):
    """Keys whose signatures the project believes: public ones, in PEM."""

    name, place, noun = "SigningKey", "signing-keys", "a signing key"
    fixed = frozenset({"public_key"})
    shape = Shape({"public_key": Text()}, fixed)


class SigningIdentityKind(TrustedKind):
    """Identities whose signatures the project believes: by certificates of an authority, or by a keyless issuer."""

    name, place, noun = "SigningIdentity", "signing-identities", "a signing identity"
    fixed = frozenset({"identity", "certificates", "issuer"})
    shape = Shape({"identity": Text(), "certificates": Text(), "issuer": Text()}, frozenset({"identity"}))


class TrustRuleKind(TrustedKind):
    """Which CI jobs may act as a service account in the project. Issuer and account are there before."""

    name, place, noun = "TrustRule", "trust-rules", "a trust rule"
    fixed = frozenset({"issuer"})
    shape = Shape(
        {
            "issuer": Text(),
            "service_account": Text(),
            "repository": Text(),
            "repository_id": Text(),
            "owner_id": Text(),
            "protected_ref": Flag(),
            "ref": Text(),
            "environment": Text(),
            "workflow": Text(),
            "events": Items(Text()),
            "scopes": Items(Text(("read", "write"))),
            "lifetime_minutes": Whole(1),
            "is_enabled": Flag(),
        },
        frozenset({"issuer", "service_account", "repository_id", "owner_id", "scopes"}),
    )

    def parents(self, document: Document) -> list[tuple[str, str, str]]:
        account = document.spec["service_account"]
        return [*super().parents(document), ("Membership", document.project, account)]
