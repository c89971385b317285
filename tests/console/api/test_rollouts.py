"""Steering a rollout through the API, the command line's client and the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.test import Client

from registry.models import Rollout
from tests.console.api.test_deployments import DEPLOYMENTS, change, spec
from tests.console.api.test_deployments import development as _development
from tests.console.conftest import Cast, signed_in

development = _development


def under_way(cast: Cast, api: Callable[..., Any]) -> Rollout:
    cast.ready_version(content=b"other weights")
    bob = api("bob")
    for weights in ((100,), (90, 10)):
        answer = bob.post(DEPLOYMENTS, change("development", spec(*weights)))
    return Rollout.objects.get(pk=answer.json()["rollout"])


def test_a_rollout_is_paused_resumed_aborted_as_it_was_seen(development: Cast, api: Callable[..., Any]) -> None:
    bob, vera = api("bob"), api("vera")
    address = f"/api/v1/rollouts/{under_way(development, api).pk}/"
    seen = bob.get(address)
    assert (seen.status_code, seen.json()["phase"]) == (200, "progressing")
    assert vera.post(f"{address}pause").status_code == 403
    assert api("charlie").post(f"{address}pause").status_code == 404
    tag = {"If-Match": seen.headers["ETag"]}
    paused = bob.post(f"{address}pause", {"reason": "Lunch."}, headers=tag)
    assert (paused.status_code, paused.json()["phase_reason"]) == (200, "Paused by bob. Lunch.")
    assert paused.headers["ETag"] == bob.get(address).headers["ETag"] != seen.headers["ETag"]
    assert bob.post(f"{address}resume", headers=tag).status_code == 412
    resumed = bob.post(f"{address}resume", headers={"If-Match": paused.headers["ETag"]})
    assert (resumed.status_code, resumed.json()["phase"]) == (200, "progressing")
    assert resumed.json()["resumed_at"]
    assert bob.post(f"{address}resume").json()["code"] == "invalid_transition"
    assert bob.post(f"{address}retry").status_code == 409
    aborted = bob.post(f"{address}abort", {"reason": "Wrong one."})
    assert (aborted.status_code, aborted.json()["phase"]) == (200, "aborting")
    assert bob.post(f"{address}abort", {"why": "?"}).status_code == 400


def test_the_stages_of_a_rollout_tell_what_each_waits_for(development: Cast, api: Callable[..., Any]) -> None:
    bob, vera = api("bob"), api("vera")
    address = f"/api/v1/rollouts/{under_way(development, api).pk}/"
    assert api("charlie").get(f"{address}stages").status_code == 404
    found = vera.get(f"{address}stages").json()
    assert [(one["name"], one["state"]) for one in found["stages"]] == [("load", "current"), ("verify", "ahead")]
    assert found["stages"][0]["gate"] and found["stages"][0]["seconds"] is None
    bob.post(f"{address}pause", {"reason": "Lunch."})
    found = vera.get(f"{address}stages").json()
    assert (found["stages"][0]["state"], found["stages"][0]["gate"]) == ("paused", "Paused by bob. Lunch.")
    assert (found["moves"][-1]["to_state"], found["moves"][-1]["actor_name"]) == ("paused", "bob")


def test_the_stages_of_a_request_tell_who_is_missing(development: Cast, api: Callable[..., Any]) -> None:
    asked = api("bob").post(DEPLOYMENTS, change("production", spec(100))).json()
    found = api("vera").get(f"/api/v1/approvals/{asked['approval']}/stages").json()
    names = [(one["name"], one["state"]) for one in found["stages"]]
    assert names == [("approval", "current"), ("load", "ahead"), ("verify", "ahead")]
    assert found["stages"][0]["then"] == "expires"
    assert api("charlie").get(f"/api/v1/approvals/{asked['approval']}/stages").status_code == 404


def test_and_on_the_page_of_its_deployment(development: Cast, api: Callable[..., Any]) -> None:
    rollout = under_way(development, api)
    page = f"/p/wren/deployments/{rollout.deployment_id}/"
    bob, vera = signed_in(Client(), development.bob), signed_in(Client(), development.vera)
    shown = bob.get(page).content.decode()
    assert "Aborting brings v1 100 % back on 1 node." in shown
    assert f"rollouts/{rollout.pk}/pause" in shown
    vera.post(f"{page}rollouts/{rollout.pk}/steer/", {"act": "pause"})
    rollout.refresh_from_db()
    assert rollout.phase == "progressing"
    for act, phase in (("pause", "paused"), ("resume", "progressing"), ("abort", "aborting")):
        assert bob.post(f"{page}rollouts/{rollout.pk}/steer/", {"act": act, "reason": "Because."}).status_code == 302
        rollout.refresh_from_db()
        assert rollout.phase == phase
    Rollout.objects.filter(pk=rollout.pk).update(phase="rolled_back")
    assert 'data-testid="rollout-retry"' in bob.get(page).content.decode()
    bob.post(f"{page}rollouts/{rollout.pk}/steer/", {"act": "retry"})
    assert Rollout.objects.count() == 3
    assert (
        bob.post(f"/p/wren/deployments/{rollout.deployment_id}/rollouts/{rollout.operation_id}/steer/").status_code
        == 404
    )
