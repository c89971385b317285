"""What a scratch node said. It comes out of the sandbox, so nothing of it is taken on trust."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from django.utils.translation import gettext as _

from registry.domain.storable import storable_text


class ScratchFailed(Exception):
    """The scratch node did not answer; the message says why, ``log`` is what it printed."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """One output of an answer. ``least`` and ``most`` are of its finite numbers, None without any."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    nan: int
    inf: int
    least: float | None
    most: float | None

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {**asdict(self), "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request; with an ``error`` it has no outputs."""

    error: str
    milliseconds: float
    outputs: tuple[OutputFacts, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds that requests of one batch size took, one at a time, and the last refusal."""

    batch: int
    latencies: tuple[float, ...]
    failures: int
    refusal: str


@dataclass(frozen=True, slots=True)
class Report:
    """``reason`` says in one line why the model was not loaded, else it is empty.

    ``config`` is the one that the node completed, ``log`` is what node and model printed,
    ``peak_bytes`` the most memory that they held.
    """

    reason: str
    load_seconds: float
    config: dict[str, Any]
    answers: tuple[Answer, ...]
    profile: tuple[Profile, ...]
    log: str
    peak_bytes: int


def read_report(text: bytes, *, log: str, peak_bytes: int) -> Report:
    """Return the report in an answer of the sandbox.

    Raises:
        ScratchFailed: it is none.
    """
    try:
        document = json.loads(text)
        config = document.get("config", {})
        if not isinstance(config, dict):
            raise TypeError
        return Report(
            reason=_text(document["reason"]).strip().partition("\n")[0].strip(),
            load_seconds=_number(document["load_seconds"]),
            config=config,
            answers=tuple(_answer(one) for one in document.get("answers", [])),
            profile=tuple(_profile(one) for one in document.get("profile", [])),
            log=log,
            peak_bytes=peak_bytes,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ScratchFailed(_("The scratch node gave no good report."), log) from error


def _answer(document: dict[str, Any]) -> Answer:
    outputs = tuple(
        OutputFacts(
            name=_text(one["name"]),
            datatype=_text(one["datatype"]),
            shape=tuple(int(size) for size in one["shape"]),
            nan=int(one["nan"]),
            inf=int(one["inf"]),
            least=_maybe(one["least"]),
            most=_maybe(one["most"]),
        )
        for one in document["outputs"]
    )
    return Answer(_text(document["error"]), _number(document["milliseconds"]), outputs)


def _profile(document: dict[str, Any]) -> Profile:
    latencies = tuple(_number(one) for one in document["latencies"])
    return Profile(int(document["batch"]), latencies, int(document["failures"]), _text(document["refusal"]))


def _text(value: Any) -> str:
    return storable_text(str(value)[:2000])


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError
    return number


def _maybe(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def is_missing(reason: str) -> bool:
    """Return whether a reason why nothing was loaded is this host: it lacks the engine, and nothing is known then."""
    return "is not installed on this node" in reason
