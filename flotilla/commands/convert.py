"""``flotilla convert``: model files to ONNX, or smaller, with a report of how far the answers are apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flotilla.commands.context import client_command, json_option, table
from flotilla.sdk import Flotilla

if TYPE_CHECKING:
    from conversion.order import Order
    from serving_node.contract.conversion import ConversionReport, OutputComparison

DIFFERS = 3
"""Exit status when the converted file answers too differently."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("source", metavar="IN", type=_FILE)
@click.argument("target", metavar="OUT", type=_NEW_FILE)
@click.option(
    "--to",
    "steps",
    multiple=True,
    type=click.Choice(["onnx", "simplified", "fp16"]),
    help="What to make of it; of several, in this order. What is not ONNX becomes so first.  [default: onnx]",
)
@click.option("--inputs", "samples", type=_FILE, help="Inputs to compare with: an .npz file, one array an input.")
@click.option("--seed", default=0, show_default=True, help="Without --inputs: of the random inputs.")
@click.option(
    "--rows", "batches", multiple=True, type=click.IntRange(1), help="Rows of a random sample; several times."
)
@click.option(
    "--dynamic-size", default=8, show_default=True, type=click.IntRange(1), help="Of dimensions but the first."
)
@click.option("--integers", default="0:9", show_default=True, metavar="LOW:HIGH", help="Range of whole numbers.")
@click.option("--tolerance", type=click.FloatRange(0), help="Relative difference that is allowed; by default by step.")
@click.option("--absolute-tolerance", type=click.FloatRange(0), help="Absolute difference that is allowed beside it.")
@click.option("--fp16-io", is_flag=True, help="With fp16: inputs and outputs become FP16 too.")
@click.option("--report", "report_file", type=_NEW_FILE, help="Write the report there as JSON.")
@click.option("--keep", is_flag=True, help="Write OUT even when its answers differ too much.")
@click.option("--force", is_flag=True, help="Replace OUT when it exists.")
@click.option("--allow-code", is_flag=True, help="Read files that can run code: pickles, .pt2. Only if you trust them.")
@click.option("--seconds", default=1800.0, show_default=True, type=click.FloatRange(1), help="Longest time.")
@click.option("--memory-mib", default=16384, show_default=True, type=click.IntRange(256), help="Most memory.")
@click.option("--push", "model", metavar="MODEL", help="Upload OUT with its report as a new version of MODEL.")
@json_option
@client_command
def convert(
    client: Flotilla,
    /,
    source: Path,
    target: Path,
    report_file: Path | None,
    keep: bool,
    force: bool,
    seconds: float,
    memory_mib: int,
    model: str | None,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Convert IN to the new file OUT and compare the answers of both.

    IN: a PyTorch exported program (.pt2), ONNX, XGBoost (.json, .ubj), LightGBM (.txt), scikit-learn (skops, pickle).

    \b
    Exit status: 0 the answers agree (pass, or warn: up to 10 times the tolerance),
    3 they differ too much and OUT was not written, 1 the file cannot be converted.
    """
    _require_new(source, target, report_file, force)
    from conversion.errors import ConversionFailed
    from conversion.process import Limits, run

    order = _order(source, target, wanted)
    say = (lambda _sentence: None) if as_json else (lambda sentence: click.echo(f"{sentence} ...", err=True))
    try:
        report = run(order, Limits(seconds, memory_mib << 20), say, keep_failed=keep)
    except ConversionFailed as error:
        raise click.ClickException(str(error)) from None
    document = report.to_json()
    if report_file is not None:
        report_file.write_text(json.dumps(document, indent=2) + "\n")
    is_good = report.verdict != "fail"
    version = None
    if model and is_good:
        version = client.push(model, {"model.onnx": target}, conversion=document)
    click.echo(json.dumps({"report": document, "version": version}, indent=2) if as_json else _text(report))
    if version is not None and not as_json:
        click.echo(f"{model} version {version['number']} is ready.")
    if not is_good:
        kept = f"{target} was written all the same" if keep else f"{target} was not written"
        click.echo(f"The answers differ too much: {kept}.", err=True)
        raise SystemExit(DIFFERS)


def _require_new(source: Path, target: Path, report_file: Path | None, force: bool) -> None:
    for path in filter(None, (target, report_file)):
        if path.exists() and path.samefile(source):
            raise click.UsageError(f"{path} is the file to convert; name a new one.")
    if report_file is not None and report_file.absolute() == target.absolute():
        raise click.UsageError("OUT and --report name the same file.")
    if target.exists() and not force:
        raise click.UsageError(f"{target} exists; name a new file, or add --force.")
    if not target.absolute().parent.is_dir():
        raise click.UsageError(f"There is no folder {target.absolute().parent}.")


def _order(source: Path, target: Path, wanted: dict[str, Any]) -> Order:
    from conversion.order import Order, Step

    low, separator, high = wanted["integers"].partition(":")
    try:
        bounds = int(low), int(high)
    except ValueError:
        bounds = (1, 0)
    if not separator or bounds[0] > bounds[1]:
        raise click.UsageError(f"--integers is LOW:HIGH, two whole numbers, not {wanted['integers']!r}.")
    return Order(
        str(source),
        str(target),
        tuple(sorted((Step(step) for step in wanted["steps"]), key=list(Step).index)),
        samples=str(wanted["samples"] or ""),
        batches=tuple(wanted["batches"]),
        seed=wanted["seed"],
        low=bounds[0],
        high=bounds[1],
        dynamic_size=wanted["dynamic_size"],
        keep_io_types=not wanted["fp16_io"],
        allow_code=wanted["allow_code"],
        relative=wanted["tolerance"],
        absolute=wanted["absolute_tolerance"],
    )


def _text(report: ConversionReport) -> str:
    rows = [_row(output) for output in report.outputs]
    header = ["OUTPUT", "TYPE", "ELEMENTS", "DIFFERING", "MAX ABS", "MAX REL", "TOLERANCES", "VERDICT"]
    samples = ", ".join(map(str, report.samples.rows))
    kind = "given" if report.samples.seed is None else f"random (seed {report.samples.seed})"
    lines = [
        table(rows, header),
        *(f"{output.name}: {output.problem}" for output in report.outputs if output.problem),
        *report.notes,
        f"{report.source.name} ({report.source.size} bytes, {report.source.format}) -> {report.target.name} "
        f"({report.target.size} bytes, {' + '.join(report.steps)})",
        f"Verdict: {report.verdict}, over {kind} inputs of {samples} rows; allowed are "
        f"{report.tolerance.absolute:g} + {report.tolerance.relative:g} of each value.",
    ]
    return "\n".join(lines)


def _row(output: OutputComparison) -> list[str]:
    figures = (
        ["-", "-", "-"]
        if output.is_exact or output.problem
        else [
            f"{output.max_absolute:.2g}",
            f"{output.max_relative:.2g}",
            f"{output.worst:.2g}",
        ]
    )
    return [output.name, output.datatype, str(output.elements), str(output.differing), *figures, output.verdict.value]
