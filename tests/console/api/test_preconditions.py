"""No change is lost: every document has a tag, every change names one, and of two writers at once one is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from rest_framework.test import APIClient

from console.api.etag import NEED_MATCH
from registry.models import AuditEvent, Environment, SsoProvider
from registry.services import (
    accounts,
    aliases,
    apply_sets,
    cards,
    models,
    scim_tokens,
    service_accounts,
    sso,
    trust,
    webhooks,
)
from tests.console.api.test_routes import filled, routes
from tests.console.api.world import BODIES
from tests.console.conftest import Cast, RunningConsole, in_threads, join_node
from tests.console.web.conftest import make_served

Address = Callable[[Cast], str]


def _token(cast: Cast) -> str:
    return f"api-keys/{cast.token_row('alice', 'read')[0].pk}/"


def _webhook(cast: Cast) -> str:
    hook, _secret = webhooks.webhook_create(
        project=cast.project, name="chat", url="https://example.com/x", events=["*"], actor=cast.actor("alice")
    )
    return f"webhooks/{hook.pk}/"


def _model(cast: Cast) -> str:
    model = cast.version("finch").model
    models.model_archive(model=model, actor=cast.actor("bob"))  # only then it can be deleted
    return "projects/wren/models/finch/"


def _environment(cast: Cast) -> str:
    cast.environment("stage", approvals=1)
    return "environments/stage/"


def _version(cast: Cast) -> str:
    return f"projects/wren/models/finch/versions/{cast.ready_version().number}/"


def _card(cast: Cast) -> str:
    model = cast.version("finch").model
    cards.card_save(model=model, text="# Finch", actor=cast.actor("bob"))
    return "projects/wren/models/finch/card/"


def _alias(cast: Cast) -> str:
    version = cast.ready_version()
    aliases.alias_set(model=version.model, name="champion", version=version, actor=cast.actor("bob"))
    cast.ready_version(content=b"better")
    return "projects/wren/models/finch/aliases/champion/"


def _fleet(cast: Cast) -> str:
    return f"fleets/{cast.environment('stage', approvals=1).slug}/"


def _account(cast: Cast) -> str:
    service_accounts.service_account_create(username="robot", actor=cast.actor("alice"))
    return "service-accounts/robot/"


def _issuer(cast: Cast) -> str:
    trust.issuer_create(slug="github", kind="github", actor=cast.actor("alice"))
    return "issuers/github/"


def _trust_rule(cast: Cast) -> str:
    return f"projects/wren/trust-rules/{cast.trust_rule().pk}/"


def _signing_key(cast: Cast) -> str:
    return f"projects/wren/signing-keys/{cast.signing_key().pk}/"


def _signing_identity(cast: Cast) -> str:
    return f"projects/wren/signing-identities/{cast.signing_identity().pk}/"


def _account_elsewhere(cast: Cast) -> str:
    row = SocialAccount.objects.create(user=cast.alice, provider="dev", uid="00u1")
    return f"users/alice/identities/{row.pk}/"


def _apply_set(cast: Cast) -> str:
    for place in (None, cast.project):
        apply_sets.apply_set_record(project=place, name="birds", members=[], apply_set=None, actor=cast.actor("alice"))
    return "apply-sets/birds/"


def _rollout(cast: Cast) -> str:
    return f"rollouts/{make_served(cast).deployment.rollouts.get().pk}/"


_OWNED: dict[str, Any] = {"members": [{"kind": "Model", "name": "finch"}]}


def _provider(cast: Cast) -> SsoProvider:
    return sso.sso_provider_create(
        slug="okta",
        name="Okta",
        issuer="https://x.okta.com",
        client_id="x",
        client_secret="y",
        actor=cast.actor("alice"),
    )


def _mapping(cast: Cast) -> str:
    made = sso.group_mapping_create(
        provider=_provider(cast), group="ml", project=cast.project, role="viewer", actor=cast.actor("alice")
    )
    return f"sso-providers/okta/mappings/{made.pk}/"


def _scim_token(cast: Cast) -> str:
    return f"scim-tokens/{scim_tokens.scim_token_create(name='okta', actor=cast.actor('alice'))[0].pk}/"


_SAMPLES = {"samples": [{"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [5]}]}]}
# A resource for each address that takes PUT, PATCH or DELETE, with a body that changes it. Alice may do all of this.
CHANGED: dict[str, tuple[Address, dict[str, Any]]] = {
    "projects/<slug:project>/": (lambda cast: "projects/wren/", {"description": "swift"}),
    "projects/<slug:project>/policies/": (lambda cast: "projects/wren/policies/", {"code_formats": "forbid"}),
    "projects/<slug:project>/members/<str:username>/": (lambda cast: "projects/wren/members/vera/", {}),
    "projects/<slug:project>/models/<str:model>/": (_model, {"description": "swift"}),
    "projects/<slug:project>/models/<str:model>/aliases/<str:alias>/": (_alias, {"version": 2}),
    "projects/<slug:project>/models/<str:model>/versions/<str:version>/": (_version, {"metrics": {"accuracy": 0.9}}),
    "projects/<slug:project>/models/<str:model>/card/": (_card, {"text": "# Other"}),
    "projects/<slug:project>/models/<str:model>/samples/": (lambda cast: f"{_model(cast)}samples/", _SAMPLES),
    "projects/<slug:project>/models/<str:model>/versions/<str:version>/samples/": (
        lambda cast: f"{_version(cast)}samples/",
        _SAMPLES,
    ),
    "projects/<slug:project>/quotas/": (lambda cast: "projects/wren/quotas/", {"versions": 7}),
    "environments/<slug:slug>/": (_environment, {"requires_approval": True, "required_approvals": 2}),
    "fleets/<slug:slug>/": (_fleet, {"name": "Green"}),
    "webhooks/<uuid:webhook>/": (_webhook, {"name": "other"}),
    "apply-sets/<str:name>/": (_apply_set, _OWNED),
    "projects/<slug:project>/apply-sets/<str:name>/": (lambda cast: f"projects/wren/{_apply_set(cast)}", _OWNED),
    "users/<str:username>/": (lambda cast: "users/bob/", {"email": "bob@example.com"}),
    "sso-providers/<slug:slug>/": (lambda cast: f"sso-providers/{_provider(cast).slug}/", {"name": "Other"}),
    "sso-providers/<slug:slug>/mappings/<uuid:mapping>/": (_mapping, {}),
    "scim-tokens/<uuid:scim_token>/": (_scim_token, {}),
    "api-keys/<uuid:token>/": (_token, {"name": "other"}),
    "service-accounts/<str:account>/": (_account, {}),
    "issuers/<slug:issuer>/": (_issuer, {"is_enabled": False}),
    "projects/<slug:project>/trust-rules/<uuid:rule>/": (_trust_rule, {"lifetime_minutes": 5}),
    "projects/<slug:project>/signing-keys/<uuid:key>/": (_signing_key, {}),
    "projects/<slug:project>/signing-identities/<uuid:signer>/": (_signing_identity, {}),
    "users/<str:username>/identities/<int:identity>/": (_account_elsewhere, {}),
}
# POST verbs that look at If-Match when it is sent.
VERBS: dict[str, tuple[Address, dict[str, Any]]] = {
    "nodes/<uuid:node>/cordon": (lambda cast: f"nodes/{join_node(cast)[0].pk}/", {}),
    "webhooks/<uuid:webhook>/rotate-secret": (_webhook, {}),
    "api-keys/<uuid:token>/rotate": (_token, {}),
    "service-accounts/<str:account>/disable": (_account, {}),
    "rollouts/<uuid:rollout>/pause": (_rollout, {}),
    "projects/<slug:project>/models/<str:model>/versions/<str:version>/archive": (
        lambda cast: f"projects/wren/models/finch/versions/{cast.ready_version().number}/",
        {},
    ),
}


def changing() -> Iterator[tuple[str, str]]:
    return ((route, method) for route, method in routes() if method.upper() in NEED_MATCH)


@pytest.mark.parametrize(("route", "method"), sorted(set(changing())))
def test_a_change_names_the_state_that_it_changes(cast: Cast, api: Callable[..., Any], route: str, method: str) -> None:
    assert route in CHANGED, f"Add to CHANGED how to make a resource at {route}, and a body that changes it."
    make, body = CHANGED[route]
    alice, address = api("alice"), f"/api/v1/{make(cast)}"
    seen = alice.get(address)
    assert seen.status_code == 200, seen.content
    send = getattr(alice, method)

    without = send(address, body)
    assert (without.status_code, without.json()["code"]) == (428, "precondition_required")
    stale = send(address, body, headers={"If-Match": 'W/"another"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale_write")
    assert alice.get(address).headers["ETag"] == seen.headers["ETag"]

    done = send(address, body, headers={"If-Match": seen.headers["ETag"]})
    assert done.status_code in (200, 204), done.content
    after = alice.get(address)
    if done.status_code == 200:
        assert done.headers["ETag"] == after.headers["ETag"] != seen.headers["ETag"]
    assert send(address, body, headers={"If-Match": seen.headers["ETag"]}).status_code in (404, 412)


@pytest.mark.parametrize("route", sorted(VERBS))
def test_a_verb_looks_at_the_tag_when_there_is_one(cast: Cast, api: Callable[..., Any], route: str) -> None:
    make, body = VERBS[route]
    alice, address = api("alice"), f"/api/v1/{make(cast)}"
    verb = address + route.rpartition("/")[2]
    seen = alice.get(address).headers["ETag"]
    assert alice.post(verb, body, headers={"If-Match": 'W/"another"'}).status_code == 412
    assert alice.get(address).headers["ETag"] == seen
    assert alice.post(verb, body, headers={"If-Match": seen}).status_code == 200
    assert alice.post(verb, body, headers={"If-Match": seen}).status_code == 412


@pytest.mark.parametrize(("route", "method"), sorted(set(changing())))
def test_absent_resources_are_absent_with_and_without_a_tag(
    cast: Cast, api: Callable[..., Any], route: str, method: str
) -> None:
    address = filled(route).replace("/wren/", "/no-such/").replace("/anything/", "/no-such/")
    send = getattr(api("charlie"), method)
    assert send(address, {}).status_code == 428
    assert send(address, {}, headers={"If-Match": "*"}).status_code in (404, 400)


def test_what_is_known_already_is_not_sent_again(cast: Cast, api: Callable[..., Any]) -> None:
    cast.ready_version()
    vera = api("vera", "read")
    for address in ("me/", "projects/", "projects/wren/models/finch/", "projects/wren/models/finch/versions/1/"):
        first = vera.get(f"/api/v1/{address}")
        again = vera.get(f"/api/v1/{address}", headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b""), address
        assert again.headers["ETag"] == first.headers["ETag"]


def test_use_of_a_token_and_words_of_a_node_change_no_tag(cast: Cast, api: Callable[..., Any]) -> None:
    row, text = cast.token_row("alice", "read")
    node, _secret = join_node(cast)
    alice = api("alice")
    addresses = (f"/api/v1/api-keys/{row.pk}/", f"/api/v1/nodes/{node.pk}/")
    before = [alice.get(address).headers["ETag"] for address in addresses]
    user = APIClient()
    user.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    assert user.get("/api/v1/me/").status_code == 200
    type(node).objects.filter(pk=node.pk).update(inventory={"gpus": 4})
    assert [alice.get(address).headers["ETag"] for address in addresses] == before


@pytest.mark.django_db(transaction=True)
def test_of_two_writers_at_once_one_is_refused(shared_cast: Cast, console: RunningConsole) -> None:
    shared_cast.version("finch")
    shared_cast.environment("stage", approvals=1)
    token = shared_cast.token("alice")
    model, stage = "/api/v1/projects/wren/models/finch/", "/api/v1/environments/stage/"

    def race(address: str, bodies: list[dict[str, Any]]) -> list[int]:
        with console.client(token) as client:
            tag = client.get(address).headers["ETag"]

        def write(index: int) -> int:
            with console.client(token) as client:
                return client.patch(address, json=bodies[index], headers={"If-Match": tag}).status_code

        return sorted(in_threads(len(bodies), write))

    for turn in range(3):
        texts = [{"description": f"{turn} by {writer}"} for writer in range(4)]
        assert race(model, texts) == [200, 412, 412, 412]
        counts = [{"requires_approval": True, "required_approvals": 2 + turn} for _writer in range(4)]
        assert race(stage, counts) == [200, 412, 412, 412]
    assert AuditEvent.objects.filter(action="model.update").count() == 3
    assert Environment.objects.get(slug="stage").required_approvals == 4


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("route", "method"), [one for one in sorted(set(changing())) if one[0] in CHANGED])
def test_of_two_who_make_the_same_change_at_once_one_is_refused(
    shared_cast: Cast, console: RunningConsole, route: str, method: str
) -> None:
    make, body = CHANGED[route]
    address, token = f"/api/v1/{make(shared_cast)}", shared_cast.token("alice")
    with console.client(token) as client:
        tag = client.get(address).headers["ETag"]
    before = AuditEvent.objects.count()

    def write(_index: int) -> int:
        with console.client(token, **{"If-Match": tag}) as client:
            return client.request(method.upper(), address, json=body).status_code

    answers = sorted(in_threads(3, write))
    assert answers[0] in (200, 204)
    assert {*answers[1:]} <= {404, 412}
    assert AuditEvent.objects.count() == before + 1


@pytest.mark.django_db(transaction=True)
def test_of_two_who_make_the_same_thing_at_once_one_is_refused(shared_cast: Cast, console: RunningConsole) -> None:
    token = shared_cast.token("alice")
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("projects/", {"slug": "owl", "name": "Owl"}),
        ("projects/wren/models/", {"slug": "owl"}),
        ("environments/", {"slug": "owl", "name": "Owl"}),
        ("sso-providers/", BODIES["post", "sso-providers/"]),
        ("projects/wren/signing-keys/", BODIES["post", "projects/<slug:project>/signing-keys/"]),
    ]
    for address, body in wanted:

        def make(_index: int, address: str = address, body: dict[str, Any] = body) -> int:
            with console.client(token) as client:
                return client.post(f"/api/v1/{address}", json=body).status_code

        assert sorted(in_threads(3, make)) == [201, 409, 409], address


def test_a_member_leaves_once(cast: Cast, api: Callable[..., Any]) -> None:
    alice, address = api("alice"), "/api/v1/projects/wren/members/vera/"
    seen = alice.get(address).headers["ETag"]
    user = cast.vera
    accounts.membership_set(project=cast.project, user=user, role="approver", actor=cast.actor("alice"))
    assert alice.delete(address, headers={"If-Match": seen}).status_code == 412
    assert alice.get(address).json()["role"] == "approver"


def test_a_refused_write_may_be_tried_again_under_its_key(cast: Cast, api: Callable[..., Any]) -> None:
    alice, address = api("alice"), "/api/v1/projects/wren/models/finch/"
    cast.ready_version()
    key = {"HTTP_IDEMPOTENCY_KEY": "one-key"}
    refused = alice.patch(address, {"description": "a"}, format="json", HTTP_IF_MATCH='W/"old"', **key)
    assert refused.status_code == 412
    seen = alice.get(address)["ETag"]
    done = alice.patch(address, {"description": "a"}, format="json", HTTP_IF_MATCH=seen, **key)
    again = alice.patch(address, {"description": "a"}, format="json", HTTP_IF_MATCH=seen, **key)
    assert (done.status_code, again.status_code, again["Idempotent-Replay"]) == (200, 200, "true")
