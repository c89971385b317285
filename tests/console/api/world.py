"""One of everything that the API has an address for, so that tests of all addresses meet what is really there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.utils import timezone

from registry.models import Upload, VersionMeasurement
from registry.outgoing import Refused
from registry.services import aliases, apply_sets, cards, scim_tokens, sso, webhooks
from registry.services.webhook_events import event_test
from tests.console.api.test_catalog import REPORT
from tests.console.conftest import Cast, public_key
from tests.console.web.conftest import Served, make_served

_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>|\{(\w+)\}")


@dataclass
class World:
    """Everything of a served project. ``values``: what the parameters of addresses are here, by name."""

    served: Served
    values: dict[str, str]

    @property
    def cast(self) -> Cast:
        """Who is in it."""
        return self.served.cast

    def address(self, route: str, **others: str) -> str:
        """Return a route (``<uuid:node>`` or ``{node}``) with the values filled in, below /api/v1/."""
        known = {**self.values, **others}

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            assert name in known, f"Say in tests/console/api/world.py what {{{name}}} of {route} is: make one there."
            return known[name]

        return "/api/v1/" + _PARAMETER.sub(value, route.removeprefix("/api/v1/"))


def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the console reach nobody outside."""

    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise Refused("There is no network in tests.")

    monkeypatch.setattr("registry.services.issuer_keys.get_json", refuse)


def make_world(cast: Cast) -> World:
    """Make it: see ``Served``, and a webhook with a delivery, an alias, an API key, a measurement that waits, trust."""
    served = make_served(cast)
    alice, version = cast.actor("alice"), served.version
    hook, _secret = webhooks.webhook_create(
        project=cast.project, name="chat", url="https://example.com/x", events=["*"], actor=alice
    )
    delivery = event_test(hook, actor_name="alice")
    cards.card_save(model=version.model, text="# Finch", actor=alice)
    aliases.alias_set(model=version.model, name="champion", version=version, actor=alice)
    measurement = VersionMeasurement.objects.create(
        version=version, node_name="node-1", config_number=1, config_digest="0" * 64, grid={}, cells=[]
    )
    # With the slug of the fleet and the environment: one value stands for each name.
    provider = sso.sso_provider_create(
        slug="dev", name="Corp", issuer="https://corp.example", client_id="x", client_secret="y", actor=alice
    )
    mapping = sso.group_mapping_create(provider=provider, group="ml", project=cast.project, role="viewer", actor=alice)
    scim_token, _text = scim_tokens.scim_token_create(name="corp", provider=provider, actor=alice)
    identity = SocialAccount.objects.create(user=cast.vera, provider="dev", uid="00u2")
    rule = cast.trust_rule()
    key = cast.signing_key()
    signer = cast.signing_identity()
    upload = Upload.objects.create(
        version=version,
        owner=cast.alice,
        path="late.bin",
        length=1,
        part_bytes=1 << 20,
        state="received",
        expires_at=timezone.now() + timedelta(days=1),
    )
    for place in (cast.project, None):
        apply_sets.apply_set_record(project=place, name="birds", members=[], apply_set=None, actor=alice)
    values = {
        "mapping": str(mapping.pk),
        "identity": str(identity.pk),
        "scim_token": str(scim_token.pk),
        "name": "birds",
        "issuer": "github",
        "rule": str(rule.pk),
        "key": str(key.pk),
        "signer": str(signer.pk),
        "account": "robot",
        "measurement": str(measurement.pk),
        "project": "wren",
        "model": "finch",
        "alias": "champion",
        "version": "1",
        "number": "1",
        "slug": "dev",
        "kind": "smoke",
        "username": "vera",
        "node": str(served.node.pk),
        "deployment": str(served.deployment.pk),
        "approval": str(served.approval.pk),
        "rollout": str(served.deployment.rollouts.get().pk),
        "operation": str(served.operation.pk),
        "upload": str(upload.pk),
        "webhook": str(hook.pk),
        "delivery": str(delivery.pk),
        "token": str(cast.token_row("alice", "read")[0].pk),
        "sha256": version.files.get().blob.sha256,
    }
    return World(served, values)


SAMPLES = [{"name": "first", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.5]}]}]
_SPEC = {"routes": [{"version": 1, "role": "live", "weight": 100}]}
_CONFIG = {"text": "max_batch_size: 4", "format": "pbtxt"}

# A body that the address accepts from those who may, for the methods that need one.
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("put", "apply-sets/<str:name>/"): {"members": []},
    ("put", "projects/<slug:project>/apply-sets/<str:name>/"): {"members": []},
    ("put", "projects/<slug:project>/models/<str:model>/card/"): {"text": "# Other"},
    ("put", "projects/<slug:project>/models/<str:model>/samples/"): {"samples": SAMPLES},
    ("put", "projects/<slug:project>/models/<str:model>/versions/<str:version>/samples/"): {"samples": SAMPLES},
    ("post", "projects/<slug:project>/models/<str:model>/versions/<str:version>/fetch"): {
        "address": "https://models.example.com/model.onnx"
    },
    ("post", "projects/"): {"slug": "new", "name": "New"},
    ("patch", "projects/<slug:project>/"): {"description": "swift"},
    ("patch", "projects/<slug:project>/policies/"): {"code_formats": "forbid"},
    ("post", "projects/<slug:project>/members/"): {"username": "charlie", "role": "viewer"},
    ("post", "projects/<slug:project>/models/"): {"slug": "new"},
    ("patch", "projects/<slug:project>/models/<str:model>/"): {"description": "swift"},
    ("put", "projects/<slug:project>/models/<str:model>/aliases/<str:alias>/"): {"version": 1},
    ("post", "projects/<slug:project>/models/<str:model>/configs/"): _CONFIG,
    ("post", "projects/<slug:project>/models/<str:model>/configs/validate"): _CONFIG,
    ("post", "projects/<slug:project>/models/<str:model>/configs/copy"): {"model": "finch", "number": 1},
    ("post", "projects/<slug:project>/models/<str:model>/versions/<str:version>/files/"): {
        "path": "model.onnx",
        "sha256": "0" * 64,
    },
    ("post", "projects/<slug:project>/models/<str:model>/versions/<str:version>/uploads/"): {
        "path": "weights.bin",
        "length": 1,
    },
    ("post", "projects/<slug:project>/models/<str:model>/versions/<str:version>/uploads/<uuid:upload>/parts"): {
        "numbers": [1]
    },
    ("post", "projects/<slug:project>/models/<str:model>/versions/<str:version>/uploads/<uuid:upload>/complete"): {
        "sha256": "0" * 64
    },
    ("post", "projects/<slug:project>/models/<str:model>/versions/<str:version>/files/known"): {"sizes": [1]},
    ("post", "projects/<slug:project>/models/<str:model>/versions/<str:version>/measurements/"): {"node": "node-1"},
    ("post", "projects/<slug:project>/models/<str:model>/versions/<str:version>/conversion"): {"report": REPORT},
    ("post", "projects/<slug:project>/models/<str:model>/versions/<str:version>/quarantine"): {"reason": "bad"},
    ("post", "projects/<slug:project>/deployments/"): {"model": "finch", "fleet": "dev", "spec": _SPEC},
    ("post", "projects/<slug:project>/deployments/plan"): {"model": "finch", "fleet": "dev", "spec": _SPEC},
    ("post", "projects/<slug:project>/deployments/<uuid:deployment>/plan"): {"spec": _SPEC},
    ("post", "projects/<slug:project>/deployments/<uuid:deployment>/routes"): {"weights": {"1": 100}},
    ("post", "projects/<slug:project>/deployments/<uuid:deployment>/infer"): {"inputs": [{"name": "x"}]},
    **{("post", f"rollouts/<uuid:rollout>/{verb}"): {"reason": "Because."} for verb in ("pause", "resume", "abort")},
    ("post", "environments/"): {"slug": "new", "name": "New"},
    ("patch", "environments/<slug:slug>/"): {"requires_approval": True, "required_approvals": 2},
    ("post", "fleets/"): {"slug": "new", "name": "New", "environment": "dev", "selector": {}},
    ("patch", "fleets/<slug:slug>/"): {"name": "Green"},
    ("post", "approvals/<uuid:approval>/bypass"): {"reason": "It burns.", "plan_digest": "0" * 64},
    ("post", "webhooks/"): {"project": "wren", "name": "new", "url": "https://example.com/y", "events": ["*"]},
    ("patch", "webhooks/<uuid:webhook>/"): {"name": "other"},
    ("post", "users/"): {"username": "dora", "password": "correct horse battery"},
    ("patch", "users/<str:username>/"): {"email": "vera@example.com"},
    ("post", "sso-providers/"): {
        "slug": "new",
        "name": "New",
        "issuer": "https://new.example",
        "client_id": "x",
        "client_secret": "y",
    },
    ("patch", "sso-providers/<slug:slug>/"): {"name": "Other"},
    ("post", "sso-providers/<slug:slug>/mappings/"): {"group": "new", "project": "wren", "role": "viewer"},
    ("post", "scim-tokens/"): {"name": "new"},
    ("post", "api-keys/"): {"name": "new", "scopes": ["read"]},
    ("patch", "api-keys/<uuid:token>/"): {"name": "other"},
    ("post", "service-accounts/"): {"username": "machine"},
    ("post", "issuers/"): {"slug": "new", "kind": "gitlab", "url": "https://gitlab.invalid"},
    ("patch", "issuers/<slug:issuer>/"): {"max_age_minutes": 5},
    ("post", "projects/<slug:project>/trust-rules/"): {
        "name": "new",
        "issuer": "github",
        "service_account": "robot",
        "repository_id": "1",
        "owner_id": "2",
        "scopes": ["read"],
    },
    ("post", "projects/<slug:project>/code-permissions/withdraw"): {"reason": "leak"},
    ("post", "projects/<slug:project>/models/<str:model>/versions/<str:version>/code/withdraw"): {"reason": "leak"},
    ("post", "projects/<slug:project>/signing-keys/"): {"name": "new", "public_key": public_key()},
    ("post", "projects/<slug:project>/signing-identities/"): {
        "name": "new",
        "identity": "new@corp.example",
        "issuer": "https://accounts.corp.example",
    },
    ("patch", "projects/<slug:project>/trust-rules/<uuid:rule>/"): {"lifetime_minutes": 5},
    ("post", "oidc/exchange"): {"assertion": "none"},
    ("post", "nodes/join/"): {
        "name": "node-2",
        "endpoints": {},
        "admin_secret": "s",
        "contract_version": 1,
        "token": "none",
    },
    ("post", "nodes/<uuid:node>/hello/"): {
        "name": "node-1",
        "endpoints": {},
        "admin_secret": "s",
        "contract_version": 1,
    },
    ("post", "login-requests/"): {"client": "laptop", "scopes": ["read"]},
    ("post", "login-requests/claim"): {"secret": "none"},
}
# What addresses of GET cannot do without.
QUERIES = {
    "projects/<slug:project>/models/<str:model>/configs/<int:number>/diff": "?against=1",
    "projects/<slug:project>/models/<str:model>/versions/<str:version>/download": "?path=model.onnx",
    "projects/<slug:project>/models/<str:model>/card/revisions/<int:number>/diff": "?against=1",
    "projects/<slug:project>/models/<str:model>/ranking": "?metric=accuracy",
    "projects/<slug:project>/models/<str:model>/versions/<str:version>/compare": "?against=1",
    "metrics/query": "?metric=request_rate",
}


def body_for(world: World, method: str, route: str) -> dict[str, Any]:
    """Return the body for a call; of a review and a bypass it names the plan that waits."""
    body = BODIES.get((method, route), {})
    if "approvals/" in route and route.endswith(("reviews/", "bypass")):
        body = {**body, "plan_digest": world.served.approval.plan_digest}
    return {**body, "decision": "approve"} if route.endswith("reviews/") else body
