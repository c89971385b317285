"""Write docs/reference/node-command-line.md, metrics.md and model-config.md from the node's own tables.

Usage: ``python scripts/generate_node_reference.py [--check]``. ``--check`` writes nothing and exits with 1 if a page
is not what would be written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from serving_node.cli.flags import ALIASES, GROUPS, Flag
from serving_node.contract.fields import FIELDS, FieldSpec, Kind, Shape
from serving_node.contract.fields import Group as FieldGroup
from serving_node.observability.cache_counters import CacheCounters
from serving_node.observability.delay_state import DelayState
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
shows them for another 30 s, so that the control plane reads the last counts. Models in Python
[make metrics of their own](python-backend.md#metrics-of-a-models-own), which stand behind these.

| Name | Type | Labels | Meaning |
|---|---|---|---|
{rows}

The same calls to a real Triton make the same series with the same numbers but for times.

| With `--metrics-config` | |
|---|---|
| `counter_latencies=false` | leaves out the counters that end in `_duration_us`, and those of the cache by model |
| `histogram_latencies=true` | adds `{first_response}` for decoupled models, with buckets of their `model_metrics` |
| `summary_latencies=true` | adds the summaries (`_summary_us`, and those of the cache) |
| `summary_quantiles=0.5:0.05,...` | quantiles of the summaries, each with an error that Triton allows for its rank |

- Names that end in `_us` count microseconds.
- Labels besides those of the table: each of the config's `metric_tags` after an underscore (`_team`), `namespace` with
  `--model-namespacing`, `gpu_uuid` for a model whose instances are all on one GPU.
- Quantiles of summaries are of the last minute and off by 1 % of their value at most, whatever error is asked for; they
  are `NaN` when nothing came in that minute. Summaries of several nodes cannot be added up: use the histograms.
- `nv_cache_*_per_model` exist for models whose config has `response_cache`, also when the node has no cache; as in
  Triton such models have no `nv_inference_request_summary_us`. The others of `nv_cache_*` and `flotilla_cache_*` exist
  when the node has a cache; utilisation, entries, evictions and bytes when it is in memory, failures when on Redis.
- `reason` is {reasons}. All four series exist from the start.
- Histograms: classic buckets in the text format; a scraper that accepts
  `application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited` gets native ones too.
- GPU series exist when NVIDIA's driver shows a GPU, and only those that the device reports.
- CPU, GPU and process are looked at no more often than `--metrics-interval-ms`. `--allow-cpu-metrics=false` and
  `--allow-gpu-metrics=false` leave theirs out. There is no pool of pinned memory: its size is what the flag says.
- `process_*` are of the node's own process, not of the workers of Python models.
- Other paths on the port answer 200 and nothing, other methods 405, as Triton does.
"""


_MODEL_CONFIG = """# The config of a model

Written by `scripts/generate_node_reference.py`; change the code, then run it.

A model folder holds `config.pbtxt`, protobuf's text form of Triton's `ModelConfig`; a load request may carry it as
JSON instead. `GET v2/models/<name>/config` shows it with everything filled in.

## What is filled in

| Left out | Becomes |
|---|---|
| `name` | the name of the folder, which it must equal |
| `backend`, `platform` | each from the other |
| both of them | told by the file in the first version folder: `model.onnx`, `model.py`, `model.plan`, `model.pt`... |
| both, and there is no such file | the end of the model's name after a dot is the backend |
| `default_model_filename` | the backend's: `model.onnx`, `model.py`... |
| `version_policy` | the latest version |
| `dynamic_batching.preferred_batch_size`, that of `sequence_batching.oldest` | `max_batch_size`, if there is one |
| `sequence_batching.max_sequence_idle_microseconds` | 1000000 |
| `optimization.input_pinned_memory`, `output_pinned_memory` | enabled |
| `instance_group` | one group named as the model |
| `name` of a group | `<model>_<position>` |
| `kind` of a group | KIND_GPU where there are GPUs, else KIND_CPU |
| `count` of a group | 1; for ONNX models on a CPU 2 |
| inputs and outputs of an ONNX model | those of the file |
| `max_batch_size` and scheduler of an ONNX model whose tensors begin with a free dimension | 4, dynamic batching |
| inputs, outputs, batching, decoupled policy of a Python model | what its `auto_complete_config` sets |

`--disable-auto-complete-config` leaves the last three out. Python code may not contradict the file.

## When it is refused

A config is checked twice. What is wrong with names, batching, queues, sequences or the steps of an ensemble keeps the
folder from being read: loading answers "failed to poll from model repository", and the log says why. Tensors, instance
groups, files and warm-up samples are checked when a version is loaded: loading answers with the sentence, and the index
shows it. The sentences are Triton's; 307 configs and what a real Triton says to them are held in the tests.

- Dimensions are 1 or more, or -1. `reshape` keeps the number of elements, and of those between free dimensions.
- `max_batch_size: 0` means that shapes are as written. Otherwise a batch dimension comes in front of `dims`.
- Preferred sizes are between 1 and `max_batch_size`. Priorities go from 1 to `priority_levels`.
- `preserve_ordering` allows one priority level and no timeouts that delay.
- Groups of KIND_CPU and KIND_MODEL name no GPUs, those of KIND_GPU name GPUs of the node.
- The response cache needs a model without sequences and with one response per request.
- Files of labels, warm-up data and the model lie in the model's folder.

JSON in a load request may leave out quotes around names, use single quotes, end lists with a comma, write numbers as
strings and enums in any case, and use camelCase.

## Labels and warm-up

`label_filename` names the classes of an output, one a line, in the model's folder: `classification` answers then read
`value:index:label`. Each sample of `model_warmup` runs on every instance before the version is ready: `batch_size`
requests in one execution, `count` times. Data are zeros, random, or the bytes of `warmup/<input_data_file>` (strings
with their lengths, 4 bytes, in front). A sample that fails fails the load. A model of a format that the node itself
runs, such as ONNX, also gets one request of zeros; Python models get what their samples say, and nothing else.

## Fields

`[]` marks a list, `{{}}` a map.

{tables}
"""

_FIELD_TABLE = """### {title}

| Field | Type | Default | Meaning |
|---|---|---|---|
{rows}
"""


def model_config_page() -> str:
    """Return the page about configs."""
    tables = [
        _FIELD_TABLE.format(title=group.value, rows="\n".join(_field_row(f) for f in FIELDS if f.group is group))
        for group in FieldGroup
    ]
    return _MODEL_CONFIG.format(tables="\n".join(tables).rstrip())


def _field_row(field: FieldSpec) -> str:
    kind = {Shape.LIST: "list of {}", Shape.MAP: "map to {}"}.get(field.shape, "{}").format(field.kind.value)
    if field.kind is Kind.CHOICE:
        values = [choice.value for choice in field.choices]
        kind += f": {', '.join(values)}" if len(values) <= 8 else f": {values[0]}, {values[1]}..."
    value = str(field.default).lower() if field.kind is Kind.SWITCH else field.default
    default = "" if value in (None, "", "none") else f"`{value}`"
    unit = f" ({field.unit})" if field.unit else ""
    others = f" One of `{field.alternatives}`." if field.alternatives else ""
    return f"| `{field.path}` | {kind}{unit} | {default} | {field.help}{others} |"


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
    statistics.adaptive_delay = DelayState(target_ns=0)
    everything = MetricsConfig(histogram_latencies=True, summary_latencies=True)
    cached = ModelStatistics(summaries=True, cached=True)
    series = [ModelSeries("m", "1", statistics, 0, 0.0), ModelSeries("cached", "1", cached, 0, 0.0)]
    counters = CacheCounters()
    cache = [*counters.local_families(0, 1, 0, 0), *counters.families(), *counters.remote_families()]
    families = [*model_families(series, everything), *cache, *HostProbe(gpu=False).families(), *gpu_families([reading])]
    reasons = ", ".join(f"`{reason.value}`" for reason in statistics.failures)
    rows = "\n".join(map(_metric_row, families))
    return _METRICS.format(rows=rows, reasons=reasons, first_response=FIRST_RESPONSE)


def outdated() -> list[str]:
    """Return the names of pages that are not what would be written."""
    return [name for name, text in _pages().items() if not _is_written(PAGES / name, text)]


def _pages() -> dict[str, str]:
    return {
        "node-command-line.md": command_line_page(),
        "metrics.md": metrics_page(),
        "model-config.md": model_config_page(),
    }


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
