"""The client: one method for each step of the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flotilla.sdk.aliases import Aliases
from flotilla.sdk.apply_sets import ApplySets
from flotilla.sdk.audit import Audit
from flotilla.sdk.cards import Cards
from flotilla.sdk.catalog import Catalog
from flotilla.sdk.code import Code
from flotilla.sdk.configs import Configs
from flotilla.sdk.environments import Environments
from flotilla.sdk.facts import Facts
from flotilla.sdk.fleet import Fleet
from flotilla.sdk.fleets import Fleets
from flotilla.sdk.following import Follower, FollowFailed, Step
from flotilla.sdk.keys import Keys
from flotilla.sdk.people import Members, People
from flotilla.sdk.policies import Policies
from flotilla.sdk.projects import Projects
from flotilla.sdk.push_record import PushRecord, record_of
from flotilla.sdk.pushing import Push
from flotilla.sdk.quotas import Quotas
from flotilla.sdk.rollouts import Rollouts
from flotilla.sdk.samples import Samples
from flotilla.sdk.service_accounts import ServiceAccounts
from flotilla.sdk.signing import Signing
from flotilla.sdk.sso import Sso
from flotilla.sdk.transport import ApiError, Transport
from flotilla.sdk.trust import Issuers, TrustRules
from flotilla.sdk.webhooks import Webhooks
from flotilla.settings import push_records_dir

Json = dict[str, Any]

__all__ = ["ApiError", "Flotilla", "FollowFailed", "OperationFailed", "Step"]

_FINISHED = frozenset({"succeeded", "failed", "cancelled"})


class OperationFailed(Exception):
    """Long work ended without success. ``operation`` is its last document."""

    def __init__(self, operation: Json) -> None:
        error = operation.get("error") or {}
        super().__init__(error.get("message") or operation.get("message") or f"The operation {operation.get('state')}.")
        self.operation = operation


class Flotilla:
    """A console, as one user or service account, in one project. Use it as a context manager.

    ``webhooks``: those of the project (flotilla.sdk.webhooks). ``audit``: who did what (flotilla.sdk.audit).
    ``keys``: API keys (flotilla.sdk.keys). ``signing``: whose signatures count (flotilla.sdk.signing).
    ``aliases``: those of its models (flotilla.sdk.aliases). ``cards``: what people should know about its models
    (flotilla.sdk.cards). ``samples``: what versions are tried with (flotilla.sdk.samples).
    ``facts``: metrics, metadata and lineage of versions (flotilla.sdk.facts). ``quotas``: what
    the project may use (flotilla.sdk.quotas). ``people`` and ``members``: accounts and roles (flotilla.sdk.people).
    ``service_accounts``, ``sso``, ``issuers``, ``trust_rules``: who else may sign in (modules of those names, trust).
    ``rollouts``: changes under way (flotilla.sdk.rollouts). ``policies``: what the project asks of versions
    (flotilla.sdk.policies). ``code``: the permission to run what is code in versions (flotilla.sdk.code).
    ``catalog``: models as entries, and files of versions (flotilla.sdk.catalog). ``fleet``: nodes and how they join
    (flotilla.sdk.fleet). ``projects``: those of the caller (flotilla.sdk.projects). ``apply_sets``: what declarative
    files own (flotilla.sdk.apply_sets).
    """

    def __init__(self, url: str, token: str, project: str = "default", *, seconds: float | None = None) -> None:
        self.url = url.rstrip("/")
        self.project = project
        self._transport = Transport(self.url, token, seconds=seconds)
        self.webhooks = Webhooks(self._transport, project)
        self.audit = Audit(self._transport)
        self.keys = Keys(self._transport)
        self.signing = Signing(self._transport, project)
        self.aliases = Aliases(self._transport, project)
        self.cards = Cards(self._transport, project)
        self.samples = Samples(self._transport, project)
        self.facts = Facts(self._transport, project)
        self.quotas = Quotas(self._transport, project)
        self.people = People(self._transport)
        self.members = Members(self._transport, project)
        self.service_accounts = ServiceAccounts(self._transport)
        self.sso = Sso(self._transport)
        self.issuers = Issuers(self._transport)
        self.trust_rules = TrustRules(self._transport, project)
        self.rollouts = Rollouts(self._transport, project)
        self.policies = Policies(self._transport, project)
        self.code = Code(self._transport, project)
        self.environments = Environments(self._transport)
        self.fleets = Fleets(self._transport)
        self.configs = Configs(self._transport, project)
        self.catalog = Catalog(self._transport, project)
        self.fleet = Fleet(self._transport)
        self.projects = Projects(self._transport)
        self.apply_sets = ApplySets(self._transport, project)
        self._models = f"projects/{project}/models/"
        self._deployments = f"projects/{project}/deployments/"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._transport.close()

    def me(self) -> Json:
        """Return who the token belongs to."""
        return self._get("me/")

    def revoke_own_token(self) -> None:
        """End the token that this client uses."""
        self._transport.send("POST", "me/revoke-token")

    def models(self, **filters: str) -> list[Json]:
        """Return the models of the project, newest first; ``filters`` are those of the API (``search``, ``tag``...)."""
        return list(self._pages(self._models, filters))

    def ensure_model(self, model: str, description: str = "") -> Json:
        """Return the model, making it when it does not exist."""
        try:
            return self._get(f"{self._models}{model}/")
        except ApiError as error:
            if error.status != 404:
                raise
        body = {"slug": model, "description": description}
        return self._post(self._models, body)

    def versions(self, model: str) -> list[Json]:
        """Return the versions of a model, newest first."""
        return list(self._pages(f"{self._models}{model}/versions/"))

    def push(
        self,
        model: str,
        files: Mapping[str, Path],
        *,
        source: Json | None = None,
        metadata: Json | None = None,
        metrics: Mapping[str, float] | None = None,
        parent: Json | None = None,
        conversion: Json | None = None,
        progress: Callable[[str, int, int], None] | None = None,
        timeout_seconds: float = 600,
        resume: bool = True,
    ) -> Json:
        """Upload a version, wait for its checks, and return it with its number: ``upload``, then ``wait``.

        When a process died in here, the same call of another one goes on where it stopped, unless ``resume`` is off.

        What is more than one version (a repository) is taken apart: then the answer has no number, and ``made`` lists
        the versions that were made of it, whose checks have passed too.

        Raises:
            ApiError: refused.
            OperationFailed: a check failed; the message says which and why.
        """
        facts: Json = {"source": source, "metadata": metadata, "metrics": metrics, "parent": parent}
        facts["conversion"] = conversion
        with self.push_record(model, files, **facts) if resume else PushRecord() as record:
            version, operation = self.upload(model, files, **facts, progress=progress, record=record)
            try:
                ended = self.wait(operation, timeout_seconds)
            except OperationFailed as error:
                if error.operation.get("state") in _FINISHED:
                    record.forget()
                raise
            record.forget()
        answer = self.version(model, version["id"])
        apart = (ended.get("result") or {}).get("made")
        if apart:
            for made in apart:
                self.wait(self._get(f"operations/{made['operation']}/"), timeout_seconds)
            answer["made"] = [self.version(made["model"], made["version"]) for made in apart]
        return answer

    def push_record(
        self,
        model: str,
        files: Mapping[str, Path],
        *,
        source: Json | None = None,
        metadata: Json | None = None,
        metrics: Mapping[str, float] | None = None,
        parent: Json | None = None,
        conversion: Json | None = None,
    ) -> PushRecord:
        """Return what is known on this machine of a push of the same files with the same facts, for ``upload``.

        It is kept in the user's cache folder (FLOTILLA_CACHE_DIR) until its ``forget``; use it as a context manager.
        """
        facts = _known(source=source, metadata=metadata, metrics=metrics, parent=parent, conversion=conversion)
        what = {"server": self.url, "project": self.project, "model": model, "facts": facts}
        return record_of(push_records_dir(), what=what, files=files)

    def version(self, model: str, version: str | int) -> Json:
        """Return a version by number or id."""
        return self._get(f"{self._models}{model}/versions/{version}/")

    def checks(self, model: str, version: str | int) -> list[Json]:
        """Return the verdicts about a version."""
        return list(self._pages(f"{self._models}{model}/versions/{version}/checks/"))

    def recheck(self, model: str, version: str | int, kind: str, timeout_seconds: float = 600) -> Json:
        """Make a check of a version again and return its verdict; a bad one is no error here.

        Raises:
            OperationFailed: it was not made within the time.
        """
        address = f"{self._models}{model}/versions/{version}/checks/{kind}/rerun"
        self.wait(self._post(address, {}, once=True), timeout_seconds)
        return next(row for row in self.checks(model, version) if row["kind"] == kind)

    def upload(
        self,
        model: str,
        files: Mapping[str, Path],
        *,
        source: Json | None = None,
        metadata: Json | None = None,
        metrics: Mapping[str, float] | None = None,
        parent: Json | None = None,
        conversion: Json | None = None,
        progress: Callable[[str, int, int], None] | None = None,
        record: PushRecord | None = None,
        notice: Callable[[str], None] = lambda _sentence: None,
    ) -> tuple[Json, Json]:
        """Upload a version and submit it for its checks; return it and the operation to follow.

        Several files go at once, and content that the caller can read on the server already is not sent.
        ``progress(path, sent, total)`` is called from several threads, one at a time; first with what is there.

        ``files`` maps the path inside the version (``model.onnx``) to the local file. ``conversion`` is the report of
        ``flotilla convert`` about one of the files; the version then names what it was made from. ``parent`` is a
        version: ``{"model": "base", "version": 3}``, of the same model without ``model``.

        ``record`` (``push_record``) remembers how far it came, and whoever gives it forgets it at the end; without one
        nothing is remembered. ``notice`` hears a sentence when an earlier push is gone on with, or cannot be.

        Raises:
            ApiError: refused.
        """
        self.ensure_model(model)
        push = Push(
            self._transport,
            versions=f"{self._models}{model}/versions/",
            body=_known(source=source, metadata=metadata, metrics=metrics, parent=parent),
            files=files,
            conversion=conversion,
            record=record or PushRecord(),
            progress=progress,
            notice=notice,
        )
        return push.run()

    def fetch(
        self,
        model: str,
        address: str,
        *,
        source: Json | None = None,
        metadata: Json | None = None,
        metrics: Mapping[str, float] | None = None,
        parent: Json | None = None,
    ) -> tuple[Json, Json]:
        """Let the server fetch a version from an address that its operator allows; return it and the operation.

        The operation ends when the files are there and submitted; its result names the ``operation`` of the checks.

        Raises:
            ApiError: refused.
        """
        self.ensure_model(model)
        base = f"{self._models}{model}/versions/"
        given = _known(source=source, metadata=metadata, metrics=metrics, parent=parent)
        version = self._post(f"{self._models}{model}/versions/", given, once=True)
        return version, self._post(f"{base}{version['id']}/fetch", {"address": address}, once=True)

    def push_config(self, model: str, text: str, *, kind: str = "pbtxt", comment: str = "") -> Json:
        """Store a serving config (``pbtxt`` or ``json``) as a revision; the latest one again when nothing changed."""
        return self.configs.create(model, text, kind=kind, comment=comment)

    def check_config(self, model: str, text: str, *, kind: str = "pbtxt") -> Json:
        """Return what is wrong with a config; stores nothing."""
        path = f"{self._models}{model}/configs/validate"
        return self._post(path, {"text": text, "format": kind})

    def measure(
        self,
        model: str,
        version: int,
        node: str,
        *,
        config: int | None = None,
        batch: Sequence[int] = (),
        instances: Sequence[int] = (1,),
        seconds: float | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        progress: Callable[[int, str], None] | None = None,
        timeout_seconds: float = 3600,
    ) -> Json:
        """Measure a version on a node (by name) and return the measurement.

        ``progress`` is called with percent and a sentence each time they change.

        Raises:
            ApiError: refused.
            OperationFailed: nothing could be measured; the message says why.
        """
        base = f"{self._models}{model}/versions/{version}/measurements/"
        body: Json = {"node": node, "config": config, "batch": list(batch), "instances": list(instances)}
        body["shapes"] = {name: list(sizes) for name, sizes in (shapes or {}).items()}
        if seconds is not None:
            body["seconds"] = seconds
        operation = self.wait(self._post(base, body), timeout_seconds, progress=progress)
        return self._get(f"{base}{operation['result']['measurement']}/")

    def measurements(self, model: str, version: int) -> list[Json]:
        """Return the measurements of a version, newest first."""
        return list(self._pages(f"{self._models}{model}/versions/{version}/measurements/"))

    def deployments(self) -> list[Json]:
        """Return the deployments of the project."""
        return list(self._pages(self._deployments))

    def deployment(self, model: str, fleet: str) -> Json:
        """Return a deployment with its routes and what each node says: ``deployment``, ``routes``, ``nodes``...

        Raises:
            ApiError: 404 when the model is not deployed on the fleet.
        """
        return self._get(f"{self._deployments}{self._deployment_id(model, fleet)}/")

    def plan(self, model: str, fleet: str, routes: list[Json]) -> Json:
        """Return what a deployment would change; does nothing."""
        body = {"model": model, "fleet": fleet, "spec": {"routes": routes}}
        return self._post(f"{self._deployments}plan", body)

    def deploy(self, model: str, fleet: str, routes: list[Json], *, comment: str = "") -> Json:
        """Ask for routes on a fleet.

        The answer holds the id of an ``operation`` to wait for, or of an ``approval`` that somebody must give.
        """
        body = {"model": model, "fleet": fleet, "spec": {"routes": routes}, "comment": comment}
        return self._post(self._deployments, body, once=True)

    def traffic(self, model: str, fleet: str, weights: Mapping[int, int]) -> Json:
        """Set the share of each version, in percent."""
        body = {"weights": {str(version): weight for version, weight in weights.items()}}
        return self._change(model, fleet, "routes", body)

    def rollback(self, model: str, fleet: str) -> Json:
        """Go back to what was applied before."""
        return self._change(model, fleet, "rollback", {})

    def infer(self, model: str, fleet: str, request: Json, *, version: int | str | None = None) -> Json:
        """Try a deployment with a v2 JSON request; a worker sends it. Returns the v2 response with its timing.

        ``version`` is a number or an alias.
        """
        body = {**request, "version": version}
        operation = self._post(f"{self._deployments}{self._deployment_id(model, fleet)}/infer", body)
        return dict(self.wait(operation, 60)["result"])

    def wait_settled(self, model: str, fleet: str, timeout_seconds: float = 300) -> Json:
        """Wait until no rollout of the deployment is active and return its status.

        Raises:
            OperationFailed: the last rollout failed or was rolled back, or the timeout has passed.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            status = self.deployment(model, fleet)
            last = status["last_rollout"]
            if status["rollout"] is None and last is not None:
                if last["phase"] == "succeeded":
                    return status
                raise OperationFailed({"state": last["phase"], "message": last["phase_reason"]})
            if time.monotonic() > deadline:
                raise OperationFailed({"state": "running", "message": f"Not settled after {timeout_seconds:.0f} s."})
            time.sleep(0.5)

    def approvals(self, state: str = "open") -> list[Json]:
        """Return approval requests that the caller may see."""
        return list(self._pages("approvals/", {"state": state}))

    def review(self, approval_id: str, decision: str, *, plan_digest: str, comment: str = "") -> Json:
        """Decide on a request: ``approve``, ``request_changes`` or ``reject``, bound to the digest that was read.

        Or ``comment``, which decides nothing and needs no digest.
        """
        body = {"decision": decision, "plan_digest": plan_digest, "comment": comment}
        return self._post(f"approvals/{approval_id}/reviews/", body)

    def bypass(self, approval_id: str, reason: str, *, plan_digest: str) -> Json:
        """Start a change past the rules of its environment, bound to the digest that was read."""
        return self._post(f"approvals/{approval_id}/bypass", {"reason": reason, "plan_digest": plan_digest})

    def withdraw(self, approval_id: str) -> Json:
        """Take a request back and return it."""
        address = f"approvals/{approval_id}/"
        seen = self._transport.send("GET", address).headers["ETag"]
        return dict(self._transport.send("POST", f"{address}withdraw", headers={"If-Match": seen}).json())

    def nodes(self) -> list[Json]:
        """Return the serving nodes."""
        return list(self._pages("nodes/"))

    def node_logs(self, node: str, *, tail: int = 200, timeout_seconds: float = 60) -> list[Json]:
        """Return ``[{"node", "lines", "error"}]``: the newest lines of a node's log (by name), oldest first."""
        operation = self._post(f"nodes/{self.fleet.node(node)['id']}/logs", {"tail": tail})
        return list(self.wait(operation, timeout_seconds)["result"]["nodes"])

    def deployment_logs(self, model: str, fleet: str, *, tail: int = 200, timeout_seconds: float = 60) -> list[Json]:
        """Return the same of every node of a deployment: the lines that name its model."""
        operation = self._post(f"{self._deployments}{self._deployment_id(model, fleet)}/logs", {"tail": tail})
        return list(self.wait(operation, timeout_seconds)["result"]["nodes"])

    def operations(self, *, state: str = "", kind: str = "") -> Iterator[Json]:
        """Yield operations that the caller may see, newest first."""
        wanted = {"state": state, "kind": kind}
        return self._pages("operations/", {name: value for name, value in wanted.items() if value})

    def operation(self, operation_id: str) -> Json:
        """Return an operation with its log."""
        return self._get(f"operations/{operation_id}/")

    def cancel(self, operation_id: str) -> Json:
        """Ask an operation to stop and return it."""
        return self._post(f"operations/{operation_id}/cancel", {})

    def approval(self, approval_id: str) -> Json:
        """Return an approval request with its plan and reviews."""
        return self._get(f"approvals/{approval_id}/")

    def follower(self, timeout_seconds: float, tell: Callable[[Step], None] = lambda _step: None) -> Follower:
        """Return what follows checks, approvals and rollouts, over cut connections, with one deadline for all."""
        return Follower(self._transport, timeout_seconds=timeout_seconds, tell=tell)

    def follow_change(self, outcome: Json, follower: Follower) -> Json:
        """Follow what ``deploy``, ``traffic`` or ``rollback`` answered: approval, then rollout, if there are any.

        Returns ``{"approval", "rollout"}``, None for what there was none of.

        Raises:
            FollowFailed: it came to no good end; its verdict says which.
            ApiError: refused.
        """
        approval, rollout = None, None
        rollouts = f"{self._deployments}{outcome['deployment']}/rollouts/"
        page = self.page(f"deployments/{outcome['deployment']}")
        wanted = outcome.get("rollout")
        if outcome.get("approval"):
            approval = follower.approval(outcome["approval"], link=self.site_page(f"approvals/{outcome['approval']}"))
            rollout = follower.rollout(rollouts, lambda row: row["approval"] == outcome["approval"], link=page)
        elif wanted:
            rollout = follower.rollout(rollouts, lambda row: row["id"] == wanted, link=page)
        return {"approval": approval, "rollout": rollout}

    def project_document(self) -> Json:
        """Return the project."""
        return self._get(f"projects/{self.project}/")

    def changes(self, topic: str, deadline: float | None = None) -> Iterator[str]:
        """Yield whenever something under a live topic (``project:<id>``) may have changed, and once at the beginning.

        It ends at the monotonic ``deadline``.
        """
        return self._transport.events("/live/stream", {"topics": topic}, deadline)

    @property
    def transport(self) -> Transport:
        """What sends requests, for addresses that have no method of their own."""
        return self._transport

    def page(self, path: str) -> str:
        """Return the address of a page of the project for people: ``models/finch``."""
        return f"{self.url}/p/{self.project}/{path}/"

    def site_page(self, path: str) -> str:
        """Return the address of a page of the console for people: ``approvals/<id>``."""
        return f"{self.url}/{path}/"

    def wait(
        self, operation: Json, timeout_seconds: float = 300, *, progress: Callable[[int, str], None] | None = None
    ) -> Json:
        """Poll an operation (or an answer that holds one) until it has ended and return its document.

        ``progress`` is called with percent and message each time they change.

        Raises:
            OperationFailed: it failed, was cancelled, or is still running after the timeout.
        """
        operation_id = operation.get("operation") or operation["id"]
        deadline = time.monotonic() + timeout_seconds
        pause = 0.1
        told: tuple[int, str] | None = None
        while True:
            found = self._get(f"operations/{operation_id}/")
            if progress is not None:
                now = (int(found["progress_percent"]), str(found["message"]))
                if now != told and now[1]:
                    progress(*now)
                told = now
            if found["state"] == "succeeded":
                return found
            if found["state"] in _FINISHED:
                raise OperationFailed(found)
            if time.monotonic() > deadline:
                raise OperationFailed({**found, "message": f"Not finished after {timeout_seconds:.0f} s."})
            time.sleep(pause)
            pause = min(pause * 1.5, 2.0)

    def _change(self, model: str, fleet: str, verb: str, body: Json) -> Json:
        """Change a deployment as it is now: of two that do so at once, one is refused (412) instead of doubled."""
        address = f"{self._deployments}{self._deployment_id(model, fleet)}/"
        seen = self._transport.send("GET", address).headers["ETag"]
        return dict(self._transport.send("POST", f"{address}{verb}", json=body, headers={"If-Match": seen}).json())

    def _deployment_id(self, model: str, fleet: str) -> str:
        found = self._transport.send("GET", self._deployments, params={"model__slug": model, "fleet__slug": fleet})
        rows = found.json()["results"]
        if not rows:
            raise ApiError(404, "not_found", f"{model} is not deployed on {fleet}.")
        return str(rows[0]["id"])

    def _get(self, path: str) -> Json:
        return dict(self._transport.send("GET", path).json())

    def _post(self, path: str, body: Json, *, once: bool = False) -> Json:
        return dict(self._transport.send("POST", path, json=body, once=once).json())

    def _pages(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[Json]:
        return self._transport.pages(path, params)


def _known(**facts: Any) -> Json:
    return {name: value for name, value in facts.items() if value is not None}
