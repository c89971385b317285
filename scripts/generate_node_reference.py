"""Write docs/reference/node-command-line.md and metrics.md from the node's own tables.

Usage: ``python scripts/generate_node_reference.py [--check]``. ``--check`` writes nothing and exits with 1 if a page
is not what would be written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from serving_node.cli.flags import ALIASES, GROUPS, Flag
from serving_node.observability.families import Family
from serving_node.observability.host import GpuReading, HostProbe, gpu_families
from serving_node.observability.metrics import FIRST_RESPONSE, ModelSeries, model_families
from serving_node.observability.metrics_config import MetricsConfig
from serving_node.observability.statistics import ModelStatistics
from serving_node.settings import NodeSettings

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"

_COMMAND_LINE = """# The node's command line

Written by `scripts/generate_node_reference.py`; change the code, then run it.

`flotilla node` and `python -m serving_node` take the flags of `tritonserver` by their names, and some of their own.
`--name=value` and `--name value` are the same; switches are true without a value and take true, on, 1, false, off, 0.
A flag wins over the environment variable `NODE_<FLAG>` (`NODE_HTTP_PORT=9000`; lists are split at commas, those of
values with commas at semicolons), which wins over the default. Aliases: {aliases}. A flag that is not here is refused.

*No effect*: tritonserver knows the flag, here it changes nothing, and the node says so at its start. *Refused*: the
node does not start with it, because ignoring it would harm.

{tables}
"""

_TABLE = """## {title}

| Flag | Default | Meaning |
|---|---|---|
{rows}
"""

_METRICS = """# Metrics

Written by `scripts/generate_node_reference.py`; change the code, then run it.

`GET /metrics` on the metrics port (8002). Names and labels are Triton's; `flotilla_*` are ours, because percentiles
over several nodes need histograms. Series of a model appear when it is ready and go when it is unloaded; a joined node
shows them for another 30 s, so that the control plane reads the last counts.

| Name | Type | Labels | Meaning |
|---|---|---|---|
{rows}

The same calls to a real Triton make the same series with the same numbers but for times.

| With `--metrics-config` | |
|---|---|
| `counter_latencies=false` | leaves out the counters that end in `_duration_us` |
| `histogram_latencies=true` | adds `{first_response}` for decoupled models, with buckets of their `model_metrics` |
| `summary_latencies=true` | adds the summaries (`_summary_us`) |
| `summary_quantiles=0.5:0.05,...` | quantiles of the summaries, each with an error that Triton allows for its rank |

- Names that end in `_us` count microseconds.
- Labels besides those of the table: each of the config's `metric_tags` after an underscore (`_team`), `namespace` with
  `--model-namespacing`, `gpu_uuid` for a model whose instances are all on one GPU.
- Quantiles of summaries are of the last minute and off by 1 % of their value at most, whatever error is asked for; they
  are `NaN` when nothing came in that minute. Summaries of several nodes cannot be added up: use the histograms.
- `reason` is {reasons}. All four series exist from the start.
- Histograms: classic buckets in the text format; a scraper that accepts
  `application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited` gets native ones too.
- GPU series exist when NVIDIA's driver shows a GPU, and only those that the device reports.
- CPU, GPU and process are looked at no more often than `--metrics-interval-ms`. `--allow-cpu-metrics=false` and
  `--allow-gpu-metrics=false` leave theirs out. There is no pool of pinned memory: its size is what the flag says.
- `process_*` are of the node's own process, not of the workers of Python models.
- Other paths on the port answer 200 and nothing, other methods 405, as Triton does.
"""


def command_line_page() -> str:
    """Return the page about flags."""
    tables = [_TABLE.format(title=title, rows="\n".join(map(_flag_row, flags))) for title, flags in GROUPS]
    return _COMMAND_LINE.format(
        tables="\n".join(tables).rstrip(),
        aliases=", ".join(f"`--{alias}` for `--{name}`" for alias, name in sorted(ALIASES.items())),
    )


def metrics_page() -> str:
    """Return the page about metrics."""
    reading = GpuReading("", "", 0.0, 0, 0, 0.0, 0.0, 0.0)
    statistics = ModelStatistics(summaries=True, first_response_bounds=(1.0,))
    everything = MetricsConfig(histogram_latencies=True, summary_latencies=True)
    models = model_families([ModelSeries("m", "1", statistics, 0, 0.0)], everything)
    families = [*models, *HostProbe(gpu=False).families(), *gpu_families([reading])]
    reasons = ", ".join(f"`{reason.value}`" for reason in statistics.failures)
    rows = "\n".join(map(_metric_row, families))
    return _METRICS.format(rows=rows, reasons=reasons, first_response=FIRST_RESPONSE)


def outdated() -> list[str]:
    """Return the names of pages that are not what would be written."""
    return [name for name, text in _pages().items() if not _is_written(PAGES / name, text)]


def _pages() -> dict[str, str]:
    return {"node-command-line.md": command_line_page(), "metrics.md": metrics_page()}


def _is_written(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def _default(setting: str) -> str:
    if setting == "node_name":
        return "the host name"
    value = getattr(NodeSettings(), setting)
    if value is None or value in ("", ()):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _flag_row(flag: Flag) -> str:
    if flag.setting:
        instead = f": use `{flag.instead}`" if flag.instead else ""
        return f"| `--{flag.name}` | {_default(flag.setting)} | {flag.help}{instead} |"
    return f"| `--{flag.name}` | | *{flag.help}*: {flag.why} |"


def _metric_row(family: Family) -> str:
    labels = ", ".join(name for name, _ in family.samples[0].labels)
    return f"| `{family.name}` | {family.kind.value} | {labels} | {family.help.rstrip('.')} |"


def main() -> int:
    """Write the pages, or complain about old ones."""
    if "--check" in sys.argv[1:]:
        old = outdated()
        for name in old:
            sys.stderr.write(f"docs/reference/{name} is old: run python scripts/generate_node_reference.py\n")
        return 1 if old else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, text in _pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
