"""Keep-alive with a clock made by hand."""

from __future__ import annotations

import pytest

from serving_node.wire.http2 import Http2Connection, Http2Limits, KeepAlive, KeepAlivePolicy, KeepAliveStep
from serving_node.wire.http2.frames import PREFACE

from .test_http2 import Peer, frame, settings_frame

NOTHING, PING, CLOSE = KeepAliveStep.NOTHING, KeepAliveStep.PING, KeepAliveStep.CLOSE


def test_a_silent_client_with_calls_is_pinged_and_then_closed() -> None:
    alive = KeepAlive(KeepAlivePolicy(ping_seconds=10, timeout_seconds=5), 100.0)
    steps = [alive.due(now, has_calls=True) for now in (109.9, 110.0, 114.9, 115.0)]
    assert steps == [NOTHING, PING, NOTHING, CLOSE]


def test_a_client_that_answers_lives_on() -> None:
    alive = KeepAlive(KeepAlivePolicy(ping_seconds=10, timeout_seconds=5), 0.0)
    assert alive.due(10.0, has_calls=True) is PING
    alive.heard(11.0)
    assert [alive.due(now, has_calls=True) for now in (16.0, 20.9, 21.0)] == [NOTHING, NOTHING, PING]


@pytest.mark.parametrize(("permitted", "step"), [(False, NOTHING), (True, PING)])
def test_without_calls_only_with_permission(permitted: bool, step: KeepAliveStep) -> None:
    alive = KeepAlive(KeepAlivePolicy(ping_seconds=10, permit_without_calls=permitted), 0.0)
    assert alive.due(60.0, has_calls=False) is step


def test_strikes_for_pings_that_come_too_often() -> None:
    alive = KeepAlive(KeepAlivePolicy(min_ping_interval_seconds=10, max_strikes=2), 0.0)
    pings = [alive.is_abusive(now, has_calls=True) for now in (0.0, 10.0, 11.0, 30.0, 31.0, 32.0)]
    assert pings == [False, False, False, False, False, True]


def test_data_forgives_strikes() -> None:
    alive = KeepAlive(KeepAlivePolicy(min_ping_interval_seconds=10, max_strikes=1), 0.0)
    for now in (0.0, 1.0):
        assert not alive.is_abusive(now, has_calls=True)
    alive.sent_data()
    assert [alive.is_abusive(now, has_calls=True) for now in (2.0, 3.0, 4.0)] == [False, False, True]


def test_a_client_without_calls_may_ping_every_two_hours() -> None:
    alive = KeepAlive(KeepAlivePolicy(min_ping_interval_seconds=10, max_strikes=1), 0.0)
    assert [alive.is_abusive(now, has_calls=False) for now in (0.0, 60.0, 120.0)] == [False, False, True]
    permitted = KeepAlive(KeepAlivePolicy(min_ping_interval_seconds=10, max_strikes=1, permit_without_calls=True), 0.0)
    assert not any(permitted.is_abusive(now, has_calls=False) for now in (0.0, 60.0, 120.0))


def test_no_limit_of_strikes() -> None:
    alive = KeepAlive(KeepAlivePolicy(max_strikes=0), 0.0)
    assert not any(alive.is_abusive(float(now), has_calls=True) for now in range(100))


def test_too_many_pings_end_the_connection() -> None:
    allowed = iter([True, True, False])
    connection = Http2Connection(lambda stream, headers: None, Http2Limits(), lambda: next(allowed))
    connection.receive(memoryview(PREFACE + settings_frame() + frame(6, 0, 0, bytes(8)) * 3))
    output = b"".join(bytes(part) for part in connection.output)
    assert connection.closed
    assert output.count(frame(6, 1, 0, bytes(8))) == 2
    assert output.endswith(b"\0\0\0\x0btoo_many_pings")


def test_a_graceful_end_has_two_steps() -> None:
    peer = Peer().start()
    peer.connection.retire(b"max_age")
    (goaway, ping) = peer.take()
    assert goaway == (7, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0max_age")
    assert ping[:3] == (6, 0, 0)
    peer.send(peer.request(1, b"on its way"))
    assert peer.events[-1] == ("end", 1, b"on its way")
    peer.send(frame(6, 1, 0, b"another!"))
    assert not peer.connection.shutting_down
    peer.send(frame(6, 1, 0, ping[3]))
    assert peer.take() == [(7, 0, 0, b"\0\0\0\x01\0\0\0\0max_age")]
    peer.send(peer.request(3, b"late"))
    assert peer.take() == [(3, 0, 3, b"\0\0\0\x07")]
    assert not peer.connection.closed


def test_a_blocked_connection_sends_no_data() -> None:
    peer = Peer().start()
    peer.send(peer.request(1))
    stream = peer.sinks[1].stream
    peer.connection.block()
    peer.connection.block()
    peer.connection.respond(stream, b"\x88", [b"abc"], 3, b"\x88")
    assert [kind for kind, *_ in peer.take()] == [1]
    peer.send(frame(8, 0, 0, b"\0\0\0\x05"))
    assert peer.take() == []
    peer.connection.unblock()
    assert [kind for kind, *_ in peer.take()] == [0, 1]


def test_who_waits_is_told_when_an_answer_is_drained() -> None:
    peer = Peer().start()
    peer.send(peer.request(1))
    stream = peer.sinks[1].stream
    size = 65535 + 1024 * 1024 + 100
    peer.connection.send_data(stream, [bytes(size)], size)
    told: list[int] = []
    stream.on_drained = lambda: told.append(stream.queued)
    peer.send(frame(8, 0, 0, b"\x00\x20\0\0") + frame(8, 0, 1, b"\0\0\0\x63"))
    assert told == []
    peer.send(frame(8, 0, 1, b"\0\0\0\x63") * 2)
    assert told == [1024 * 1024 + 100 - 198]
