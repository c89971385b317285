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
class Difference:
    """How an output differs from the one that is wanted: ``wrong`` of its ``elements`` are too far off.

    ``largest`` is the greatest distance of two numbers, None for texts. ``index``, ``got`` and ``wanted`` are of the
    first that is wrong; without an index it is type and shape.
    """

    elements: int
    wrong: int
    largest: float | None
    index: int | None
    got: str
    wanted: str


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """One output of an answer. ``least`` and ``most`` are of its finite numbers, None without any.

    ``difference`` is None where no value of it is wanted.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    nan: int
    inf: int
    least: float | None
    most: float | None
    difference: Difference | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        found = {**asdict(self), "shape": list(self.shape)}
        if self.difference is None:
            del found["difference"]
        return found


@dataclass(frozen=True, slots=True)
class Stream:
    """How the answers of a decoupled model came to one request; milliseconds.

    ``other_outputs`` are those of answers with other types or shapes than the first.
    """

    answers: int
    is_final: bool
    first_milliseconds: float | None
    between_milliseconds: tuple[float, ...]
    other_outputs: tuple[tuple[OutputFacts, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request; with an ``error`` it has no outputs. Of a ``stream`` they are the first answer's."""

    error: str
    milliseconds: float
    outputs: tuple[OutputFacts, ...]
    stream: Stream | None = None


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """Seconds to the first answer of each request, seconds between answers, and answers to each request."""

    firsts: tuple[float, ...]
    between: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds that requests of one batch size took, one at a time, and the last refusal.

    Of a decoupled model ``latencies`` are those of the last answers.
    """

    batch: int
    latencies: tuple[float, ...]
    failures: int
    refusal: str
    stream: StreamTimes | None = None


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
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ScratchFailed(_("The scratch node gave no good report."), log) from error


def _answer(document: dict[str, Any]) -> Answer:
    outputs = _outputs(document["outputs"])
    stream = document.get("stream")
    found = _stream(stream) if stream is not None else None
    return Answer(_text(document["error"]), _number(document["milliseconds"]), outputs, found)


def _outputs(documents: list[dict[str, Any]]) -> tuple[OutputFacts, ...]:
    return tuple(
        OutputFacts(
            name=_text(one["name"]),
            datatype=_text(one["datatype"]),
            shape=tuple(int(size) for size in one["shape"]),
            nan=int(one["nan"]),
            inf=int(one["inf"]),
            least=_maybe(one["least"]),
            most=_maybe(one["most"]),
            difference=_difference(one["difference"]) if "difference" in one else None,
        )
        for one in documents
    )


def _difference(document: dict[str, Any]) -> Difference:
    index = document["index"]
    return Difference(
        elements=int(document["elements"]),
        wrong=int(document["wrong"]),
        largest=_maybe(document["largest"]),
        index=None if index is None else int(index),
        got=_text(document["got"]),
        wanted=_text(document["wanted"]),
    )


def _stream(document: dict[str, Any]) -> Stream:
    first = document["first_milliseconds"]
    return Stream(
        answers=int(document["answers"]),
        is_final=document["is_final"] is True,
        first_milliseconds=None if first is None else _number(first),
        between_milliseconds=_numbers(document["between_milliseconds"]),
        other_outputs=tuple(_outputs(one) for one in document["other_outputs"]),
    )


def _profile(document: dict[str, Any]) -> Profile:
    times = document.get("stream")
    stream = None
    if times is not None:
        counts = tuple(int(one) for one in times["counts"])
        stream = StreamTimes(_numbers(times["firsts"]), _numbers(times["between"]), counts)
    latencies = _numbers(document["latencies"])
    return Profile(int(document["batch"]), latencies, int(document["failures"]), _text(document["refusal"]), stream)


def _numbers(values: list[Any]) -> tuple[float, ...]:
    return tuple(_number(one) for one in values)


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
