"""Ports for the servers of tests, held from when they are chosen, so that nobody else can take them meanwhile.

A socket that is bound and does not listen keeps a port: the kernel neither gives it to a connection nor to anybody who
asks for any port, and connecting to it is refused. A server that allows its address to be used again, as all of ours
do, can still listen there, also a second time after it was killed.
"""

from __future__ import annotations

import os
import socket

# Below the range from which the kernel takes the ports of outgoing connections.
_FIRST, _LAST = 10_000, 32_000
_held: list[socket.socket] = []


def held_port() -> int:
    """Return a loopback port that is this process's until it ends."""
    return _hold(0)


def held_ports(count: int) -> int:
    """Return the first of ``count`` such ports in a row. Processes that look at the same time begin apart."""
    begin = os.getpid() * 7 % (_LAST - _FIRST - 1000)
    for first in range(_FIRST + begin, _LAST, count):
        before = len(_held)
        try:
            for port in range(first, first + count):
                _hold(port)
        except OSError:
            for one in _held[before:]:
                one.close()
            del _held[before:]
            continue
        return first
    raise AssertionError("no free ports")


def _hold(port: int) -> int:
    one = socket.socket()
    try:
        one.bind(("127.0.0.1", port))
    except OSError:
        one.close()
        raise
    # Only now: had it been allowed before, two tests could hold the same port.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.append(one)
    return int(one.getsockname()[1])
