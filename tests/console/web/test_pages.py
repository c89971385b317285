"""Each page opens for members, hides from strangers, and sends nobody to the sign-in page."""

from __future__ import annotations

import pytest

from tests.console.web.conftest import Browse, Served

SITE_PAGES = {
    "home", "approvals", "fleet", "join", "node", "members", "tokens", "environments", "projects", "password", "audit",
    "operations", "jump", "environment", "fleet-settings", "webhooks", "service-accounts", "trust", "issuers",
    "connect", "security", "people", "sso", "scim", "apply-sets", "heat", "heat-hardware", "heat-latency",
    "api-docs", "api-docs-search", "api-docs-group",
}  # fmt: skip


@pytest.mark.parametrize("name", ["alice", "bob", "vera"])
def test_every_page_opens_for_members(name: str, served: Served, browse: Browse) -> None:
    client = browse(name)
    answers = {page: client.get(path).status_code for page, path in served.paths().items()}
    # Vera and Bob are not on the operation, but it is their project's.
    assert answers == dict.fromkeys(answers, 200)


def test_project_pages_do_not_exist_for_people_of_other_projects(served: Served, browse: Browse) -> None:
    client = browse("charlie")
    answers = {page: client.get(path).status_code for page, path in served.paths().items() if page not in SITE_PAGES}
    assert answers == dict.fromkeys(answers, 404)


def test_nobody_is_sent_to_sign_in(served: Served, browse: Browse) -> None:
    client = browse("")
    for path in served.paths().values():
        answer = client.get(path)
        assert answer.status_code == 302
        assert answer["Location"].startswith("/login/?next=/")


def test_a_part_of_a_page_leads_to_the_sign_in_page_when_the_session_has_ended(served: Served, browse: Browse) -> None:
    answer = browse("").post("/p/wren/models/finch/deploy/plan/", {}, headers={"HX-Request": "true"})
    assert (answer.status_code, answer["HX-Redirect"]) == (401, "/login/")


def test_pages_of_a_stranger_name_nothing_of_the_project(served: Served, browse: Browse) -> None:
    client = browse("charlie")
    for page in ("home", "approvals", "audit", "operations", "fleet", "node", "jump"):
        assert "finch" not in client.get(served.paths()[page]).text, page


def test_an_empty_project_teaches_with_a_command(browse: Browse) -> None:
    page = browse("bob").get("/p/wren/models/").text
    assert "flotilla push" in page
    assert 'data-testid="empty-upload"' in page


def test_a_viewer_reads_why_not(served: Served, browse: Browse) -> None:
    page = browse("vera").get(served.paths()["deploy"]).text
    assert 'data-testid="deploy-submit" disabled' in page
    assert "role" in page


def test_an_author_reads_why_somebody_else_must_approve(served: Served, browse: Browse) -> None:
    page = browse("alice").get(served.paths()["approval"]).text
    assert 'data-testid="review-why-not"' in page
    assert 'value="approve"' not in page


def test_signing_in_leads_to_where_one_wanted_to_go(served: Served, browse: Browse) -> None:
    client = browse("")
    answer = client.post(
        "/login/?next=/fleet/", {"login": "bob", "password": "correct horse battery", "next": "/fleet/"}
    )
    assert answer["Location"] == "/fleet/"


def test_a_wrong_password_says_no_more_than_that(served: Served, browse: Browse) -> None:
    client = browse("")
    known = client.post("/login/", {"login": "bob", "password": "wrong"})
    unknown = client.post("/login/", {"login": "nobody", "password": "wrong"})
    assert 'data-testid="login-error"' in known.text
    assert known.text.count("bob") == unknown.text.count("nobody")


def test_no_page_runs_inline_code_or_style(served: Served, browse: Browse) -> None:
    client = browse("alice")
    for page, path in served.paths().items():
        answer = client.get(path)
        assert " style=" not in answer.text, page
        assert " onclick=" not in answer.text, page
        if page != "jump":
            policy = answer["Content-Security-Policy"]
            assert "script-src 'self'" in policy and "unsafe" not in policy, page
