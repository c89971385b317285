"""One attempt over real sockets: where it goes, what it refuses, and that nothing a receiver does hurts."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from flotilla import certificates
from registry.domain.addresses import parse_networks
from tests.workers.webhooks.receiver import OK, Receiver, receiving
from workers.webhooks import sending
from workers.webhooks.sending import Resolve, send

LOOPBACK = parse_networks(["127.0.0.0/8", "::1/128"])


def to(*addresses: str) -> Resolve:
    """A resolver that knows only these."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


def test_it_arrives_under_the_name_that_was_asked_for() -> None:
    with receiving(Receiver()) as receiver:
        url = f"http://hooks.example:{receiver.port}/a/b?c=d"
        outcome = send(url, {"webhook-id": "msg_1"}, b'{"x":1}', allowed=LOOPBACK, resolve=to("127.0.0.1"))
    assert (outcome.status, outcome.error, outcome.is_success) == (204, "", True)
    [(headers, body)] = receiver.requests
    assert headers[":line"] == "POST /a/b?c=d HTTP/1.1"
    assert headers["host"] == f"hooks.example:{receiver.port}"
    assert (headers["webhook-id"], body) == ("msg_1", b'{"x":1}')


def test_the_real_resolver_and_ipv6() -> None:
    with receiving(Receiver()) as receiver:
        assert send(f"http://localhost:{receiver.port}/", {}, b"", allowed=LOOPBACK).is_success
    with receiving(Receiver(host="::1")) as receiver:
        assert send(f"http://[::1]:{receiver.port}/", {}, b"", allowed=LOOPBACK).is_success


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["::1"], ["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"],
        ["8.8.8.8", "127.0.0.1"], ["fe80::1%eth0"],
    ],
)  # fmt: skip
def test_a_name_that_leads_inside_is_refused_without_a_connection(addresses: list[str]) -> None:
    with receiving(Receiver()) as receiver:
        outcome = send(f"https://hooks.example:{receiver.port}/", {}, b"", resolve=to(*addresses))
    assert outcome.status is None and "not public" in outcome.error
    assert receiver.requests == []


def test_a_name_is_resolved_once_so_that_it_cannot_change_its_mind() -> None:
    answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1"]])
    asked = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return next(answers)

    with receiving(Receiver()) as receiver:
        url = f"https://hooks.example:{receiver.port}/"
        outcome = send(url, {}, b"", allowed=parse_networks(["127.0.0.1/32"]), resolve=resolve)
    assert "not public" in outcome.error
    assert asked == ["hooks.example"] and receiver.requests == []


def test_plain_http_goes_to_ones_own_networks_only() -> None:
    outcome = send("http://hooks.example/", {}, b"", allowed=LOOPBACK, resolve=to("8.8.8.8"))
    assert outcome.status is None and "https" in outcome.error
    assert "https" in send("http://hooks.example/", {}, b"", resolve=to("8.8.8.8")).error


def test_redirects_are_not_followed() -> None:
    with receiving(Receiver()) as inside:
        answer = f"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:{inside.port}/\r\nContent-Length: 0\r\n\r\n"
        with receiving(Receiver(answer.encode())) as receiver:
            outcome = send(f"http://127.0.0.1:{receiver.port}/", {}, b"", allowed=LOOPBACK)
    assert (outcome.status, outcome.is_success, inside.requests) == (307, False, [])


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 2xx\r\n\r\n", b"\0" * 100,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000,
    ],
)  # fmt: skip
def test_nonsense_is_a_failed_attempt(answer: bytes) -> None:
    with receiving(Receiver(answer)) as receiver:
        outcome = send(f"http://127.0.0.1:{receiver.port}/", {}, b"", allowed=LOOPBACK)
    assert outcome.status is None and outcome.error


def test_nobody_there_is_a_failed_attempt() -> None:
    with receiving(Receiver()) as receiver:
        port = receiver.port
    assert "cannot be reached" in send(f"http://127.0.0.1:{port}/", {}, b"", allowed=LOOPBACK).error
    assert "cannot be reached" in send("https://hooks.invalid/", {}, b"").error
    assert "no address" in send("https://hooks.example/", {}, b"", resolve=to()).error


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\na: ", b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n"]
)
def test_one_that_drips_is_left(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "ATTEMPT_SECONDS", 0.4)
    with receiving(Receiver(answer, drips=True)) as receiver:
        outcome = send(f"http://127.0.0.1:{receiver.port}/", {}, b"", allowed=LOOPBACK)
    assert outcome.status is None and "No answer within" in outcome.error


def test_only_the_beginning_of_an_endless_answer_is_read() -> None:
    endless = Receiver(b"HTTP/1.1 200 OK\r\n\r\n" + b"y" * (2 * sending.MAX_ANSWER_BYTES), drips=True)
    with receiving(endless) as receiver:
        outcome = send(f"http://127.0.0.1:{receiver.port}/", {}, b"", allowed=LOOPBACK)
    assert outcome.is_success and outcome.answer == "y" * sending.MAX_ANSWER_BYTES


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("120", timedelta(minutes=2)),
        ("-5", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("9" * 30, None),
        ("²", None),
    ],
)
def test_a_receiver_may_ask_for_patience(value: str, expected: timedelta | None) -> None:
    answer = f"HTTP/1.1 429 Slow\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    with receiving(Receiver(answer)) as receiver:
        outcome = send(f"http://127.0.0.1:{receiver.port}/", {}, b"", allowed=LOOPBACK)
    assert (outcome.status, outcome.retry_after) == (429, expected)


def test_the_certificate_is_checked_against_the_name(tmp_path: Path) -> None:
    certificates.main([str(tmp_path), "hooks.example"])
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    [chain] = [path for path in tmp_path.glob("*.pem") if path.name != "ca.pem"]
    tls.load_cert_chain(chain, chain.with_suffix(".key"))
    with receiving(Receiver(OK, tls=tls)) as receiver:

        def outcome(host: str, trust: ssl.SSLContext | None) -> sending.Outcome:
            url = f"https://{host}:{receiver.port}/"
            return send(url, {}, b"", allowed=LOOPBACK, resolve=to("127.0.0.1"), trust=trust)

        assert outcome("hooks.example", trust).is_success
        assert "cannot be reached" in outcome("other.example", trust).error
        assert "cannot be reached" in outcome("hooks.example", None).error
    assert len(receiver.requests) == 1
