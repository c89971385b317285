"""Measuring a version on a node."""

from __future__ import annotations

from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla


class Numbers(click.ParamType[list[int]]):
    """Whole numbers separated by commas."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Return the numbers; fails with one sentence."""
        words = str(value).split(",")
        if not all(word.strip().isascii() and word.strip().isdigit() for word in words):
            self.fail(f"{value!r} is no list of whole numbers such as 1,8,32.", param, ctx)
        return [int(word) for word in words]


@click.command("bench-model")
@click.argument("model")
@click.argument("version", type=int)
@click.option("--node", "-n", required=True, help="Name of the node to measure on.")
@click.option("--config", "-c", type=int, help="Config revision; the newest by default.")
@click.option("--batch", "-b", type=Numbers(), default=None, help="Batch sizes; by default up to max_batch_size.")
@click.option("--instances", "-i", type=Numbers(), default="1", show_default=True, help="Instance counts: 1,2.")
@click.option("--seconds", type=float, help="Seconds for each combination. [default: 2]")
@click.option("--shape", "shapes", multiple=True, metavar="INPUT=SIZES", help="Of dynamic inputs: image=3,224,224.")
@json_option
@client_command
def bench_model(
    client: Flotilla,
    model: str,
    version: int,
    node: str,
    config: int | None,
    batch: list[int] | None,
    instances: list[int],
    seconds: float | None,
    shapes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure VERSION of MODEL on a node: load time, memory, latency and throughput; kept with the version."""
    measurement = client.measure(
        model,
        version,
        node,
        config=config,
        batch=batch or (),
        instances=instances,
        seconds=seconds,
        shapes=_shapes(shapes),
        progress=None if as_json else _say_progress,
    )
    show(measurement, as_json, lambda: table(map(_row, measurement["cells"]), _HEADER))


_HEADER = ["BATCH", "INSTANCES", "ROWS/S", "P50 MS", "P99 MS", "COMPUTE MS", "LOAD S", "MEMORY MIB", "PROBLEM"]


def _row(cell: dict[str, Any]) -> list[Any]:
    head = [cell["batch"], cell["instances"]]
    if not cell["requests"]:
        return [*head, "-", "-", "-", "-", "-", "-", cell["error"]]
    times = [cell["latency_p50_ms"], cell["latency_p99_ms"], cell["compute_ms"], cell["load_seconds"]]
    return [*head, cell["rows_per_second"], *times, round(cell["memory_bytes"] / 2**20, 1), cell["error"]]


def _shapes(texts: tuple[str, ...]) -> dict[str, list[int]]:
    found = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not INPUT=SIZES.", param_hint="--shape")
        found[name] = Numbers().convert(sizes, None, None)
    return found


def _say_progress(percent: int, message: str) -> None:
    click.echo(f"{percent:3d} %  {message}", err=True)
