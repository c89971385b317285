"""Forms do what they say, and keep what was typed when they cannot."""

from __future__ import annotations

from typing import Any

from console.web.config_fields import flatten
from registry.models import ApiToken, ConfigRevision, Membership, ModelVersion, Operation, RegisteredModel, User
from registry.services import operations, tokens, uploads
from tests.console.conftest import PASSWORD, Cast
from tests.console.web.conftest import Browse, Served

EDITOR = "/p/wren/models/finch/configs/new/"
FIELDS = {
    "base": "1",
    "max_batch_size": "8",
    "#scheduling_choice": "dynamic_batching",
    "dynamic_batching.preferred_batch_size": "4, 8",
    "dynamic_batching.max_queue_delay_microseconds": "500",
    "instance_group[0].count": "2",
    "instance_group[0].kind": "KIND_CPU",
    "comment": "batch at 4 and 8",
}


def typed(**changes: str) -> dict[str, str]:
    """What a browser sends: the form as it is opened, and what is typed in it."""
    opened = flatten(ConfigRevision.objects.get(number=1).body)
    return {**opened, **FIELDS, **changes}


def test_a_new_model_keeps_its_description_when_the_name_is_bad(cast: Cast, browse: Browse) -> None:
    answer = browse("bob").post("/p/wren/models/new/", {"slug": "no/slash", "description": "sings at dawn"})
    assert answer.status_code == 422
    assert "sings at dawn" in answer.text and "no/slash" in answer.text
    assert not RegisteredModel.objects.exists()


def test_a_viewer_cannot_make_a_model_by_sending_the_form(cast: Cast, browse: Browse) -> None:
    answer = browse("vera").post("/p/wren/models/new/", {"slug": "finch", "description": ""})
    assert answer.status_code == 422
    assert not RegisteredModel.objects.exists()


def test_starting_an_upload_makes_the_model_and_an_empty_version(cast: Cast, browse: Browse) -> None:
    answer = browse("bob").post("/p/wren/upload/start/", {"model": "finch", "git_sha": "3f9c2ab"})
    assert answer.status_code == 201
    version = ModelVersion.objects.get(pk=answer.json()["version"])
    assert (version.model.slug, version.state, version.source["git_sha"]) == ("finch", "uploading", "3f9c2ab")


def test_starting_an_upload_says_what_is_wrong_with_the_name(cast: Cast, browse: Browse) -> None:
    answer = browse("bob").post("/p/wren/upload/start/", {"model": "../etc", "git_sha": ""})
    assert answer.status_code == 422
    assert "model" in answer.json()["errors"]


def test_submitting_without_files_is_refused_with_a_sentence(cast: Cast, browse: Browse) -> None:
    version = cast.version()
    answer = browse("bob").post(f"/p/wren/upload/{version.pk}/submit/")
    assert answer.status_code == 409
    assert 'role="alert"' in answer.text


def test_the_config_form_stores_the_next_revision(served: Served, browse: Browse) -> None:
    answer = browse("bob").post(EDITOR, typed())
    assert answer.status_code == 302
    saved = ConfigRevision.objects.get(number=2)
    assert saved.body["dynamic_batching"]["preferred_batch_size"] == [4, 8]
    assert saved.body["instance_group"][0]["count"] == 2
    assert saved.comment == "batch at 4 and 8"


def test_the_config_form_marks_the_field_and_keeps_everything(served: Served, browse: Browse) -> None:
    answer = browse("bob").post(EDITOR, typed(**{"dynamic_batching.preferred_batch_size": "4, 99"}))
    assert answer.status_code == 422
    assert 'value="4, 99"' in answer.text and 'value="500"' in answer.text and "batch at 4 and 8" in answer.text
    field = answer.text.split('id="err-f-dynamic_batching-preferred_batch_size"')[1][:400]
    assert 'class="errors"' in field
    assert not ConfigRevision.objects.filter(number=2).exists()


def test_the_config_form_reads_back_text_that_is_no_number(served: Served, browse: Browse) -> None:
    answer = browse("bob").post(EDITOR, typed(**{"max_batch_size": "many", "instance_group[0].count": "x"}))
    assert answer.status_code == 422
    assert 'value="many"' in answer.text and 'value="x"' in answer.text
    assert "“many” is not a whole number." in answer.text


def test_a_config_of_many_parts_can_be_saved(served: Served, browse: Browse) -> None:
    tags = {f"metric_tags{{{number}}}#{part}": f"t{number}" for number in range(200) for part in ("key", "value")}
    rows = {f"instance_group[{number}].name": f"g{number}" for number in range(250)}
    more = {f"instance_group[{number}].{name}": "" for number in range(250) for name in ("count", "gpus", "profile")}
    answer = browse("bob").post(EDITOR, typed(**tags, **more, **rows))
    assert answer.status_code == 302
    body = ConfigRevision.objects.get(number=2).body
    assert (len(body["metric_tags"]), len(body["instance_group"])) == (200, 250)


def test_checking_a_config_while_typing_stores_nothing(served: Served, browse: Browse) -> None:
    path = "/p/wren/models/finch/configs/check/"
    good = browse("bob").post(path, typed(), headers={"HX-Request": "true"})
    contrary = typed(**{"#scheduling_choice": "sequence_batching", "response_cache.enable": "on"})
    bad = browse("bob").post(path, contrary, headers={"HX-Request": "true"})
    assert 'data-testid="config-ok"' in good.text and "preferred_batch_size" in good.text
    sentence = bad.text.split('data-for="err-f-response_cache-enable"')[1][:400]
    assert "with sequence batching scheduler. Please disable the response cache." in sentence
    assert ConfigRevision.objects.count() == 1


def test_a_config_can_be_written_as_text(served: Served, browse: Browse) -> None:
    client = browse("bob")
    form = client.get(f"{EDITOR}?as=text").context["text_form"]
    text = form["text"].value().replace("max_batch_size: ", "max_batch_size: 1", 1)
    answer = client.post(EDITOR, {"as": "text", "base": "1", "format": "pbtxt", "text": text, "comment": ""})
    assert answer.status_code == 302
    bad = client.post(EDITOR, {"as": "text", "base": "1", "format": "pbtxt", "text": "wat {", "comment": ""})
    assert bad.status_code == 422 and "wat {" in bad.text


def test_deploying_shows_the_plan_first(served: Served, browse: Browse) -> None:
    form = {"version": "1", "config": "0", "fleet": "prod", "strategy": "replace", "weight": "10"}
    plan = browse("alice").post("/p/wren/models/finch/deploy/plan/", form)
    assert 'data-testid="plan-approval"' in plan.text and "Needs 1 approval" in plan.text
    answer = browse("alice").post("/p/wren/models/finch/deploy/", form)
    assert answer.status_code == 302


def test_a_canary_without_a_live_version_is_explained_at_the_form(served: Served, browse: Browse) -> None:
    form = {"version": "1", "config": "0", "fleet": "dev", "strategy": "canary", "weight": "10", "comment": "why not"}
    answer = browse("alice").post("/p/wren/models/finch/deploy/", form)
    assert answer.status_code == 422
    assert "why not" in answer.text


def test_traffic_that_does_not_sum_to_a_hundred_is_refused(served: Served, browse: Browse) -> None:
    path = f"/p/wren/deployments/{served.deployment.pk}/traffic/plan/"
    answer = browse("alice").post(path, {"weight-0": "40"})
    assert "they sum to 40" in answer.text


def test_rejecting_needs_a_reason(served: Served, browse: Browse) -> None:
    Membership.objects.filter(user=served.cast.bob).update(role="approver")
    path = f"/approvals/{served.approval.pk}/review/"
    form = {"decision": "reject", "comment": "", "plan_digest": served.approval.plan_digest}
    answer = browse("bob").post(path, form)
    assert answer.status_code == 422
    served.approval.refresh_from_db()
    assert served.approval.state == "open"


def test_the_uploader_cannot_approve_by_sending_the_form(served: Served, browse: Browse) -> None:
    Membership.objects.filter(user=served.cast.bob).update(role="approver")  # Bob uploaded the version.
    form = {"decision": "approve", "comment": "", "plan_digest": served.approval.plan_digest}
    answer = browse("bob").post(f"/approvals/{served.approval.pk}/review/", form)
    assert answer.status_code == 422
    served.approval.refresh_from_db()
    assert served.approval.state == "open"


def test_a_second_person_approves_and_it_is_applied(served: Served, browse: Browse) -> None:
    Membership.objects.filter(user=served.cast.vera).update(role="approver")
    form = {"decision": "approve", "comment": "fine", "plan_digest": served.approval.plan_digest}
    answer = browse("vera").post(f"/approvals/{served.approval.pk}/review/", form)
    assert answer["Location"] == f"/p/wren/deployments/{served.approval.deployment_id}/"
    served.approval.refresh_from_db()
    assert served.approval.state == "applied"


def test_an_administrator_makes_a_second_user(cast: Cast, browse: Browse) -> None:
    client = browse("alice")
    client.get("/p/wren/models/")
    form = {"form": "create", "username": "dora", "password": "short", "role": "approver", "site_role": "none"}
    refused = client.post("/settings/members/", form)
    assert refused.status_code == 422 and 'value="dora"' in refused.text
    assert not User.objects.filter(username="dora").exists()
    assert client.post("/settings/members/", {**form, "password": PASSWORD}).status_code == 302
    assert Membership.objects.get(user__username="dora").role == "approver"


def test_a_publisher_cannot_make_users(cast: Cast, browse: Browse) -> None:
    form = {"form": "create", "username": "dora", "password": PASSWORD, "role": "admin", "site_role": "admin"}
    browse("bob").post("/settings/members/", form)
    assert not User.objects.filter(username="dora").exists()


def test_a_token_is_shown_once_and_works(cast: Cast, browse: Browse) -> None:
    client = browse("bob")
    page = client.post("/settings/tokens/", {"name": "CI", "scope": "write", "project": "wren", "lifetime": "30"})
    secret = page.context["secret"]
    assert secret in page.text and page["Cache-Control"] == "no-store"
    found = tokens.token_authenticate(secret)
    assert found is not None and found.owner == cast.bob
    assert secret not in client.get("/settings/tokens/").text
    client.post(f"/settings/tokens/{ApiToken.objects.get().pk}/revoke/")
    assert tokens.token_authenticate(secret) is None


def test_retiring_a_node_needs_its_name(served: Served, browse: Browse) -> None:
    client = browse("alice")
    client.post(f"/fleet/nodes/{served.node.pk}/act/", {"act": "retire", "confirm": "node-2"})
    served.node.refresh_from_db()
    assert served.node.state != "retired"
    client.post(f"/fleet/nodes/{served.node.pk}/act/", {"act": "retire", "confirm": "node-1"})
    served.node.refresh_from_db()
    assert served.node.state == "retired"


def test_a_member_cannot_drain_a_node(served: Served, browse: Browse) -> None:
    answer = browse("bob").post(f"/fleet/nodes/{served.node.pk}/act/", {"act": "cordon"})
    assert answer.status_code == 403
    served.node.refresh_from_db()
    assert served.node.is_schedulable


def test_trying_it_follows_the_operation(served: Served, browse: Browse) -> None:
    client = browse("bob")
    path = f"/p/wren/deployments/{served.deployment.pk}/try/"
    wrong = client.post(path, {"shape-0": "1, 4", "fill-0": "typed", "data-0": "[1, 2]"})
    assert "4 elements" in wrong.text
    running = client.post(path, {"shape-0": "1, 4", "fill-0": "typed", "data-0": "[[1, 2, 3, 4]]"})
    operation = running.context["operation"]
    assert operation.params["body"]["inputs"][0]["data"] == [1, 2, 3, 4]
    assert 'hx-trigger="every 600ms"' in running.text
    operations.operation_claim(operation.pk, "test")
    outputs = [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [0.25, 0.75]}]
    answer = {"outputs": outputs, "timing": {"queue_us": 12, "compute_us": 340}}
    operations.operation_succeed(operation.pk, "test", {"node": "node-1", "response": answer, "milliseconds": 1.5})
    done = client.get(f"/try/{operation.pk}/")
    assert "0.25, 0.75" in done.text
    assert [text in done.text for text in ("1.5 ms", "1.1 ms", "12 µs", "340 µs")] == [True] * 4
    assert "hx-trigger" not in done.text


def test_files_are_fetched_from_an_allowed_address_only(settings: Any, cast: Cast, browse: Browse) -> None:
    settings.IMPORT_SOURCES = ["https://models.example.com/public/"]
    bob, address = browse("bob"), "/p/wren/upload/fetch/"
    refused = bob.post(address, {"model": "finch", "address": "https://evil.example/model.onnx"})
    assert refused.status_code == 422
    assert "This server fetches only from https://models.example.com/public/." in refused.text
    assert 'value="https://evil.example/model.onnx"' in refused.text
    assert not RegisteredModel.objects.exists()
    taken = bob.post(address, {"model": "finch", "address": "https://models.example.com/public/finch.onnx"})
    operation = Operation.objects.get(kind="fetch_version")
    assert taken["Location"] == f"/p/wren/upload/{operation.subject_id}/"
    page = bob.get(taken["Location"]).text
    assert "https://models.example.com/public/finch.onnx" in page
    assert f'id="operation-live-{operation.pk}"' in page and f'id="version-live-{operation.subject_id}"' in page
    assert browse("charlie").get(taken["Location"]).status_code == 404
    assert browse("vera").post(address, {"model": "wagtail", "address": operation.params["address"]}).status_code == 422
    assert RegisteredModel.objects.count() == 1


def test_what_has_arrived_is_told_to_whoever_sent_it(cast: Cast, browse: Browse) -> None:
    version, bob = cast.version(), cast.actor("bob")
    cast.store_file(version, "labels.txt", b"labels")
    begun = uploads.upload_create(version=version, path="model.onnx", length=100, actor=bob)
    uploads.upload_advance(upload_id=begun.pk, from_offset=0, to_offset=40)
    address = f"/p/wren/upload/{version.pk}/standing/"
    assert browse("bob").get(address).json() == {
        "state": "uploading",
        "files": {
            "labels.txt": {"url": "", "offset": 6, "size": 6, "is_here": True},
            "model.onnx": {"url": f"/api/v1/uploads/{begun.pk}", "offset": 40, "size": 100, "is_here": False},
        },
    }
    assert set(browse("alice").get(address).json()["files"]) == {"labels.txt"}
    assert browse("charlie").get(address).status_code == 404
