"""Between a ModelConfig document and the flat names and texts of its form. Pure, and losing nothing.

A field's name in the form is its path in the document with the numbers of its rows: ``input[0].dims``,
``dynamic_batching.priority_queue_policy{0}.max_queue_size``. Beside that there are:

    ``input[0]``, ``policy{0}``     "on": the row is there, also when all in it is empty
    ``policy{0}#key``, ``#value``   key of a map's row, and its value when that is a single one
    ``sequence_batching``           "on": a section without which the document means something else
    ``#scheduling_choice``          which of the fields that exclude each other is set

Keys of ``parameters`` that the contract knows are fields of a section of their own, ``settings``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from serving_node.contract.fields import FIELDS, Choice, FieldSpec, Group, Kind, Shape
from serving_node.contract.parameters import PARAMETERS, Parameter, ParameterKind, find

ON = "on"
SETTINGS = "settings"
MOST_ROWS = 256

# Sections that mean nothing when they are empty: they are always shown, and left out of the document then.
INLINE = {
    "version_policy",
    "optimization",
    "optimization.execution_accelerators",
    "dynamic_batching.default_queue_policy",
    "instance_group[].rate_limiter",
    "model_operations",
    "model_transaction_policy",
    "model_repository_agents",
    "model_metrics",
    "model_metrics.metric_control[].metric_identifier",
    "response_cache",
    SETTINGS,
}
_ROW = re.compile(r"[\[{](\d{1,4})[\]}]")
_STEP = re.compile(r"\.?([A-Za-z_0-9]+)|\[([^\]]*)\]")
_WHOLE = re.compile(r"-?[0-9]{1,20}")


def _setting(known: Parameter) -> FieldSpec:
    """Return a key of ``parameters`` as a field: its text is read and judged by the contract."""
    values = ("true", "false") if known.kind is ParameterKind.SWITCH else known.choices
    usual = gettext_noop("Not set") if not known.default else f"{known.default} {gettext_noop('(as usual)')}"
    choices = (Choice("", usual), *(Choice(value, value) for value in values)) if values else ()
    return FieldSpec(
        path=f"{SETTINGS}.{known.key}",
        name=known.key,
        group=Group.ADVANCED,
        kind=Kind.CHOICE if choices else Kind.TEXT,
        shape=Shape.MAP if known.per_input else Shape.SINGLE,
        label=known.label,
        help=known.help,
        default="" if choices else known.default,
        unit=known.unit,
        choices=choices,
        key_kind=Kind.TEXT if known.per_input else None,
    )


def below(spec: FieldSpec) -> str:
    """Return the start of the paths of what lies in a field; ``CHILDREN`` has them by it."""
    return spec.path + {Shape.LIST: "[].", Shape.MAP: "{}."}.get(spec.shape, ".")


def _catalogue() -> dict[str, list[FieldSpec]]:
    children: dict[str, list[FieldSpec]] = defaultdict(list)
    section = FieldSpec(SETTINGS, SETTINGS, Group.ADVANCED, Kind.SECTION, Shape.SINGLE, SETTINGS, "")
    for spec in (*FIELDS, section, *map(_setting, PARAMETERS)):
        parent = f"{SETTINGS}." if spec.path.startswith(f"{SETTINGS}.") else spec.path[: -len(spec.name)]
        children[parent].append(spec)
    return dict(children)


CHILDREN = _catalogue()
"""The fields directly below the start of a path: "" for the document, ``input[].`` for a row of ``input``."""


def is_switched(spec: FieldSpec) -> bool:
    """Whether a section is there or not regardless of what is in it."""
    return (
        spec.kind is Kind.SECTION and spec.shape is Shape.SINGLE and not spec.alternatives and spec.path not in INLINE
    )


def rows_of(flat: Mapping[str, str]) -> dict[str, list[int]]:
    """Return the numbers of the rows under each name, in their order."""
    found: dict[str, set[int]] = defaultdict(set)
    for name in flat:
        for match in _ROW.finditer(name):
            found[name[: match.start()]].add(int(match[1]))
    return {name: sorted(numbers)[:MOST_ROWS] for name, numbers in found.items()}


# From the document to the form


def flatten(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the names and texts of a document, as a browser would send them."""
    flat: dict[str, str] = {}
    _flatten_fields(_split(body), "", "", flat)
    return flat


def _flatten_fields(document: Mapping[str, Any], start: str, prefix: str, flat: dict[str, str]) -> None:
    for spec in CHILDREN.get(start, ()):
        if spec.name in document:
            if spec.alternatives:
                flat[f"{prefix}#{spec.alternatives}"] = spec.name
            _flatten(spec, document[spec.name], f"{prefix}{spec.name}", flat)


def _flatten(spec: FieldSpec, value: Any, name: str, flat: dict[str, str]) -> None:
    if spec.shape is Shape.MAP:
        for number, (key, item) in enumerate(value.items()):
            row = f"{name}{{{number}}}"
            flat |= {row: ON, f"{row}#key": str(key)}
            if spec.kind is Kind.SECTION:
                _flatten_fields(item, below(spec), f"{row}.", flat)
            else:
                flat[f"{row}#value"] = _text(item)
    elif spec.kind is Kind.SECTION and spec.shape is Shape.LIST:
        for number, item in enumerate(value):
            flat[f"{name}[{number}]"] = ON
            _flatten_fields(item, below(spec), f"{name}[{number}].", flat)
    elif spec.kind is Kind.SECTION:
        if is_switched(spec):
            flat[name] = ON
        _flatten_fields(value, below(spec), f"{name}.", flat)
    elif spec.shape is Shape.LIST:
        flat[name] = ("\n" if spec.kind is Kind.TEXT else ", ").join(map(_text, value))
    elif spec.kind is not Kind.SWITCH:
        flat[name] = _text(value)
    elif value:
        flat[name] = ON


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _split(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the keys that the contract knows apart from the other ``parameters``."""
    others: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for key, value in (body.get("parameters") or {}).items():
        known = find(key)
        text = value.get("string_value", "") if isinstance(value, Mapping) else ""
        if known is None or not text:
            others[key] = value
        elif known.per_input:
            settings.setdefault(known.key, {})[key.removeprefix(f"{known.key}.")] = text
        else:
            settings[key] = text.lower() if known.kind is ParameterKind.SWITCH else text
    return {**body, "parameters": others, SETTINGS: settings}


def _join(document: dict[str, Any]) -> dict[str, Any]:
    parameters = document.pop("parameters", {})
    for key, value in document.pop(SETTINGS, {}).items():
        texts = {f"{key}.{name}": text for name, text in value.items()} if isinstance(value, dict) else {key: value}
        parameters |= {name: {"string_value": text} for name, text in texts.items()}
    return {**document, "parameters": parameters} if parameters else document


# From the form to the document


def read(flat: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the document that was typed, without defaults, and what cannot be read, by the name of its field."""
    reader = _Reader(flat)
    return _join(reader.fields("", "")), dict(reader.problems)


class _Reader:
    def __init__(self, flat: Mapping[str, str]) -> None:
        self._flat = flat
        self._rows = rows_of(flat)
        self.problems: dict[str, list[str]] = defaultdict(list)

    def fields(self, start: str, prefix: str) -> dict[str, Any]:
        document = {}
        for spec in CHILDREN.get(start, ()):
            if spec.alternatives and self._flat.get(f"{prefix}#{spec.alternatives}") != spec.name:
                continue
            value = self._field(spec, f"{prefix}{spec.name}")
            if value is not None:
                document[spec.name] = value
        return document

    def _field(self, spec: FieldSpec, name: str) -> Any:
        """Return the value of a field; None when it is left out."""
        if spec.shape is Shape.MAP:
            return self._map(spec, name) or None
        if spec.kind is Kind.SECTION and spec.shape is Shape.LIST:
            return [self.fields(below(spec), f"{name}[{row}].") for row in self._rows.get(name, ())] or None
        if spec.kind is Kind.SECTION:
            if is_switched(spec) and self._flat.get(name) != ON:
                return None
            section = self.fields(below(spec), f"{name}.")
            return section if section or spec.path not in INLINE else None
        text = self._flat.get(name, "")
        if spec.shape is Shape.LIST:
            words = text.splitlines() if spec.kind is Kind.TEXT else re.split(r"[,\s]+", text)
            return [self._single(spec, name, word) for word in words if word.strip()] or None
        if spec.kind is Kind.SWITCH:
            return True if spec.alternatives or text == ON else None
        value = self._single(spec, name, text) if text else None
        if spec.alternatives:
            return value or ""
        # zeros are what is left out means, whatever normalising makes of it
        return None if value == 0 or (spec.kind is Kind.CHOICE and value == spec.default) else value

    def _map(self, spec: FieldSpec, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for row in self._rows.get(name, ()):
            here = f"{name}{{{row}}}"
            key = self._flat.get(f"{here}#key", "")
            if not key:
                self.problems[f"{here}#key"].append(_("The key is missing."))
            elif key in found:
                self.problems[f"{here}#key"].append(_("“%(key)s” is there twice.") % {"key": key})
            elif spec.key_kind is Kind.INTEGER and not _WHOLE.fullmatch(key):
                self._refuse(f"{here}#key", key, _("“%(word)s” is not a whole number."))
            if spec.kind is Kind.SECTION:
                found[key] = self.fields(below(spec), f"{here}.")
            else:
                found[key] = self._flat.get(f"{here}#value", "")
        return found

    def _single(self, spec: FieldSpec, name: str, text: str) -> Any:
        if spec.kind is Kind.TEXT:
            return text
        word = text.strip()
        if spec.kind is Kind.CHOICE:
            if word not in {choice.value for choice in spec.choices}:
                self._refuse(name, word, _("“%(word)s” is not one of the choices."))
            return word
        if spec.kind is Kind.SWITCH:
            if word.lower() not in {"true", "false"}:
                self._refuse(name, word, _("“%(word)s” is neither true nor false."))
            return word.lower() == "true"
        return self._number(spec, name, word)

    def _number(self, spec: FieldSpec, name: str, word: str) -> int | float:
        value: int | float
        if spec.kind is Kind.INTEGER:
            if not _WHOLE.fullmatch(word):
                self._refuse(name, word, _("“%(word)s” is not a whole number."))
                return 0
            value = int(word)
        else:
            try:
                value = float(word)
            except ValueError:
                self._refuse(name, word, _("“%(word)s” is not a number."))
                return 0
        if spec.minimum is not None and value < spec.minimum:
            self.problems[name].append(_("%(word)s is too small: at least %(limit)s.") % _facts(word, spec.minimum))
        if spec.maximum is not None and value > spec.maximum:
            self.problems[name].append(_("%(word)s is too large: at most %(limit)s.") % _facts(word, spec.maximum))
        return value

    def _refuse(self, name: str, word: str, sentence: str) -> None:
        self.problems[name].append(sentence % {"word": word[:100]})


def _facts(word: str, limit: float) -> dict[str, str]:
    return {"word": word, "limit": str(limit)}


# From the contract's paths to the form's names


def name_of(path: str, flat: Mapping[str, str]) -> str:
    """Return the field of the form at which an error of a contract's path is shown: it, or what it lies in.

    "" stands for the whole form.
    """
    if path.startswith("parameters[") and (name := _setting_name(path[11:].partition("]")[0], flat)):
        return name
    rows = rows_of(flat)
    name, start = "", ""
    spec: FieldSpec | None = None
    for match in _STEP.finditer(path):
        if match[1]:
            prefix = f"{name}." if name else ""
            spec = next((child for child in CHILDREN.get(start, ()) if child.name == match[1]), None)
            if spec is None:
                break
            name, start = f"{prefix}{spec.name}", below(spec)
            continue
        row = _row(spec, name, match[2], rows, flat) if spec is not None else None
        if row is None:
            break
        name = row
    return name


def _row(spec: FieldSpec, name: str, key: str, rows: Mapping[str, list[int]], flat: Mapping[str, str]) -> str | None:
    """Return the name of the row that a contract's path means; None when there is none, or the field has no rows."""
    numbers = rows.get(name, [])
    if spec.shape is Shape.MAP:
        return next((f"{name}{{{n}}}" for n in numbers if flat.get(f"{name}{{{n}}}#key") == key), None)
    if spec.kind is Kind.SECTION and key.isdecimal() and int(key) < len(numbers):
        return f"{name}[{numbers[int(key)]}]"
    return None


def _setting_name(key: str, flat: Mapping[str, str]) -> str:
    """Return the field of a key of ``parameters`` that the contract knows, "" for another one."""
    known = find(key)
    if known is None:
        return ""
    name = f"{SETTINGS}.{known.key}"
    if not known.per_input:
        return name
    tail = key.removeprefix(f"{known.key}.")
    rows = [f"{name}{{{number}}}" for number in rows_of(flat).get(name, ())]
    return next((row for row in rows if flat.get(f"{row}#key") == tail), name)
