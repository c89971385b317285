"""What a case is made of: calls that are answered, and deeds between them. All are plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# An answer as it is written into the recorded files: only what JSON has.
Answer = dict[str, Any]
View = Callable[[Answer], Answer]


@dataclass(frozen=True, slots=True)
class Http:
    """One HTTP request on a connection of its own. ``view`` keeps what is worth comparing of its answer.

    ``eventually`` says that the answer settles some time after the calls before (counts, states): it is asked again
    until it is the expected one or a deadline has passed.
    """

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    view: View | None = None
    eventually: bool = False


@dataclass(frozen=True, slots=True)
class RawHttp:
    """Bytes as they are put on a connection, and how many answers are read from it; ``parts`` go out one by one."""

    parts: tuple[bytes, ...]
    answers: int = 1
    method: str = "GET"


@dataclass(frozen=True, slots=True)
class Grpc:
    """One unary call. ``message`` is a request of the service, or bytes that stand for one."""

    method: str
    message: Any = None
    service: str = "inference.GRPCInferenceService"
    metadata: tuple[tuple[str, str], ...] = ()
    compressed: bool = False
    timeout: float = 20.0
    view: View | None = None
    eventually: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """One ModelStreamInfer call. ``sort`` for answers whose order nobody promises."""

    messages: tuple[Any, ...]
    metadata: tuple[tuple[str, str], ...] = ()
    sort: bool = False
    timeout: float = 20.0
    view: View | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """The series of ``models`` at the metrics port."""

    models: tuple[str, ...]
    eventually: bool = True


@dataclass(frozen=True, slots=True)
class Write:
    """Put a file into the server's repository."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Take a file or a folder out of the server's repository."""

    path: str


@dataclass(frozen=True, slots=True)
class Region:
    """Make a POSIX shared memory object of the test's own, or look at its bytes when ``content`` is None."""

    key: str
    size: int
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Until:
    """Wait until the repository index says ``state`` of all versions of a model, or lists none ("gone")."""

    model: str
    state: str


@dataclass(frozen=True, slots=True)
class Together:
    """Calls that are made at the same time, begun ``apart`` seconds after one another; answers in order of calls."""

    calls: tuple[Http | Grpc | Stream, ...]
    apart: float = 0.0


Step = Http | RawHttp | Grpc | Stream | Metrics | Write | Remove | Region | Until | Together


@dataclass(frozen=True, slots=True)
class Case:
    """Steps against one server, in order, with ``models`` loaded before.

    ``difference`` names the row of differences.md ("Where") that says why the answers are not equal. ``waits_for`` is
    the number of the issue without which the node cannot answer alike. ``fresh`` loads the models anew before.
    ``profile`` is the kind of server, see servers.py. ``fatal``: the reference server does not survive it.
    """

    id: str
    steps: tuple[Step, ...]
    models: tuple[str, ...] = ()
    difference: str = ""
    waits_for: int = 0
    fresh: bool = False
    profile: str = "explicit"
    fatal: bool = False
