"""Scripted arrivals: which requests share a batch? Each schedule has one answer that does not depend on luck.

Nearly all begin with a request that keeps the instance busy while the others queue up. Arrivals are far enough apart
that no server confuses their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

# A machine that is busy with other things may stop for some tenths of a second: nothing may depend on less.
_GAP_MS = 60
_FIRST_MS = 500
_HOLD_MS = 1600
# Each of the other batches takes a moment, too, so that what waits behind it has settled when it ends.
_STEP_MS = 100


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request. ``hold_ms``: how long its batch takes at least; ``width`` of the input X where the model has it."""

    at_ms: int = 0
    rows: int = 1
    hold_ms: int = 0
    priority: int = 0
    timeout_us: int = 0
    width: int = 1
    more: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """Arrivals for a model with the given config. ``is_ordered``: the order of the answers counts, too.

    ``difference``: the first cell of the row of docs/reference/differences.md that says why we differ.
    """

    id: str
    config: str
    arrivals: tuple[Arrival, ...]
    instances: int = 1
    is_ordered: bool = False
    difference: str = ""

    @property
    def is_gated(self) -> bool:
        """Whether the first batch may last until everybody else has arrived, however long that takes."""
        return "queue_delay" not in self.config and self.instances == 1 and self.arrivals[0].hold_ms >= _HOLD_MS

    @property
    def is_timed(self) -> bool:
        """Whether the time between two events counts, and not only their order."""
        return "timeout" in self.config


def inputs(schedule: Schedule, arrival: Arrival) -> list[tuple[str, str, list[int], int]]:
    """Return the inputs of a request as name, datatype, shape and the value of all elements.

    A ``HOLD`` of -1 lasts until it is released, others so many milliseconds.
    """
    hold = -1 if schedule.is_gated and arrival is schedule.arrivals[0] else arrival.hold_ms
    given = [("HOLD", "INT32", [arrival.rows, 1], hold)]
    if '"X"' in schedule.config:
        given.append(("X", "FP32", [arrival.rows, arrival.width], 1))
    if arrival.more:
        given.append(("MORE", "FP32", [arrival.rows, 1], 1))
    return given


def _held(
    *waiting: Arrival, hold_ms: int = _HOLD_MS, instances: int = 1, first: Arrival = Arrival()
) -> tuple[Arrival, ...]:
    """Return requests that keep all instances busy, and then the others, one after the other."""
    holders = [replace(first, at_ms=_FIRST_MS * place, hold_ms=hold_ms) for place in range(instances)]
    start = _FIRST_MS * instances
    return (
        *holders,
        *(
            replace(one, at_ms=one.at_ms or start + _GAP_MS * place, hold_ms=_STEP_MS)
            for place, one in enumerate(waiting)
        ),
    )


def _outlasted(*waiting: Arrival) -> tuple[Arrival, ...]:
    """The same, but the first batch takes so long that who came early is out of time, and who came late is not."""
    return _held(*waiting, hold_ms=3000)


def _many(count: int, **more: int) -> tuple[Arrival, ...]:
    return tuple(Arrival(**more) for _ in range(count))  # type: ignore[arg-type]


def _rows(*rows: int) -> tuple[Arrival, ...]:
    return tuple(Arrival(rows=count) for count in rows)


def _wide(*widths: int) -> tuple[Arrival, ...]:
    return tuple(Arrival(width=width) for width in widths)


def _urgency(*priorities: int) -> tuple[Arrival, ...]:
    return tuple(Arrival(priority=priority) for priority in priorities)


def _at(*times: int) -> tuple[Arrival, ...]:
    return tuple(Arrival(at_ms=time) for time in times)


def _slow(*times: int) -> tuple[Arrival, ...]:
    return tuple(Arrival(at_ms=time, hold_ms=_STEP_MS) for time in times)


def _dynamic(rules: str = "", size: int = 4, more: str = "") -> str:
    return f"max_batch_size: {size} dynamic_batching {{ {rules} }} {more}"


def _policy(rules: str) -> str:
    return f"default_queue_policy {{ {rules} }}"


_X = 'input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }'
_RAGGED = 'input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }'
_MORE = 'input { name: "MORE" data_type: TYPE_FP32 dims: [ 1 ] optional: true }'
_EARLY = "batches with `preferred_batch_size` that form while all instances are busy"
_FORMED_EARLY = (
    "preferred-2-4-of-4-with-7",
    "preferred-2-6-of-8-with-9",
    "preferred-4-rows-3-3-2",
    "preferred-4-rows-2-3-2",
    "preferred-6-rows-3-2-2-3",
)
_LEVELS = "priority_levels: 3 default_priority_level: 2"
_REJECT = "timeout_action: REJECT default_timeout_microseconds: 1500000"
_DELAY = "timeout_action: DELAY default_timeout_microseconds: 1500000"
_OVERRIDE = "allow_timeout_override: true"


def _sizes() -> Iterable[Schedule]:
    for size, count in ((1, 3), (2, 5), (4, 3), (4, 4), (4, 5), (4, 9), (8, 7), (8, 9)):
        yield Schedule(f"size-{size}-of-{count}", _dynamic(size=size), _held(*_many(count)))
    for rows in ((2, 2), (3, 2), (3, 3, 2), (1, 4, 1), (2, 3, 1, 2), (4, 4), (1, 1, 3, 3), (3, 1, 1, 4, 2, 2)):
        yield Schedule(f"rows-{'-'.join(map(str, rows))}", _dynamic(), _held(*_rows(*rows)))


def _preferred() -> Iterable[Schedule]:
    for preferred, size, count in (
        ("2", 4, 5),
        ("2", 4, 6),
        ("3", 4, 4),
        ("2, 4", 4, 3),
        ("2, 4", 4, 7),
        ("4", 8, 6),
        ("2, 6", 8, 5),
        ("2, 6", 8, 9),
    ):
        name = f"preferred-{preferred.replace(', ', '-')}-of-{size}-with-{count}"
        config = _dynamic(f"preferred_batch_size: [ {preferred} ]", size)
        yield Schedule(name, config, _held(*_many(count)), difference=_EARLY if name in _FORMED_EARLY else "")
    for preferred, rows in (("4", (3, 3, 2)), ("4", (2, 3, 2)), ("6", (3, 2, 2, 3)), ("2, 4", (1, 2, 1, 4))):
        name = f"preferred-{preferred.replace(', ', '-')}-rows-{'-'.join(map(str, rows))}"
        config = _dynamic(f"preferred_batch_size: [ {preferred} ]", 8)
        yield Schedule(name, config, _held(*_rows(*rows)), difference=_EARLY if name in _FORMED_EARLY else "")


def _delays() -> Iterable[Schedule]:
    wait = "max_queue_delay_microseconds: 1200000"
    yield Schedule("delay-gathers", _dynamic(wait), _at(0, 200, 400))
    yield Schedule("delay-full-at-once", _dynamic(wait), _at(0, 100, 200, 300, 400))
    yield Schedule("delay-from-the-oldest", _dynamic(wait, 8), _at(0, 200, 600, 1800, 2200))
    yield Schedule("delay-rows", _dynamic(wait), (Arrival(0, rows=2), Arrival(200, rows=3), Arrival(400)))
    yield Schedule("delay-preferred", _dynamic(f"{wait} preferred_batch_size: [ 2 ]"), _at(0, 300, 2500))
    yield Schedule("delay-below-preferred", _dynamic(f"{wait} preferred_batch_size: [ 6 ]", 8), _at(0, 200, 400))
    yield Schedule("delay-preferred-sizes", _dynamic(f"{wait} preferred_batch_size: [ 2, 4 ]", 8), _at(0, 200, 400))
    yield Schedule(
        "delay-passes-preferred",
        _dynamic(f"{wait} preferred_batch_size: [ 3 ]", 8),
        (Arrival(0, rows=2), Arrival(300, rows=2), Arrival(2500)),
    )
    yield Schedule("delay-while-busy", _dynamic(wait, 8), (Arrival(0, rows=8, hold_ms=2500), *_at(500, 600, 700)))
    yield Schedule("delay-shape", _dynamic(wait, more=_X), (Arrival(0), Arrival(300, width=2), Arrival(500, width=2)))
    yield Schedule("delay-alone", _dynamic("max_queue_delay_microseconds: 300000"), _at(0, 1000, 2000))


def _priorities() -> Iterable[Schedule]:
    one = _dynamic(_LEVELS, 1)
    yield Schedule("priority-order", one, _held(*_urgency(3, 2, 1)))
    yield Schedule("priority-default-is-2", one, _held(*_urgency(3, 0, 1, 2)))
    yield Schedule("priority-unknown-is-2", one, _held(*_urgency(3, 9, 1)))
    yield Schedule("priority-fifo-inside", one, _held(*_urgency(2, 1, 2, 1)))
    yield Schedule("priority-shares-batches", _dynamic(_LEVELS, 2), _held(*_urgency(3, 3, 1)))
    yield Schedule(
        "priority-rows",
        _dynamic(_LEVELS),
        _held(Arrival(rows=3, priority=3), Arrival(rows=2), Arrival(rows=2, priority=1)),
    )
    yield Schedule("priority-preferred", _dynamic(f"{_LEVELS} preferred_batch_size: [ 2 ]"), _held(*_urgency(3, 1, 2)))
    yield Schedule("priority-without-levels", _dynamic(size=1), _held(*_urgency(3, 2, 1)))
    yield Schedule(
        "priority-shapes",
        _dynamic(_LEVELS, 4, _X),
        _held(Arrival(priority=3), Arrival(priority=1, width=2), Arrival(priority=2)),
    )


def _timeouts() -> Iterable[Schedule]:
    reject, delay = _dynamic(_policy(_REJECT)), _dynamic(_policy(_DELAY))
    yield Schedule("reject-all", reject, _outlasted(*_many(3)))
    yield Schedule("reject-the-old", reject, _outlasted(*_at(500, 560, 2600, 2660)))
    yield Schedule("reject-not-overridden", reject, _outlasted(Arrival(2600, timeout_us=1000), Arrival(2660)))
    override = _dynamic(_policy(f"timeout_action: REJECT default_timeout_microseconds: 9000000 {_OVERRIDE}"))
    yield Schedule(
        "reject-overridden", override, _outlasted(Arrival(timeout_us=300_000), Arrival(), Arrival(timeout_us=300_000))
    )
    yield Schedule(
        "reject-override-cannot-lengthen",
        _dynamic(_policy(f"{_REJECT} {_OVERRIDE}")),
        _outlasted(Arrival(timeout_us=8_000_000), Arrival(2600)),
    )
    yield Schedule(
        "override-without-default", _dynamic(_policy(_OVERRIDE)), _outlasted(Arrival(timeout_us=1000), Arrival())
    )
    yield Schedule(
        "reject-rows", reject, _outlasted(Arrival(500, rows=3), Arrival(2600, rows=3), Arrival(2660, rows=2))
    )
    yield Schedule(
        "reject-preferred",
        _dynamic(f"preferred_batch_size: [ 2 ] {_policy(_REJECT)}"),
        _outlasted(*_at(500, 2600, 2660, 2720)),
    )
    yield Schedule("delay-action", _dynamic(_policy(_DELAY), 1), _outlasted(*_at(500, 560, 2600, 2660)))
    yield Schedule("delay-action-shares", delay, _outlasted(*_at(500, 560, 2600, 2660, 2720)))
    yield Schedule("delay-action-all", delay, _outlasted(*_many(3)))
    overridden = _dynamic(_policy(f"timeout_action: DELAY default_timeout_microseconds: 9000000 {_OVERRIDE}"), 1)
    yield Schedule(
        "delay-action-overridden",
        overridden,
        _outlasted(Arrival(timeout_us=300_000), Arrival(), Arrival(timeout_us=300_000), Arrival()),
    )
    levels = f"{_LEVELS} priority_queue_policy {{ key: 1 value {{ {_DELAY} }} }}"
    yield Schedule(
        "delay-action-before-lower-levels",
        _dynamic(levels, 1),
        _outlasted(*_urgency(1, 2, 3), Arrival(2600, priority=1)),
    )
    levels = f"{_LEVELS} priority_queue_policy {{ key: 3 value {{ {_REJECT} }} }}"
    yield Schedule("reject-one-level", _dynamic(levels), _outlasted(*_urgency(3, 2, 1), Arrival(2600, priority=3)))
    yield Schedule(
        "reject-default-policy-of-levels",
        _dynamic(f"{_LEVELS} {_policy(_REJECT)}"),
        _outlasted(*_urgency(3, 1), Arrival(2600)),
    )


def _limits() -> Iterable[Schedule]:
    for limit, count in ((1, 3), (2, 3), (3, 6)):
        yield Schedule(f"queue-{limit}-of-{count}", _dynamic(_policy(f"max_queue_size: {limit}")), _held(*_many(count)))
    yield Schedule("queue-counts-requests", _dynamic(_policy("max_queue_size: 2")), _held(*_rows(4, 4, 4)))
    levels = f"{_LEVELS} priority_queue_policy {{ key: 1 value {{ max_queue_size: 1 }} }}"
    yield Schedule("queue-of-one-level", _dynamic(levels), _held(*_urgency(1, 1, 2, 2, 3)))
    yield Schedule(
        "queue-default-of-levels",
        _dynamic(f"{_LEVELS} {_policy('max_queue_size: 1')}"),
        _held(*_urgency(1, 1, 2, 2, 3, 3)),
    )
    yield Schedule(
        "queue-preferred", _dynamic(f"preferred_batch_size: [ 2 ] {_policy('max_queue_size: 3')}"), _held(*_many(5))
    )
    yield Schedule(
        "queue-with-delay",
        _dynamic(f"max_queue_delay_microseconds: 1200000 {_policy('max_queue_size: 2')}"),
        _at(0, 200, 400, 600),
    )


def _shapes() -> Iterable[Schedule]:
    shaped = _dynamic(more=_X)
    for widths in ((1, 1, 2, 2), (1, 2, 1, 2), (1, 2, 2, 2, 2, 2), (3, 3, 3, 3, 3)):
        yield Schedule(f"shapes-{'-'.join(map(str, widths))}", shaped, _held(*_wide(*widths)))
    yield Schedule("shapes-first-differs", shaped, _held(*_wide(2, 2, 1), first=Arrival(width=5)))
    yield Schedule(
        "shapes-rows",
        shaped,
        _held(Arrival(rows=2), Arrival(rows=2), Arrival(rows=1, width=2), Arrival(rows=3, width=2)),
    )
    yield Schedule("shapes-preferred", _dynamic("preferred_batch_size: [ 2 ]", more=_X), _held(*_wide(1, 1, 1, 2, 2)))
    yield Schedule("ragged", _dynamic(more=_RAGGED), _held(*_wide(1, 2, 3, 4, 5)))
    yield Schedule(
        "ragged-rows",
        _dynamic(more=_RAGGED),
        _held(Arrival(rows=2, width=3), Arrival(width=1), Arrival(rows=2, width=2)),
    )
    optional = _dynamic(more=_MORE)
    for sets in ((0, 0, 1, 1), (0, 1, 0, 1), (1, 1, 1, 1, 1)):
        name = f"optional-{'-'.join(map(str, sets))}"
        yield Schedule(name, optional, _held(*(Arrival(more=bool(given)) for given in sets)))
    both = _dynamic(more=f"{_RAGGED} {_MORE}")
    yield Schedule(
        "ragged-optional",
        both,
        _held(Arrival(width=1), Arrival(width=2), Arrival(width=3, more=True), Arrival(width=4, more=True)),
    )


def _instances() -> Iterable[Schedule]:
    both = (Arrival(0, hold_ms=1600), Arrival(400, hold_ms=2400), *_slow(900, 960, 1020, 1080, 1140))
    yield Schedule("instances-2-held", _dynamic(), both, instances=2)
    yield Schedule("instances-2-sizes", _dynamic(size=2), both, instances=2)
    yield Schedule(
        "instances-3-priorities",
        _dynamic(_LEVELS, 1),
        (*(Arrival(400 * n, hold_ms=1800 + 400 * n) for n in range(3)), *_slow(1300)),
        instances=3,
    )
    yield Schedule(
        "instances-2-delay", _dynamic("max_queue_delay_microseconds: 1200000"), _at(0, 200, 400), instances=2
    )
    alone = "max_batch_size: 4"
    yield Schedule("no-batching", alone, _held(*_many(4)))
    yield Schedule("no-batching-rows", alone, _held(*_rows(2, 4, 1)))
    yield Schedule("no-batching-priority", alone, _held(*_urgency(3, 2, 1)))
    yield Schedule("no-batching-timeout", alone, _held(*_many(2, timeout_us=1000)))
    yield Schedule("no-batching-instances-2", alone, both[:4], instances=2)
    ordered = _dynamic("preserve_ordering: true", 1)
    slow_first = (Arrival(0, hold_ms=2400), *_slow(600, 1000, 1400))
    yield Schedule("ordered-slow-first", ordered, slow_first, instances=2, is_ordered=True)
    yield Schedule("unordered-slow-first", _dynamic(size=1), slow_first, instances=2, is_ordered=True)
    yield Schedule("ordered-batches", _dynamic("preserve_ordering: true"), _held(*_many(5)))


SCHEDULES: tuple[Schedule, ...] = tuple(
    schedule
    for group in (_sizes, _preferred, _delays, _priorities, _timeouts, _limits, _shapes, _instances)
    for schedule in group()
)
