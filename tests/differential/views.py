"""What of an answer must vary and is therefore not compared: times, addresses, paths of a temporary folder."""

from __future__ import annotations

import math
import re
from typing import Any

from tests.differential.steps import Answer

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_PARSER = re.compile(r"(failed to parse the request JSON buffer:) .*", re.DOTALL)
# frames of the import machinery and of the server's own library in a traceback; folders of files from requests
_IMPORTING = re.compile(r"\n  [^\n]*(?:importlib|triton_python_backend_utils\.py)[^\n]*(?=\n|$)")
_FILES = re.compile(r"/tmp/folder\w{6}|/tmp/flotilla-model-\w{8}/[\w-]+")
_TIMES = {"ns", "last_inference"}


def settled(value: Any, folder: str) -> Any:
    """Return an answer without what differs between two runs of the same server."""
    if isinstance(value, dict):
        return {key: settled(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [settled(item, folder) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return f"<{value}>"  # JSON has no such numbers, and one of them is not equal to itself
    if isinstance(value, str):
        # what another JSON parser says of a text that is not JSON: a row of differences.md
        value = _PARSER.sub(r"\1 <why>", value)
        value = _IMPORTING.sub("", _FILES.sub("<files>", value.replace(folder, "<repository>")))
        return _ADDRESS.sub("0x<address>", value).rstrip()
    return value


def server_version(answer: Answer) -> Answer:
    """Leave out which version the server is of."""
    return _without(answer, "version")


def times(answer: Answer) -> Answer:
    """Say of durations and moments only whether there are any."""
    return {key: _times(value) for key, value in answer.items()}


def _times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _some(item) if key in _TIMES else _times(item)
            for key, item in value.items()
            # proto leaves out zeros: a duration below the clock's step is none
            if key != "memory_usage"
        }
    return [_times(item) for item in value] if isinstance(value, list) else value


def _some(value: Any) -> str:
    return "some" if int(value) else "none"


def without_finals(answer: Answer) -> Answer:
    """Leave out of a stream's answers which of them says that it is the last, and those that say nothing else."""
    kept = []
    for entry in answer.get("responses", ()):
        response = {**entry.get("infer_response", {})}
        parameters = {**response.pop("parameters", {})}
        parameters.pop("triton_final_response", None)
        if "outputs" in response or "error_message" in entry:
            kept.append({**entry, "infer_response": {**response, "parameters": parameters}})
    return {**answer, "responses": kept} if "responses" in answer else answer


def rows_of(*models: str) -> Any:
    """Keep the rows of a repository index that are of these models, in the order of name and version."""

    def view(answer: Answer) -> Answer:
        if isinstance(answer.get("json"), list):
            return {**answer, "json": _rows(answer["json"], models)}
        if "models" in answer.get("message", {}):
            return {**answer, "message": {"models": _rows(answer["message"]["models"], models)}}
        return answer

    return view


def _rows(rows: list[Any], models: tuple[str, ...]) -> list[Any]:
    kept = [row for row in rows if row.get("name") in models]
    return sorted(kept, key=lambda row: (row["name"], int(row.get("version") or 0)))


def only(*keys: str) -> Any:
    """Keep these members of the answer's document; at any depth, written with dots."""

    def view(answer: Answer) -> Answer:
        place = "json" if "json" in answer else "message"
        if place not in answer:
            return answer
        return {**answer, place: {key: _at(answer[place], key) for key in keys}}

    return view


def _at(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _without(answer: Answer, *keys: str) -> Answer:
    return {
        place: {k: v for k, v in value.items() if k not in keys} if isinstance(value, dict) else value
        for place, value in answer.items()
    }


def status_only(answer: Answer) -> Answer:
    """Keep the status or the code."""
    return {key: answer[key] for key in ("status", "code") if key in answer}


def metrics_of(text: str, models: tuple[str, ...]) -> Answer:
    """Return the reference's series of these models, and their own: the kind of each family, and values but times."""
    kinds: dict[str, str] = {}
    series: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(("# TYPE nv_", "# TYPE contract_")):
            _, _, name, kind = line.split(" ", 3)
            kinds[name] = kind
        elif line.startswith(("nv_", "contract_")):
            label, value = line.rsplit(" ", 1)
            # that one is of newer releases only
            is_known = not label.startswith("nv_model_load_duration_secs")
            if is_known and any(f'model="{model}"' in label for model in models):
                is_time = "duration" in label.split("{")[0]
                series[_labels_sorted(label)] = "a time" if is_time else f"{float(value):g}"
    families = {label.split("{")[0] for label in series}
    return {"kinds": {name: kinds.get(name, "?") for name in sorted(families)}, "series": dict(sorted(series.items()))}


def _labels_sorted(label: str) -> str:
    name, _, labels = label.partition("{")
    return name + "{" + ",".join(sorted(labels.rstrip("}").split(","))) + "}"
