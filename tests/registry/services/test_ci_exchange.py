"""A job's token for one of ours, with an issuer that listens: what is taken, what is refused, and how often."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from django.db import connections
from django.utils import timezone

from registry.errors import Conflict, InvalidToken, IssuerUnavailable, PermissionDenied, ValidationFailed
from registry.models import ApiToken, AuditEvent, Issuer, IssuerTokenUse, TrustRule
from registry.selectors.trust import audience
from registry.services import ci_exchange, issuer_keys, models, service_accounts, tokens, trust
from registry.services.ci_exchange import token_exchange
from tests.registry.issuer import GITHUB, GITLAB, TestIssuer, listening


@pytest.fixture(scope="module")
def shared() -> Iterator[TestIssuer]:
    with listening() as issuer:
        yield issuer


@pytest.fixture
def issuer(shared: TestIssuer, settings: Any) -> Iterator[TestIssuer]:
    settings.ISSUER_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    before = dict(shared.documents)
    shared.asked.clear()
    yield shared
    shared.documents.clear()
    shared.documents.update(before)


def known(world: Any, issuer: TestIssuer, kind: str = "github") -> Issuer:
    return trust.issuer_create(slug=kind, kind=kind, url=issuer.url, actor=world.actor(world.alice))


def rule(world: Any, row: Issuer, **given: Any) -> TrustRule:
    whole = {
        "name": "push",
        "repository": "octo/swift",
        "repository_id": "4711",
        "owner_id": "99",
        "scopes": ["write"],
        "service_account": world.robot,
    }
    return trust.trust_rule_create(
        project=given.pop("project", world.project), issuer=row, actor=world.actor(world.alice), **(whole | given)
    )


@pytest.mark.parametrize("kid", ["rsa", "ec"])
@pytest.mark.parametrize(("kind", "claims"), [("github", GITHUB), ("gitlab", GITLAB)])
def test_a_job_gets_a_token_that_acts_and_is_named(
    world: Any, issuer: TestIssuer, kind: str, claims: dict[str, Any], kid: str
) -> None:
    made_of = rule(world, known(world, issuer, kind), lifetime_minutes=5)
    made = token_exchange(assertion=issuer.token(audience(), claims, kid=kid), ip="192.0.2.7", request_id="r-1")
    token = tokens.token_authenticate(made.text)
    assert token is not None and (token.owner, token.project, token.scopes) == (world.robot, world.project, ["write"])
    assert token.expires_at is not None and token.expires_at <= timezone.now() + timedelta(minutes=5)
    assert tokens.token_authenticate(made.text, now=timezone.now() + timedelta(minutes=6)) is None

    actor = world.actor(world.robot, token=token)
    models.model_create(project=world.project, slug="swift", actor=actor)
    named = f"ci: {claims.get('repository') or claims['project_path']}@refs/heads/main run 123 via robot"
    assert AuditEvent.objects.get(action="model.create").actor_name == named
    exchange = AuditEvent.objects.get(action="trust_rule.exchange")
    assert (exchange.actor_name, exchange.ip, exchange.object_id) == (named, "192.0.2.7", str(made_of.pk))
    assert (exchange.after or {})["ref_protected"] == "true" and made.text.split("_")[2] not in str(exchange.after)


def test_each_token_of_an_issuer_is_good_for_one_exchange(world: Any, issuer: TestIssuer) -> None:
    rule(world, known(world, issuer))
    assertion = issuer.token(audience(), GITHUB)
    token_exchange(assertion=assertion)
    with pytest.raises(InvalidToken, match="used before"):
        token_exchange(assertion=assertion)
    # Another token under the same name is no other token.
    jti = jwt.decode(assertion, options={"verify_signature": False})["jti"]
    with pytest.raises(InvalidToken, match="used before"):
        token_exchange(assertion=issuer.token(audience(), GITHUB, jti=jti, run_id="124"))
    assert ApiToken.objects.count() == 1
    assert ci_exchange.issuer_uses_purge(timezone.now()) == 0
    assert ci_exchange.issuer_uses_purge(timezone.now() + timedelta(minutes=10)) == 1


def _header(assertion: str, **change: Any) -> str:
    """The token with another header and the signature as it was."""
    head, rest = assertion.split(".", 1)
    known = json.loads(base64.urlsafe_b64decode(head + "=="))
    return base64.urlsafe_b64encode(json.dumps(known | change).encode()).rstrip(b"=").decode() + "." + rest


def _nested(assertion: str, part: int) -> str:
    """The token with a part that is nested deeper than anybody can read."""
    parts = assertion.split(".")
    parts[part] = base64.urlsafe_b64encode(b'{"a": ' + b"[" * 8000).rstrip(b"=").decode()
    return ".".join(parts)


BAD: dict[str, Callable[[TestIssuer], str]] = {
    "no token": lambda issuer: "rubbish",
    "empty": lambda issuer: "",
    "two parts": lambda issuer: "a.b",
    "another issuer": lambda issuer: issuer.token(
        audience(), GITHUB, iss="https://token.actions.githubusercontent.com"
    ),
    "issuer of another type": lambda issuer: issuer.token(audience(), GITHUB, iss=None),
    "another audience": lambda issuer: issuer.token("flotilla:another", GITHUB),
    "two audiences": lambda issuer: issuer.token([audience(), "other"], GITHUB),
    "no audience": lambda issuer: issuer.token(None, GITHUB),
    "expired": lambda issuer: issuer.token(audience(), GITHUB, exp=int(time.time()) - 120),
    "no end": lambda issuer: issuer.token(audience(), GITHUB, exp=None),
    "not yet": lambda issuer: issuer.token(audience(), GITHUB, nbf=int(time.time()) + 120),
    "of the future": lambda issuer: issuer.token(audience(), GITHUB, iat=int(time.time()) + 120),
    "too old": lambda issuer: issuer.token(audience(), GITHUB, iat=int(time.time()) - 12 * 60),
    "no time": lambda issuer: issuer.token(audience(), GITHUB, iat=None),
    "no name": lambda issuer: issuer.token(audience(), GITHUB, jti=None),
    "a long name": lambda issuer: issuer.token(audience(), GITHUB, jti="j" * 501),
    "no repository": lambda issuer: issuer.token(audience(), GITHUB, repository_id=None),
    "another key": lambda issuer: issuer.token(audience(), GITHUB, key=rsa.generate_private_key(65537, 2048)),
    "unknown key": lambda issuer: issuer.token(audience(), GITHUB, kid="rsa2"),
    "key of the other kind": lambda issuer: issuer.token(audience(), GITHUB, kid="rsa", key=issuer.ec),
    "no algorithm": lambda issuer: _header(issuer.token(audience(), GITHUB), alg="none"),
    "symmetric": lambda issuer: _header(issuer.token(audience(), GITHUB), alg="HS256"),
    "key in the header": lambda issuer: jwt.encode(
        {**GITHUB, "iss": issuer.url, "aud": audience(), "exp": int(time.time()) + 60, "iat": 1, "jti": "x"},
        OTHER,
        algorithm="ES256",
        headers={"jwk": {}, "jku": "http://127.0.0.1/x", "kid": "ec"},
    ),
    "nested header": lambda issuer: _nested(issuer.token(audience(), GITHUB), 0),
    "nested claims": lambda issuer: _nested(issuer.token(audience(), GITHUB), 1),
    "half a character": lambda issuer: issuer.token(audience(), GITHUB, iss="https://a\ud800"),
    "huge": lambda issuer: issuer.token(audience(), {**GITHUB, "padding": "x" * 20_000}),
}
OTHER = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize("name", sorted(BAD))
def test_what_is_no_good_token_is_refused_and_leaves_nothing(world: Any, issuer: TestIssuer, name: str) -> None:
    rule(world, known(world, issuer))
    with pytest.raises(InvalidToken) as refused:
        token_exchange(assertion=BAD[name](issuer))
    assert refused.value.message.endswith(".")
    assert not ApiToken.objects.exists() and not IssuerTokenUse.objects.exists()


def test_a_refusal_names_the_binding_but_no_rule_of_others(world: Any, issuer: TestIssuer) -> None:
    row = known(world, issuer)
    rule(world, row, name="ours", environment="staging")
    rule(world, row, name="theirs", repository_id="5", environment="hidden")
    assertion = issuer.token(audience(), GITHUB, ref="refs/heads/try", ref_protected="false")
    with pytest.raises(PermissionDenied) as refused:
        token_exchange(assertion=assertion)
    said = refused.value.message
    assert "ours" in said and "refs/heads/try" in said and "production" in said
    assert "theirs" not in said and "hidden" not in said and "staging" not in said
    with pytest.raises(PermissionDenied, match="No rule trusts repository 6") as refused:
        token_exchange(assertion=issuer.token(audience(), GITHUB, repository_id="6"))
    assert "ours" not in refused.value.message
    # A refused token was not used, so the job may ask again, better.
    trust.trust_rule_update(
        rule=TrustRule.objects.get(name="ours"),
        environment="production",
        protected_ref=False,
        actor=world.actor(world.alice),
    )
    assert token_exchange(assertion=assertion).rule.name == "ours"


def test_where_several_rules_fit_one_must_be_named(world: Any, issuer: TestIssuer) -> None:
    row = known(world, issuer)
    rule(world, row, name="one")
    rule(world, row, name="two", scopes=["read"])
    with pytest.raises(ValidationFailed, match="2 rules fit"):
        token_exchange(assertion=issuer.token(audience(), GITHUB))
    made = token_exchange(assertion=issuer.token(audience(), GITHUB), project="team", rule="two")
    assert made.token.scopes == ["read"]
    with pytest.raises(PermissionDenied):
        token_exchange(assertion=issuer.token(audience(), GITHUB), project="other")


def test_tokens_end_with_the_rule_the_issuer_and_the_account(world: Any, issuer: TestIssuer) -> None:
    alice = world.actor(world.alice)
    row = known(world, issuer)
    made_of = rule(world, row)

    def exchanged() -> str:
        return token_exchange(assertion=issuer.token(audience(), GITHUB)).text

    text = exchanged()
    trust.trust_rule_update(rule=made_of, is_enabled=False, actor=alice)
    assert tokens.token_authenticate(text) is None
    with pytest.raises(PermissionDenied):
        exchanged()
    trust.trust_rule_update(rule=made_of, is_enabled=True, actor=alice)
    text = exchanged()
    trust.issuer_update(issuer=row, is_enabled=False, actor=alice)
    assert tokens.token_authenticate(text) is None
    with pytest.raises(InvalidToken, match="not on the site's list"):
        exchanged()
    with pytest.raises(Conflict, match="1 rules"):
        trust.issuer_delete(issuer=row, actor=alice)
    trust.issuer_update(issuer=row, is_enabled=True, actor=alice)
    text = exchanged()
    service_accounts.service_account_set_active(account=world.robot, is_active=False, actor=alice)
    assert tokens.token_authenticate(text) is None
    with pytest.raises(PermissionDenied):
        exchanged()
    service_accounts.service_account_set_active(account=world.robot, is_active=True, actor=alice)
    text = exchanged()
    trust.trust_rule_delete(rule=made_of, actor=alice)
    assert tokens.token_authenticate(text) is None
    trust.issuer_delete(issuer=row, actor=alice)


def test_a_job_cannot_make_itself_a_key_that_stays(world: Any, issuer: TestIssuer) -> None:
    rule(world, known(world, issuer))
    made = token_exchange(assertion=issuer.token(audience(), GITHUB))
    actor = world.actor(world.robot, token=made.token)
    with pytest.raises(PermissionDenied):
        tokens.token_create(owner=world.robot, name="x", scopes=["read"], project=world.project, actor=actor)
    with pytest.raises(PermissionDenied):
        tokens.token_rotate(token=made.token, actor=actor)


def test_keys_are_read_once_an_hour_and_for_new_names_twice_a_minute(world: Any, issuer: TestIssuer) -> None:
    row = known(world, issuer)
    now = timezone.now()
    assert issuer_keys.key_of(row, "rsa", now=now) is not None
    assert issuer_keys.key_of(row, "rsa", now=now + timedelta(minutes=59)) is not None
    assert len(issuer.asked) == 2
    assert issuer_keys.key_of(row, "new", now=now + timedelta(seconds=10)) is None
    assert len(issuer.asked) == 2
    issuer.documents["/keys"]["keys"].append({**issuer.jwk("rsa"), "kid": "new"})
    assert issuer_keys.key_of(row, "new", now=now + timedelta(seconds=31)) is not None
    assert len(issuer.asked) == 4
    # An issuer that is away is believed for a day.
    issuer.documents.clear()
    assert issuer_keys.key_of(row, "rsa", now=now + timedelta(hours=20)) is not None
    assert "404" in Issuer.objects.get().keys_problem
    with pytest.raises(IssuerUnavailable, match="404"):
        issuer_keys.key_of(row, "rsa", now=now + timedelta(hours=26))


ODD: dict[str, tuple[str, Any]] = {
    "another name": ("/.well-known/openid-configuration", {"issuer": "https://x", "jwks_uri": "{url}/keys"}),
    "keys elsewhere": ("/.well-known/openid-configuration", {"issuer": "{url}", "jwks_uri": "http://127.0.0.2/keys"}),
    "keys in the network": ("/.well-known/openid-configuration", {"issuer": "{url}", "jwks_uri": "http://10.0.0.1/"}),
    "no address": ("/.well-known/openid-configuration", {"issuer": "{url}"}),
    "no object": ("/.well-known/openid-configuration", ["x"]),
    "no JSON": ("/keys", b"<html>"),
    "no keys": ("/keys", {"keys": []}),
    "no list": ("/keys", {"keys": {"rsa": 1}}),
    "symmetric only": ("/keys", {"keys": [{"kty": "oct", "k": "AAAA", "kid": "rsa"}]}),
    "nonsense": ("/keys", {"keys": [None, 7, {"kty": "RSA", "kid": 1}, {"kty": "RSA", "kid": "x", "n": 5}]}),
    "too many": ("/keys", {"keys": [{"kty": "RSA", "kid": str(n), "n": "AQAB", "e": "AQAB"} for n in range(51)]}),
    "too much": ("/keys", b" " * 70_000),
}


@pytest.mark.parametrize("name", sorted(ODD))
def test_an_issuer_that_answers_nonsense_is_not_believed(world: Any, issuer: TestIssuer, name: str) -> None:
    path, document = ODD[name]
    if not isinstance(document, bytes):
        document = json.loads(json.dumps(document).replace("{url}", issuer.url))
    row = known(world, issuer)
    issuer.documents[path] = document
    found = issuer_keys.issuer_read_keys(issuer=row, actor=world.actor(world.alice))
    assert found.keys == [] and found.keys_problem
    with pytest.raises(IssuerUnavailable):
        token_exchange(assertion=issuer.token(audience(), GITHUB))


def test_a_short_key_is_not_taken(world: Any, issuer: TestIssuer) -> None:
    short = rsa.generate_private_key(65537, 1024)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(short.public_key()))
    issuer.documents["/keys"] = {"keys": [{**public, "kid": "short"}]}
    rule(world, known(world, issuer))
    claims = {**GITHUB, "iss": issuer.url, "aud": audience(), "jti": "x", "iat": int(time.time())}
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        assertion = jwt.encode(
            claims | {"exp": int(time.time()) + 60}, short, algorithm="RS256", headers={"kid": "short"}
        )
    with pytest.raises(InvalidToken, match="does not fit RS256"):
        token_exchange(assertion=assertion)


def test_private_issuers_are_called_only_where_the_operator_allows_it(
    world: Any, issuer: TestIssuer, settings: Any
) -> None:
    settings.ISSUER_ALLOWED_NETWORKS = []
    with pytest.raises(ValidationFailed):
        known(world, issuer)
    for url in ("https://192.168.1.9", "https://127.0.0.1", "http://gitlab.example", "https://x/?y", "https://x/"):
        with pytest.raises(ValidationFailed):
            trust.issuer_create(slug="own", kind="gitlab", url=url, actor=world.actor(world.alice))
    assert issuer.asked == []


def test_only_members_that_are_machines_are_trusted_and_only_administrators_trust(
    world: Any, issuer: TestIssuer
) -> None:
    row = known(world, issuer)
    stranger = service_accounts.service_account_create(username="stranger", actor=world.actor(world.alice))
    for account in (world.carol, stranger):
        with pytest.raises(ValidationFailed, match="service account"):
            rule(world, row, service_account=account)
    with pytest.raises(PermissionDenied):
        trust.trust_rule_create(
            project=world.project, issuer=row, service_account=world.robot, name="x", actor=world.actor(world.carol)
        )
    with pytest.raises(PermissionDenied):
        trust.issuer_create(slug="x", kind="github", actor=world.actor(world.carol))


@pytest.mark.django_db(transaction=True)
def test_of_two_exchanges_of_one_token_at_once_one_succeeds(issuer: TestIssuer) -> None:
    from tests.registry.conftest import World

    world = World()
    row = known(world, issuer)
    rule(world, row)
    issuer_keys.key_of(row, "rsa", now=timezone.now())
    assertion, ends = issuer.token(audience(), GITHUB), []
    start = threading.Barrier(4)

    def exchange() -> None:
        start.wait(30)
        try:
            token_exchange(assertion=assertion)
            ends.append("token")
        except InvalidToken:
            ends.append("refused")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=exchange) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(ends) == ["refused", "refused", "refused", "token"]
    assert ApiToken.objects.count() == 1
