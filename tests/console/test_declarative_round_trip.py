"""Small worlds as files: made, exported, made again elsewhere, pruned. Nothing changes the second time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flotilla.declarative import applying
from flotilla.declarative.documents import Document, read_documents, write_documents
from flotilla.declarative.kinds import KINDS, SHAPES, SITE
from flotilla.sdk.transport import Transport
from registry.models import AuditEvent
from tests.console.conftest import Cast, public_key

ADDRESS = "https://example.com/secret-path"
SECRETS = dict.fromkeys(("HOOK", "WEBHOOK_CHAT_URL", "WEBHOOK_YES_URL", "WEBHOOK_ÜBER__1__2_URL"), ADDRESS)


class HereTransport(Transport):
    """Calls the console in this thread, so that everything is in one transaction."""

    def __init__(self, token: str) -> None:
        super().__init__("http://testserver", token)
        headers = dict(self._client.headers)
        self._client.close()
        self._client = httpx2.Client(
            base_url="http://testserver/api/v1/",
            headers=headers,
            transport=_Here(),
        )


class _Here(httpx2.BaseTransport):
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = dict(request.headers)
        kind = headers.pop("content-type", "")
        path = request.url.raw_path.decode()
        answer = Client().generic(request.method, path, request.read(), content_type=kind, headers=headers)
        return httpx2.Response(answer.status_code, headers=[*answer.items()], content=answer.content)


@contextmanager
def undone() -> Iterator[None]:
    """Forget everything at the end."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


TRICKY = [
    "yes",
    "1.0",
    "null",
    "~",
    "# no comment",
    "a: b",
    "- x",
    "&a",
    "'",
    '"',
    "%",
    "{}",
    "0x1f",
    "é 😀",
    "a\u2028b",
]
letters = st.characters(codec="utf-8", categories=("L", "N", "P", "S"))
words = st.sampled_from(TRICKY) | st.text(letters, min_size=1, max_size=12)
labels = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9_./-]{0,6}[a-zA-Z0-9])?", fullmatch=True)
texts = st.lists(words | st.sampled_from(["", "\t", "  "]), max_size=4).map("\n".join)
roles = st.sampled_from(["viewer", "publisher", "approver", "operator"])
names = st.sampled_from(["bob", "vera"])
windows = st.fixed_dictionaries(
    {
        "effect": st.sampled_from(["allow", "deny"]),
        "cron": st.sampled_from(["0 18 * * 5", "0  0 24 12 * "]),
        "duration_minutes": st.integers(1, 3000),
        "name": st.sampled_from(["", "Holidays", "yes"]),
        "time_zone": st.sampled_from(["UTC", "Europe/Berlin"]),
    }
)


def specs(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return specs with any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


environments = specs(
    title=labels,
    position=st.integers(0, 20),
    required_approvals=st.integers(1, 3),
    approval_valid_hours=st.integers(1, 100),
    approvers=st.lists(names, unique=True),
    approver_role=st.sampled_from(["", "approver", "operator"]),
    wait_minutes=st.integers(0, 60),
    windows=st.lists(windows, max_size=2),
    admins_bypass=st.booleans(),
    bypassers=st.lists(names, unique=True),
)
models = specs(
    description=texts,
    task=st.sampled_from(["", "text-classification"]),
    tags=st.dictionaries(labels, labels | st.just(""), max_size=3),
    links=st.lists(st.fixed_dictionaries({"label": labels, "url": st.just("https://example.com/a?b=c#d")}), max_size=2),
    owner=st.just("alice"),
)
thresholds = st.fixed_dictionaries(
    {"warn": st.none() | st.integers(1, 99)}, optional={"fail": st.none() | st.integers(100, 2**53)}
)
treatments = st.sampled_from(["accept", "review", "refuse"])
licences = st.lists(st.sampled_from(["MIT", "Apache-2.0", "GPL-*"]), unique=True)
projects = specs(
    title=labels,
    description=texts,
    code_formats=st.sampled_from(["allow", "approve", "forbid"]),
    pickles_known_only=st.booleans(),
    signing_policy=st.sampled_from(["off", "optional", "required"]),
    size_limits=specs(total_bytes=thresholds, file_bytes=thresholds, files=thresholds),
    licence_policy=specs(allowed=licences, forbidden=licences, unlisted=treatments, missing=treatments),
    quotas=specs(bytes=st.integers(10**6, 10**12), versions=st.integers(10, 10**4), nodes=st.integers(10, 100)),
)
PEMS = [public_key().strip() for _number in range(3)]
keyless = st.fixed_dictionaries(
    {
        "identity": st.sampled_from(["ci@corp.example", "https://github.com/octo/swift/.github/workflows/a.yml@x"]),
        "issuer": st.sampled_from(["https://accounts.corp.example", "https://token.actions.githubusercontent.com"]),
    }
)
rules = st.fixed_dictionaries(
    {
        "issuer": st.just("github"),
        "service_account": st.just("robot"),
        "repository_id": st.sampled_from(["1", "4711"]),
        "owner_id": st.just("99"),
        "scopes": st.sampled_from([["read"], ["write"], ["write", "read"]]),
    },
    optional={
        "repository": st.sampled_from(["", "octo/swift"]),
        "ref": st.sampled_from(["refs/heads/main", "refs/heads/é"]),
        "environment": st.sampled_from(["", "release"]),
        "events": st.sampled_from([["push"], ["workflow_dispatch", "push"]]),
        "lifetime_minutes": st.integers(1, 15),
        "is_enabled": st.booleans(),
    },
)
hooks = st.fixed_dictionaries(
    {"url_env": st.just("HOOK")},
    optional={
        "events": st.lists(st.sampled_from(["*", "version.*", "approval.*", "model.create"]), min_size=1, unique=True),
        "format": st.sampled_from(["standard", "slack"]),
        "is_enabled": st.booleans(),
    },
)


@st.composite
def worlds(draw: st.DrawFn) -> list[Document]:
    """Draw documents of a project wren in which finch has version 1. The fleet dev is always there."""

    def some(kind: str, spec: st.SearchStrategy[dict[str, Any]], *wanted: str) -> list[Document]:
        project = "" if kind in SITE else "wren"
        chosen = [name for name in wanted if draw(st.booleans())]
        return [Document(kind, name, project, _complete(kind, draw(spec))) for name in chosen]

    open_rules = environments.map(lambda spec: {**spec, "requires_approval": False, "windows": [], "wait_minutes": 0})
    guarded = st.builds(lambda spec, flag: {**spec, "requires_approval": flag}, environments, st.booleans())
    found = [Document("Environment", "dev", "", _complete("Environment", draw(open_rules)))]
    found += [Document("Fleet", "dev", "", {"environment": "dev"})]
    found += some("Environment", guarded, "prod")
    selectors = st.fixed_dictionaries(
        {"environment": st.just("dev"), "selector": st.dictionaries(labels, labels, max_size=2)}
    )
    found += some("Fleet", selectors, "spare")
    found += some("Project", projects, "wren")
    found += some("SigningIdentity", keyless, "ci")
    for pem, name in zip(draw(st.permutations(PEMS)), ("release", "b, c", "yes"), strict=True):
        found += some("SigningKey", st.just({"public_key": pem}), name)
    found += some("TrustRule", rules, "push", "a, b")
    found += some("Membership", st.fixed_dictionaries({"role": roles}), "charlie", "vera")
    found += some("Model", models, "finch")
    if draw(st.booleans()):
        found.append(Document("Model", "owl", "wren", draw(models)))
        found += some("ModelCard", st.fixed_dictionaries({"text": texts.map(lambda text: f"# x{text}")}), "owl")
    found += some("ModelCard", st.fixed_dictionaries({"text": texts.map(lambda text: f"{text}\ny")}), "finch")
    bodies = st.integers(1, 64).map(lambda size: {"body": {"max_batch_size": size, "dynamic_batching": {}}})
    found += some("ServingConfig", bodies, "finch")
    routes = {"routes": [{"version": 1, "weight": 100}]}
    found += some("Deployment", st.sampled_from([routes, {**routes, "weight_range": [0, 50]}]), "finch@dev")
    found += some("Webhook", hooks, "chat", "yes", "Über: 1, 2")
    return found


def _complete(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec as it is after reading it from a file."""
    if kind == "Deployment":
        route = {"config": "latest", "role": "live", "weight": 0, "sample_percent": 0.0}
        spec = {**spec, "routes": [{**route, **one} for one in spec["routes"]]}
    return {**SHAPES[kind].defaults, **spec}


def made(transport: Transport, documents: Sequence[Document], owned: Sequence[Any] = ()) -> list[str]:
    """Make the documents, prune what is owned and not among them, and return what was done."""
    changes = applying.plan(transport, documents)
    changes += applying.prune_plan(transport, owned, documents)
    assert applying.dry_run(transport, changes, SECRETS) == []
    result = applying.apply(transport, changes, SECRETS)
    assert result.failed is None, (str(result.failed.document), result.error)
    return [f"{change.action} {change.document}" for change in result.done]


def written(transport: Transport) -> str:
    return write_documents(applying.export(transport, ["wren"]))


def read(folder: Path, text: str) -> list[Document]:
    (folder / "world.yaml").write_text(text)
    return read_documents(folder / "world.yaml", SHAPES, SITE, "wren")


@pytest.fixture
def transport(cast: Cast) -> Iterator[Transport]:
    cast.ready_version()
    cast.trust_rule().delete()  # its issuer and its account stay
    found = HereTransport(cast.token("alice"))
    yield found
    found.close()


def holds(transport: Transport, folder: Path, documents: list[Document], data: st.DataObject) -> None:
    """Check a world: made, made again, exported, pruned, and made of the export elsewhere."""
    with undone():
        made(transport, read(folder, write_documents(documents)))
        events = AuditEvent.objects.count()
        assert made(transport, documents) == [], "nothing changes the second time"
        exported = written(transport)
        assert made(transport, read(folder, exported)) == [], "an export describes what is there"
        assert AuditEvent.objects.count() == events
        assert ADDRESS not in exported
        _prune(transport, documents, data)
    with undone():
        everything = read(folder, exported)
        made(transport, everything)
        assert written(transport) == exported, "an empty console becomes equal"
        assert made(transport, everything) == []


OPTIONS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    # shrinking would call the console for many minutes
    "phases": [Phase.generate],
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@settings(max_examples=1, **OPTIONS)
@given(worlds(), st.data())
def test_a_world_in_files_is_made_once_and_again_elsewhere(
    transport: Transport, tmp_path: Path, documents: list[Document], data: st.DataObject
) -> None:
    holds(transport, tmp_path, documents, data)


@pytest.mark.slow
@settings(max_examples=30, **OPTIONS)
@given(worlds(), st.data())
def test_many_worlds(transport: Transport, tmp_path: Path, documents: list[Document], data: st.DataObject) -> None:
    holds(transport, tmp_path, documents, data)


def _prune(transport: Transport, documents: Sequence[Document], data: st.DataObject) -> None:
    """Leave some documents out: the preview names just these, and changes nothing; then they are gone."""
    before = written(transport)
    kept = [one for one in documents if one.name == "dev" or data.draw(st.booleans())]
    kept += [one for one in documents if one not in kept and one.name == "prod" and one.kind == "Environment"]
    dropped = [one for one in documents if one not in kept and KINDS[one.kind].prunable]
    owned = [one.key for one in documents]
    preview = applying.prune_plan(transport, owned, kept)
    assert {change.document.key for change in preview} == {one.key for one in dropped}
    assert all(change.action == "delete" for change in preview) and written(transport) == before
    done = made(transport, kept, owned)
    assert sorted(done) == sorted(f"delete {one}" for one in dropped)
    assert made(transport, kept, owned) == []
