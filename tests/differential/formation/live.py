"""Schedules played on a running server, Triton or the node: which requests did it put together?"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Sequence
from math import prod
from pathlib import Path
from typing import Any

from tests.differential.formation.schedules import Arrival, Schedule, inputs
from tests.differential.models import python, tensor
from tests.differential.servers import Server

Formation = dict[str, Any]
Send = Callable[[int], Coroutine[Any, Any, None]]

_REPOSITORY = "/v2/repository/models"
AT_ONCE = 8
# What a server may need to put a request that it counts as waiting where it belongs.
_SETTLE_SECONDS = 0.04
_LOAD_SECONDS = 120


def write_models(folder: Path, schedules: Sequence[Schedule]) -> None:
    """Write a repository with one model for each schedule."""
    for schedule in schedules:
        for name, text in files(schedule).items():
            path = folder / schedule.id / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def files(schedule: Schedule) -> dict[str, str]:
    """Return the model of a schedule."""
    lines = [schedule.config, tensor("input", "HOLD", "INT32", "1"), tensor("output", "OUT", "INT64", "2")]
    return python("former", lines, instances=schedule.instances)


def play(server: Server, schedules: Sequence[Schedule], times: int = 1) -> dict[str, list[Formation]]:
    """Load schedules' models, play all at once so many times, and return what each formed each time.

    Nothing is loaded meanwhile: a load keeps one of the few HTTP threads of Triton busy, with all its connections.
    """

    async def all_of_them() -> dict[str, list[Formation]]:
        await asyncio.gather(*(_ask(server.port, "POST", f"{_REPOSITORY}/{one.id}/load", {}) for one in schedules))
        rounds = [await asyncio.gather(*(_play(server, one) for one in schedules)) for _ in range(times)]
        await asyncio.gather(*(_ask(server.port, "POST", f"{_REPOSITORY}/{one.id}/unload", {}) for one in schedules))
        return {one.id: [formed[place] for formed in rounds] for place, one in enumerate(schedules)}

    return asyncio.run(all_of_them())


def formation(
    began: dict[int, int], rows: dict[int, int], failed: dict[int, str], order: list[int], schedule: Schedule
) -> Formation:
    """Return the batches in the order in which they began; ``began`` maps requests to when their batch did."""
    batches: dict[int, list[int]] = {}
    for request in sorted(began):
        batches.setdefault(began[request], []).append(request)
    formed = [batches[start] for start in sorted(batches)]
    result: Formation = {"batches": formed, "rows": [rows[batch[0]] for batch in formed]}
    if failed:
        result["failed"] = {str(request): failed[request] for request in sorted(failed)}
    if schedule.is_ordered:
        result["order"] = order
    return result


async def _play(server: Server, schedule: Schedule) -> Formation:
    began: dict[int, int] = {}
    rows: dict[int, int] = {}
    failed: dict[int, str] = {}
    order: list[int] = []

    async def send(number: int) -> None:
        connection = await asyncio.open_connection("127.0.0.1", server.port)
        path = f"/v2/models/{schedule.id}/infer"
        status, answer = await _exchange(*connection, "POST", path, _body(schedule, number))
        order.append(number)
        if status == 200:
            began[number], rows[number] = answer["outputs"][0]["data"][:2]
        else:
            failed[number] = answer["error"]

    before = await _sizes(server.port, schedule.id)
    await (_arrive_in_order(server, schedule, send) if schedule.is_gated else _arrive_in_time(schedule, send))
    formed = formation(began, rows, failed, order, schedule)
    counted = await _sizes(server.port, schedule.id, sum(before.values()) + len(formed["batches"]))
    formed["sizes"] = {
        size: count - before.get(size, 0) for size, count in counted.items() if count > before.get(size, 0)
    }
    return formed


async def _arrive_in_order(server: Server, schedule: Schedule, send: Send) -> None:
    """Send each request when the one before is where it should be, and let the first batch end after the last one."""
    folder = server.folder / schedule.id
    (folder / "entered").unlink(missing_ok=True)
    (folder / "release").unlink(missing_ok=True)
    sent = [asyncio.create_task(send(0))]
    async with asyncio.timeout(_LOAD_SECONDS):
        while not (folder / "entered").exists():
            await asyncio.sleep(0.005)
        times = [arrival.at_ms / 1000 for arrival in schedule.arrivals]
        for number in range(1, len(times)):
            if schedule.is_timed and number > 1:
                await asyncio.sleep(times[number] - times[number - 1])
            sent.append(asyncio.create_task(send(number)))
            while await _pending(server.port + 2, schedule.id) + sum(task.done() for task in sent) < number:
                await asyncio.sleep(0.005)
            await asyncio.sleep(_SETTLE_SECONDS)
        if schedule.is_timed:
            await asyncio.sleep(schedule.arrivals[0].hold_ms / 1000 - times[-1])
        (folder / "release").touch()
        await asyncio.gather(*sent)


async def _arrive_in_time(schedule: Schedule, send: Send) -> None:
    async def later(number: int, arrival: Arrival) -> None:
        await asyncio.sleep(arrival.at_ms / 1000)
        await send(number)

    await asyncio.gather(*(later(number, arrival) for number, arrival in enumerate(schedule.arrivals)))


async def _pending(port: int, model: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    counts = re.findall(rf'^nv_inference_pending_request_count{{[^}}]*model="{model}"[^}}]*}} (\d+)', text, re.M)
    return sum(map(int, counts))


async def _sizes(port: int, model: str, batches: int = 0) -> dict[str, int]:
    """Return how many batches of each size the server itself counted, as soon as it has counted all."""
    async with asyncio.timeout(20):
        while True:
            answer = await _ask(port, "GET", f"/v2/models/{model}/stats")
            counted = {
                str(size["batch_size"]): size["compute_infer"]["count"]
                for size in answer["model_stats"][0].get("batch_stats", [])
            }
            if sum(counted.values()) >= batches:
                return dict(sorted(counted.items()))
            await asyncio.sleep(0.02)


async def _ask(port: int, method: str, path: str, body: object | None = None) -> Any:
    async with asyncio.timeout(_LOAD_SECONDS):
        connection = await asyncio.open_connection("127.0.0.1", port)
        status, answer = await _exchange(*connection, method, path, body)
    assert status == 200, (path, status, answer)
    return answer


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: object | None
) -> tuple[int, Any]:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    header = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in header.decode().split("\r\n") if line.lower().startswith("content-length"))
    answer = await reader.readexactly(length)
    writer.close()
    return int(header[9:12]), json.loads(answer) if answer else None


def _body(schedule: Schedule, number: int) -> dict[str, Any]:
    arrival = schedule.arrivals[number]
    parameters = {"priority": arrival.priority, "timeout": arrival.timeout_us}
    return {
        "id": str(number),
        "parameters": {name: value for name, value in parameters.items() if value},
        "inputs": [
            {"name": name, "datatype": datatype, "shape": shape, "data": [value] * prod(shape)}
            for name, datatype, shape, value in inputs(schedule, arrival)
        ],
    }
