"""The kinds of documents: their fields, and how each is read, made, changed and deleted over the REST API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from flotilla.declarative.catalog_kinds import ModelCardKind, ModelKind, ServingConfigKind
from flotilla.declarative.documents import Document
from flotilla.declarative.kind import Json, Kind, Refused, Spec, Write, by_name, stripped, with_spec
from flotilla.declarative.project_kinds import (
    MembershipKind,
    ProjectKind,
    SigningIdentityKind,
    SigningKeyKind,
    TrustRuleKind,
)
from flotilla.declarative.schema import Either, Flag, Items, Number, Shape, Table, Text, Whole
from flotilla.sdk.transport import ApiError, Transport

_WINDOW = Shape(
    {
        "name": Text(),
        "effect": Text(("allow", "deny")),
        "cron": Text(),
        "duration_minutes": Whole(1),
        "time_zone": Text(),
    },
    frozenset({"effect", "cron", "duration_minutes"}),
    {"name": "", "time_zone": "UTC"},
)


def _window(window: Json) -> Json:
    """Return a window as the server keeps it: without a name it is called as its expression."""
    cron = " ".join(window["cron"].split())
    return {**window, "cron": cron, "name": window["name"].strip() or cron}


class EnvironmentKind(Kind):
    """Environments with their protection."""

    name, is_site, prunable = "Environment", True, True
    shape = Shape(
        {
            "title": Text(),
            "position": Whole(0, 1000),
            "requires_approval": Flag(),
            "required_approvals": Whole(1, 100),
            "approval_valid_hours": Whole(1),
            "approvers": Items(Text()),
            "approver_role": Text(("", "approver", "operator", "admin")),
            "required_checks": Items(
                Shape({"kind": Text(), "allow_warn": Flag()}, frozenset({"kind"}), {"allow_warn": False})
            ),
            "wait_minutes": Whole(),
            "windows": Items(_WINDOW),
            "admins_bypass": Flag(),
            "bypassers": Items(Text()),
        }
    )

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        return ((row["slug"], self.spec_of(row, transport)) for row in transport.pages("environments/"))

    def address(self, document: Document) -> str:
        return f"environments/{document.name}/"

    def spec_of(self, row: Json, transport: Transport) -> Json:
        found = super().spec_of({**row, "title": row["name"]}, transport)
        for name in ("approvers", "bypassers"):
            if name in found:
                found[name] = sorted(found[name])
        return found

    def settle(self, transport: Transport, document: Document) -> Document:
        found = stripped(document.spec)
        found |= {name: sorted(found[name]) for name in ("approvers", "bypassers") if name in found}
        if "windows" in found:
            found["windows"] = [_window(one) for one in found["windows"]]
        return with_spec(document, found)

    def create(self, write: Write, document: Document) -> Json:
        spec = document.spec
        body = {"slug": document.name, "name": spec.get("title") or document.name}
        first = ("requires_approval", "required_approvals")
        made = write.send("POST", "environments/", body | {name: spec[name] for name in first if name in spec})
        rest = {name: value for name, value in spec.items() if name not in ("title", *first)}
        if rest and not write.dry:
            tag = write.transport.send("GET", self.address(document)).headers["ETag"]
            made = self.update(write, document, rest, tag)
        return made

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        body = {("name" if name == "title" else name): value for name, value in fields.items()}
        return write.send("PATCH", self.address(document), body, seen=seen)


class FleetKind(Kind):
    """Fleets: which nodes an environment has."""

    name, is_site, prunable = "Fleet", True, True
    shape = Shape({"title": Text(), "environment": Text(), "selector": Table(Text())}, frozenset({"environment"}))

    def parents(self, document: Document) -> list[tuple[str, str, str]]:
        return [("Environment", "", document.spec["environment"])]

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        return ((row["slug"], self.spec_of(row, transport)) for row in by_name(transport.pages("fleets/")))

    def address(self, document: Document) -> str:
        return f"fleets/{document.name}/"

    def spec_of(self, row: Json, transport: Transport) -> Json:
        return {"title": row["name"], "environment": row["environment"], "selector": row["selector"]}

    def create(self, write: Write, document: Document) -> Json:
        spec = document.spec
        body = {"slug": document.name, "name": spec.get("title") or document.name, "environment": spec["environment"]}
        return write.send("POST", "fleets/", body | {"selector": spec.get("selector", {})})

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        if "environment" in fields:
            raise Refused("A fleet stays in its environment; make another fleet.")
        body = {("name" if name == "title" else name): value for name, value in fields.items()}
        return write.send("PATCH", self.address(document), body, seen=seen)


_ROUTE = Shape(
    {
        "version": Either(),
        "config": Either(),
        "role": Text(("live", "canary", "shadow", "held")),
        "weight": Whole(0, 100),
        "sample_percent": Number(),
    },
    frozenset({"version"}),
    {"config": "latest", "role": "live", "weight": 0, "sample_percent": 0.0},
)


class DeploymentKind(Kind):
    """What a fleet serves of a model; the name is ``model@fleet``. Pruned: everything is taken off.

    Configs are ``latest``, a number, or ``sha256:`` and their digest; versions a number or an alias.
    """

    name, prunable = "Deployment", True
    shape = Shape(
        {"routes": Items(_ROUTE), "sticky": Text(), "weight_range": Items(Whole(0, 100)), "served_name": Text()},
        frozenset({"routes"}),
        {"sticky": "", "weight_range": [0, 100]},
    )

    def parents(self, document: Document) -> list[tuple[str, str, str]]:
        model, fleet = self.split(document)
        return [*super().parents(document), ("Model", document.project, model), ("Fleet", "", fleet)]

    def split(self, document: Document) -> tuple[str, str]:
        """Return model and fleet."""
        model, at, fleet = document.name.rpartition("@")
        if not at or not model or not fleet:
            raise Refused(f"{document.place}: the name of a Deployment is model@fleet, not {document.name!r}.")
        return model, fleet

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        rows = [row for row in transport.pages(f"projects/{project}/deployments/") if row["spec"].get("routes")]
        for row in sorted(rows, key=lambda row: (row["model"], row["fleet"])):
            yield f"{row['model']}@{row['fleet']}", self.spec_of(row, transport)

    def read(self, transport: Transport, document: Document) -> tuple[Json, str] | None:
        model, fleet = self.split(document)
        wanted = {"model__slug": model, "fleet__slug": fleet}
        try:
            rows = list(transport.pages(f"projects/{document.project}/deployments/", wanted))
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        if not rows or not rows[0]["spec"].get("routes"):
            return None
        return self.spec_of(rows[0], transport), str(rows[0]["generation"])

    def spec_of(self, row: Json, transport: Transport) -> Json:
        base = f"projects/{row['project']}/models/{row['model']}/configs/"
        spec = row["spec"]
        routes = [self._route(transport, base, route) for route in spec["routes"]]
        found = {
            "routes": routes,
            "sticky": spec.get("sticky", ""),
            "weight_range": list(spec.get("weight_range", (0, 100))),
        }
        name = spec.get("served_name") or row.get("served_name") or row["model"]
        return found | ({"served_name": name} if name != row["model"] else {})

    def settle(self, transport: Transport, document: Document) -> Document:
        """Return the document with versions by number and configs as ``latest`` or by digest."""
        model, _fleet = self.split(document)
        base = f"projects/{document.project}/models/{model}/"
        routes = []
        for route in document.spec["routes"]:
            named = {**route, "sample_percent": float(route["sample_percent"])}
            if isinstance(route["version"], str):
                found = transport.send("GET", f"{base}aliases/{quote(route['version'], safe='')}/").json()
                named["version"] = found["version"]
            routes.append(self._route(transport, f"{base}configs/", named))
        return with_spec(document, {**document.spec, "routes": routes})

    def _route(self, transport: Transport, base: str, route: Spec) -> Json:
        found = {name: route[name] for name in _ROUTE.fields if name in route}
        found["sample_percent"] = float(found.get("sample_percent", 0))
        config = found.get("config", "latest")
        if config not in ("latest", 0):
            newest = transport.send("GET", f"{base}0/").json()
            if isinstance(config, int):
                one = newest if config == newest["number"] else transport.send("GET", f"{base}{config}/").json()
                config = f"sha256:{one['digest']}"
            config = "latest" if config == f"sha256:{newest['digest']}" else config
        return found | {"config": config or "latest"}

    def change(self, transport: Transport, document: Document) -> Json:
        """Return the body that asks for the document."""
        model, fleet = self.split(document)
        routes = []
        for route in document.spec["routes"]:
            config = route["config"]
            number = 0 if config == "latest" else self._number(transport, document.project, model, str(config))
            routes.append({**route, "config": number})
        return {"model": model, "fleet": fleet, "spec": {**document.spec, "routes": routes}}

    def _number(self, transport: Transport, project: str, model: str, config: str) -> int:
        digest = config.removeprefix("sha256:")
        rows = list(transport.pages(f"projects/{project}/models/{model}/configs/", {"digest": digest}))
        if not rows:
            raise Refused(f"{model} has no config {config}.")
        return int(rows[0]["number"])

    def create(self, write: Write, document: Document) -> Json:
        body = self.change(write.transport, document)
        path = f"projects/{document.project}/deployments/"
        if write.dry:
            return write.send("POST", f"{path}plan", body)
        return write.send("POST", path, {**body, "comment": "flotilla apply"})

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        return self.create(write, document)

    def delete(self, write: Write, document: Document, seen: str) -> Json:
        return self.create(write, with_spec(document, {"routes": [], "sticky": "", "weight_range": [0, 100]}))


class WebhookKind(Kind):
    """Webhooks of a project. ``url_env`` names the variable with the address, a secret, for when one is made."""

    name, prunable = "Webhook", True
    unseen = frozenset({"url_env"})
    shape = Shape(
        {
            "url_env": Text(),
            "events": Items(Text()),
            "format": Text(("standard", "slack")),
            "is_enabled": Flag(),
        },
        frozenset({"url_env"}),
    )

    def all(self, transport: Transport, project: str) -> Iterator[tuple[str, Json]]:
        rows = transport.pages("webhooks/", {"project__slug": project})
        return ((row["name"], self.spec_of(row, transport)) for row in by_name(rows, "name"))

    def spec_of(self, row: Json, transport: Transport) -> Json:
        word = "".join(letter if letter.isalnum() else "_" for letter in row["name"]).upper()
        return {"url_env": f"WEBHOOK_{word}_URL"} | super().spec_of(row, transport)

    def read(self, transport: Transport, document: Document) -> tuple[Json, str] | None:
        row = self._row(transport, document)
        if row is None:
            return None
        answer = transport.send("GET", f"webhooks/{row['id']}/")
        return self.spec_of(dict(answer.json()), transport), answer.headers["ETag"]

    def settle(self, transport: Transport, document: Document) -> Document:
        events = {"events": sorted(set(document.spec["events"]))} if "events" in document.spec else {}
        return with_spec(document, {**document.spec, **events})

    def address(self, document: Document) -> str:
        raise AssertionError("webhooks are found by name")

    def create(self, write: Write, document: Document) -> Json:
        spec = document.spec
        url = write.secrets.get(spec["url_env"], "")
        if not url:
            raise Refused(f"The address of webhook {document.name} must be in the variable {spec['url_env']}.")
        body = {"project": document.project, "name": document.name, "url": url, "events": spec.get("events", ["*"])}
        made = write.send("POST", "webhooks/", body | {"format": spec.get("format", "standard")})
        if spec.get("is_enabled", True) is False and not write.dry:
            address = f"webhooks/{made['id']}/"
            tag = write.transport.send("GET", address).headers["ETag"]
            write.send("PATCH", address, {"is_enabled": False}, seen=tag)
        made.pop("secret", None)
        return made

    def update(self, write: Write, document: Document, fields: Mapping[str, Any], seen: str) -> Json:
        return write.send("PATCH", self._address(write.transport, document), dict(fields), seen=seen)

    def delete(self, write: Write, document: Document, seen: str) -> Json:
        return write.send("DELETE", self._address(write.transport, document), seen=seen)

    def _address(self, transport: Transport, document: Document) -> str:
        row = self._row(transport, document)
        if row is None:
            raise Refused(f"{document} is gone.")
        return f"webhooks/{row['id']}/"

    def _row(self, transport: Transport, document: Document) -> Json | None:
        rows = transport.pages("webhooks/", {"project__slug": document.project})
        return next((row for row in rows if row["name"] == document.name), None)  # a filter would part at commas


# In the order in which they need one another.
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        ProjectKind(),
        MembershipKind(),
        SigningKeyKind(),
        SigningIdentityKind(),
        TrustRuleKind(),
        EnvironmentKind(),
        FleetKind(),
        ModelKind(),
        ModelCardKind(),
        ServingConfigKind(),
        DeploymentKind(),
        WebhookKind(),
    )
}
SHAPES = {name: kind.shape for name, kind in KINDS.items()}
SITE = frozenset(name for name, kind in KINDS.items() if kind.is_site)
