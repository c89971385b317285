"""The pages of apply sets: what each owns, what became of it since, and what pruning would do."""

from __future__ import annotations

from django.utils import timezone

from registry.domain.plans import DeploymentSpec, RouteSpec
from registry.models import ApplySet, Fleet, Membership
from registry.selectors.apply_sets import OwnedThing, owned_things
from registry.services import accounts, apply_sets, approvals, cards, configs, deployments, environments
from tests.console.web.conftest import Browse, Served

LIVE = DeploymentSpec(routes=(RouteSpec(version=1, role="live", weight=100),))


def things(one: ApplySet) -> dict[str, OwnedThing]:
    return {f"{thing.kind} {thing.name}": thing for thing in owned_things(one, one.members)}


def test_each_thing_is_as_applied_changed_since_or_gone(served: Served) -> None:
    found = things(served.apply_set)
    assert {name: thing.standing for name, thing in found.items()} == {
        "Deployment finch@dev": "applied",
        "Membership bob": "applied",
        "Model finch": "applied",
        "Webhook was-here": "gone",
    }
    bob = Membership.objects.get(user=served.cast.bob).user
    accounts.membership_set(project=served.cast.project, user=bob, role="admin", actor=served.cast.actor("alice"))
    touched = things(served.apply_set)["Membership bob"].touched
    assert touched is not None
    assert (touched.by, touched.action) == ("alice", "membership.set")
    # The next run owns what is there then.
    again = apply_sets.apply_set_record(
        project=served.cast.project,
        name="flock",
        members=served.apply_set.members,
        apply_set=served.apply_set,
        actor=served.cast.actor("alice"),
    )
    assert things(again)["Membership bob"].standing == "applied"


def test_what_the_run_asked_for_and_came_later_is_no_change_of_somebody_else(served: Served) -> None:
    members = [{"kind": "Deployment", "name": "finch@prod"}]
    alice = served.cast.actor("alice")
    one = apply_sets.apply_set_record(
        project=served.cast.project, name="later", members=members, apply_set=None, actor=alice
    )
    assert things(one)["Deployment finch@prod"].standing == "gone"
    Membership.objects.filter(user=served.cast.vera).update(role="approver")
    approvals.approval_review(
        approval=served.approval,
        decision="approve",
        comment="",
        plan_digest=served.approval.plan_digest,
        actor=served.cast.actor("vera"),
    )
    assert things(one)["Deployment finch@prod"].standing == "applied"
    config = configs.config_create(model=served.version.model, body={"max_batch_size": 4}, actor=alice)
    other = DeploymentSpec(routes=(RouteSpec(version=1, config=config.number, role="live", weight=100),))
    deployments.deployment_change(model=served.version.model, fleet=served.dev, spec=other, actor=alice)
    assert things(served.apply_set)["Deployment finch@dev"].standing == "touched"


def test_configs_and_cards_are_touched_by_a_newer_revision(served: Served) -> None:
    members = [{"kind": kind, "name": "finch"} for kind in ("ServingConfig", "ModelCard", "Model")]
    alice, bob = served.cast.actor("alice"), served.cast.actor("bob")
    one = apply_sets.apply_set_record(
        project=served.cast.project, name="texts", members=members, apply_set=None, actor=alice
    )
    assert {thing.standing for thing in things(one).values()} == {"applied"}
    cards.card_save(model=served.version.model, text="# Other", actor=bob)
    configs.config_create(model=served.version.model, body={"max_batch_size": 2}, actor=bob)
    touched = {name: thing.touched.action for name, thing in things(one).items() if thing.touched}
    assert touched == {"ModelCard finch": "card.save", "ServingConfig finch": "config.create"}
    assert not any(thing.may_be_pruned for thing in things(one).values())


def test_pruning_is_told_with_what_it_would_do(served: Served) -> None:
    found = things(served.apply_set)
    assert found["Deployment finch@dev"].if_pruned == "Taken off 1 node."
    assert found["Model finch"].if_pruned == "Kept: this kind is never deleted."
    assert found["Webhook was-here"].if_pruned == "Nothing: it is gone."
    assert {name for name, thing in found.items() if thing.may_be_pruned} == {"Deployment finch@dev", "Membership bob"}
    alice = served.cast.actor("alice")
    served.cast.environment("spare", approvals=0)
    names = [
        ("Environment", "dev"),
        ("Fleet", "dev"),
        ("Environment", "spare"),
        ("Fleet", "spare"),
        ("Project", "wren"),
    ]
    members = [{"kind": kind, "name": name} for kind, name in names]
    site = apply_sets.apply_set_record(project=None, name="site", members=members, apply_set=None, actor=alice)
    told = {name: (thing.may_be_pruned, thing.if_pruned) for name, thing in things(site).items()}
    assert told["Environment dev"] == told["Fleet dev"] == (False, "Refused: 1 deployment is there.")
    assert told["Fleet spare"] == (True, "Deleted; its nodes stay.")
    environments.fleet_delete(fleet=Fleet.objects.get(slug="spare"), actor=alice)
    assert things(site)["Fleet spare"].standing == "gone"


def test_two_sets_that_own_one_thing_are_told(served: Served, browse: Browse) -> None:
    members = [{"kind": "Model", "name": "finch"}]
    apply_sets.apply_set_record(
        project=served.cast.project, name="other", members=members, apply_set=None, actor=served.cast.actor("alice")
    )
    assert things(served.apply_set)["Model finch"].also_in == ("other",)
    assert "Also owned by other" in browse("vera").get(served.paths()["apply-set"]).text


def test_a_set_is_filtered_shown_and_forgotten_by_those_who_may(served: Served, browse: Browse) -> None:
    page = served.paths()["apply-set"]
    bob, vera = browse("bob"), browse("vera")
    text = bob.get(page).text
    assert "flotilla diff -f FOLDER --set flock --prune --project wren" in text
    assert "/p/wren/models/finch/" in text
    assert [thing.name for thing, _address in bob.get(f"{page}?kind=Model&q=FIN").context["things"]] == ["finch"]
    assert "Nothing in it matches the filter." in bob.get(f"{page}?q=ostrich").text
    assert 'data-testid="apply-set-forget" disabled' in vera.get(page).text
    assert vera.post(f"{page}forget/").status_code == 403
    assert browse("charlie").post(f"{page}forget/").status_code == 404
    assert bob.post(f"{page}forget/").status_code == 302
    assert not ApplySet.objects.exists()
    assert "flotilla apply -f flotilla.yaml --set birds" in bob.get("/settings/apply-sets/").text


def test_long_sets_come_in_parts(served: Served, browse: Browse) -> None:
    members = [{"kind": "Webhook", "name": f"hook-{number:03}"} for number in range(250)]
    ApplySet.objects.filter(pk=served.apply_set.pk).update(members=members, applied_at=timezone.now())
    page = served.paths()["apply-set"]
    vera = browse("vera")
    first = vera.get(page)
    assert (first.context["start"], first.context["end"], first.context["later"]) == (1, 200, 200)
    second = vera.get(f"{page}?from=200")
    assert (second.context["start"], second.context["end"], second.context["earlier"]) == (201, 250, 0)
    assert vera.get(f"{page}?from=rubbish").context["start"] == 1


def test_the_sets_of_the_site_are_for_its_administrators(served: Served, browse: Browse) -> None:
    site = apply_sets.apply_set_record(
        project=None, name="the-site", members=[], apply_set=None, actor=served.cast.actor("alice")
    )
    assert "the-site" in browse("alice").get("/settings/apply-sets/").text
    assert "the-site" not in browse("vera").get("/settings/apply-sets/").text
    assert browse("vera").get(f"/settings/apply-sets/{site.pk}/").status_code == 404
