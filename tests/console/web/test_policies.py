"""The page about what a project asks of new versions."""

from __future__ import annotations

from registry.models import Check, Project
from tests.console.conftest import Cast
from tests.console.web.conftest import Browse

PAGE = "/settings/projects/wren/policies/"


def test_limits_are_typed_in_gibibytes_and_what_is_left_alone_stays_exact(cast: Cast, browse: Browse) -> None:
    odd = {"total_bytes": {"warn": 5 * 1024**3 + 1, "fail": None}}
    Project.objects.filter(slug="wren").update(size_limits=odd)
    client = browse("alice")
    form = client.get(PAGE).context["size_form"]
    typed = {name: form[name].value() if form[name].value() is not None else "" for name in form.fields}
    given = {"form": "size", **typed, "file_bytes_warn": "0.5", "files_warn": ""}
    assert client.post(PAGE, given).status_code == 302
    kept = Project.objects.get(slug="wren").size_limits
    assert kept["total_bytes"] == odd["total_bytes"] and kept["file_bytes"]["warn"] == 512 * 1024**2
    assert kept["files"] == {"warn": None, "fail": 10_000}
    late = client.post(PAGE, {**given, "files_fail": "5"})
    assert late.status_code == 422 and "Somebody changed it" in late.text
    now = client.get(PAGE).context["size_form"]
    wrong = client.post(PAGE, {**given, "seen": now["seen"].value(), "files_warn": "9", "files_fail": "5"})
    assert wrong.status_code == 422 and "must not come above" in wrong.text


def test_licences_are_typed_one_a_line(cast: Cast, browse: Browse) -> None:
    client = browse("alice")
    form = client.get(PAGE).context["licence_form"]
    given = {"form": "licence", "seen": form["seen"].value(), "allowed": "MIT\n BSD-* \n", "forbidden": "MITT"}
    given |= {"unlisted": "review", "missing": "refuse"}
    wrong = client.post(PAGE, given)
    assert wrong.status_code == 422 and "SPDX lists no licence “MITT”" in wrong.text and "MITT</textarea>" in wrong.text
    assert client.post(PAGE, {**given, "forbidden": "AGPL-3.0"}).status_code == 302
    policy = Project.objects.get(slug="wren").licence_policy
    assert policy == {"allowed": ["MIT", "BSD-*"], "forbidden": ["AGPL-3.0"], "unlisted": "review", "missing": "refuse"}
    shown = browse("vera").get(PAGE).text
    assert "AGPL-3.0" in shown and "licence-save" not in shown
    assert browse("vera").post(PAGE, {**given, "forbidden": ""}).status_code in (403, 422)
    assert Project.objects.get(slug="wren").licence_policy == policy
    assert browse("charlie").get(PAGE).status_code == 404


def test_the_page_of_a_version_shows_its_licence(cast: Cast, browse: Browse) -> None:
    evidence = {"licence": "MIT", "statements": [{"where": "README.md", "text": "mit", "licence": "MIT"}]}
    Check.objects.create(version=cast.ready_version(), kind="licence", verdict="pass", evidence=evidence)
    shown = browse("vera").get("/p/wren/models/finch/versions/1/").text
    assert 'data-testid="version-licence"' in shown and "README.md: mit" in shown
