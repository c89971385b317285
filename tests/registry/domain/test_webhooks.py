from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain import webhooks as domain
from registry.domain.addresses import parse_networks, url_problem

AT = datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)


def document(**changes: object) -> dict[str, object]:
    kind = domain.event_type(str(changes.pop("name", "version.ready")), of_project=True)
    assert kind is not None
    subject = {"type": "version", "id": "1", "label": "finch v3", "url": "https://flotilla.example/p/wren/"}
    given: dict[str, object] = {"project": "wren", "actor": "bob", "subject": subject, "details": {}, **changes}
    return domain.payload(kind, at=AT, **given)  # type: ignore[arg-type]


def test_the_signature_is_that_of_the_standard() -> None:
    # The example of the specification's own verification tests.
    signature = domain.sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_every_secret_signs() -> None:
    secrets = [domain.new_secret(bytes([number]) * 32) for number in (1, 2)]
    sent = domain.headers(secrets, "msg_1", 7, b"{}")
    assert sent["webhook-signature"].split(" ") == [domain.sign(secret, "msg_1", 7, b"{}") for secret in secrets]
    assert (sent["webhook-id"], sent["webhook-timestamp"]) == ("msg_1", "7")


@pytest.mark.parametrize(
    ("pattern", "wanted"), [("*", True), ("version.*", True), ("version.ready", True), ("model.*", False)]
)
def test_patterns(pattern: str, wanted: bool) -> None:
    assert domain.pattern_problem(pattern, of_project=True) == ""
    assert domain.is_wanted("version.ready", [pattern]) is wanted


@pytest.mark.parametrize(
    "pattern", ["", "version", "versio.*", "node.join", "ver*", "*.ready", "webhook.test", "x" * 200]
)
def test_patterns_that_name_nothing(pattern: str) -> None:
    assert domain.pattern_problem(pattern, of_project=True)


def test_no_event_is_of_a_project_and_of_the_site() -> None:
    assert not domain.PROJECT_EVENTS.keys() & domain.SITE_EVENTS.keys()
    for kind in (*domain.PROJECT_EVENTS.values(), *domain.SITE_EVENTS.values()):
        assert "x" in kind.sentence % {"actor": "bob", "label": "x"}


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/", "ftp://example.com/", "https://", "https:///x", "example.com", "//example.com/x",
        "https://user@example.com/", "https://example.com/#x", "https://example.com:0x/", "https://10.0.0.1/",
        "https://[::1]/", "https://[fe80::1%25eth0]/", "https://ex ample.com/", "https://example.com/\n", "https://é.com/",
        "https://example.com/" + "x" * 2000, "https://[half/", "javascript:alert(1)",
    ],
)  # fmt: skip
def test_addresses_that_are_refused_by_their_text(url: str) -> None:
    assert url_problem(url, ())


def test_networks_of_ones_own_are_let_in() -> None:
    allowed = parse_networks(["10.1.0.0/16"])
    assert url_problem("https://example.com:8443/a?b=c", ()) == ""
    assert url_problem("http://10.1.2.3/hook", allowed) == ""
    assert url_problem("http://10.2.2.3/hook", allowed)


@given(st.text(max_size=80))
def test_any_text_is_judged(text: str) -> None:
    assert isinstance(url_problem(text, ()), str)
    assert isinstance(domain.pattern_problem(text, of_project=True), str)


def test_what_is_sent() -> None:
    sent = json.loads(domain.body_bytes(document(details={"number": 3}), slack=False))
    assert (sent["type"], sent["timestamp"]) == ("version.ready", "2026-11-22T01:02:03Z")
    assert sent["data"]["text"] == "finch v3 is ready."
    assert (sent["data"]["project"], sent["data"]["actor"], sent["data"]["details"]) == ("wren", "bob", {"number": 3})
    assert sent["data"]["object"]["label"] == "finch v3"


def test_large_details_are_left_out() -> None:
    sent = document(details={"spec": "x" * domain.MAX_DETAILS_BYTES})
    assert len(domain.body_bytes(sent, slack=False)) < 1000


def test_slack_gets_one_line_that_calls_nobody() -> None:
    subject = {"type": "version", "id": "1", "label": "<!channel> a|b & c", "url": "https://flotilla.example/x"}
    sent = domain.body_bytes(document(subject=subject, details={"reason": "too <b>slow\nreally"}), slack=True)
    text = json.loads(sent)["text"]
    assert text == (
        "*wren*: <https://flotilla.example/x|&lt;!channel&gt; a¦b &amp; c is ready.>\n> too &lt;b&gt;slow\n> really"
    )


def test_pauses_grow_and_end() -> None:
    pauses = [domain.pause_after(attempts, 0.0) for attempts in range(1, domain.MAX_ATTEMPTS)]
    assert pauses == sorted(pauses) and None not in pauses  # type: ignore[type-var]
    assert timedelta(days=3) < sum((pause for pause in pauses if pause), timedelta()) < timedelta(days=4)
    assert domain.pause_after(domain.MAX_ATTEMPTS, 0.0) is None
    assert domain.pause_after(1, 1.0) == timedelta(seconds=5.5)
    assert domain.pause_after(1, 0.0, timedelta(minutes=10)) == timedelta(minutes=10)
    assert domain.pause_after(1, 0.0, timedelta(days=300)) == timedelta(days=1)
    assert domain.pause_after(4, 0.0, timedelta(seconds=1)) == timedelta(minutes=30)
    assert domain.rest_after(1) < domain.rest_after(100) == timedelta(minutes=5)


def test_every_event_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/webhooks.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    known = (*domain.PROJECT_EVENTS.values(), *domain.SITE_EVENTS.values())
    assert rows == [f"| `{kind.name}` | {kind.when} |" for kind in known]
