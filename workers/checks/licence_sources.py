"""What a version states of its licence, and where: its source, its card, its model file, its licence files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from registry.domain.cards import MAX_CARD_BYTES, README_NAMES
from registry.domain.licences import UnreadableLicence, read_licence
from registry.domain.plain_yaml import UnreadableYaml, read_plain
from registry.models import ModelVersion, VersionFile
from registry.selectors.cards import card_latest
from registry.storage import artifact_store

# Most of a file that is read for its licence.
_HEAD_BYTES = 16 * 1024
_KEYS = ("license", "licence", "model_license", "model_licence")
_FILE = re.compile(r"(?:licen[cs]e|copying|unlicense)(?:[-_.](.+?))??(?:\.(?:txt|md|rst))?", re.IGNORECASE)
_TAG = re.compile(r"SPDX-License-Identifier:[ \t]*([^\r\n*]{1,500})")
# How the texts of the usual licences begin, once white space is one blank.
_TITLES = (
    (re.compile(r"apache license,? version 2\.0"), "Apache-2.0"),
    (re.compile(r"(?:the )?mit license(?: \(mit\))?\b"), "MIT"),
    (re.compile(r"mozilla public license,? version 2\.0"), "MPL-2.0"),
    (re.compile(r"gnu affero general public license version 3"), "AGPL-3.0-only"),
    (re.compile(r"gnu lesser general public license version 3"), "LGPL-3.0-only"),
    (re.compile(r"gnu lesser general public license version 2\.1"), "LGPL-2.1-only"),
    (re.compile(r"gnu general public license version 3"), "GPL-3.0-only"),
    (re.compile(r"gnu general public license version 2"), "GPL-2.0-only"),
    (re.compile(r"bsd 3-clause license"), "BSD-3-Clause"),
    (re.compile(r"bsd 2-clause license"), "BSD-2-Clause"),
    (re.compile(r"(?:creative commons )?attribution-noncommercial 4\.0 international"), "CC-BY-NC-4.0"),
    (re.compile(r"(?:creative commons )?attribution-sharealike 4\.0 international"), "CC-BY-SA-4.0"),
    (re.compile(r"(?:creative commons )?attribution 4\.0 international"), "CC-BY-4.0"),
)
_LONGEST_LEAD = 60


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a licence as it was made. ``where`` names its place; an empty ``text``: nothing known of it."""

    where: str
    text: str


def licence_statements(
    version: ModelVersion, files: Sequence[VersionFile], metadata: Mapping[str, str]
) -> list[Statement]:
    """Return what is stated, by whom it counts most first. ``metadata`` is what the model file says of itself.

    Raises:
        StorageFailed: the store did not give a file.
    """
    return [*_statements(version, files, metadata)]


def _statements(
    version: ModelVersion, files: Sequence[VersionFile], metadata: Mapping[str, str]
) -> Iterator[Statement]:
    if given := version.source.get("licence"):
        yield Statement("source.licence", str(given))
    by_path = {file.path: file for file in files}
    readme = next((by_path[name] for name in README_NAMES if name in by_path), None)
    if readme is not None:
        yield from _in_document(readme.path, _front_matter(_text(readme, MAX_CARD_BYTES)))
    elif (card := card_latest(version.model)) is not None:
        yield from _in_document("card", _front_matter(card.text))
    if text := _first(metadata):
        yield Statement("metadata_props", text)
    if told := (version.metadata.get("import") or {}).get("licence"):
        yield Statement("MLmodel", str(told))
    for file in files:
        name = PurePosixPath(file.path).name
        if (match := _FILE.fullmatch(name)) is not None and file.path.count("/") <= 1:
            yield Statement(file.path, _of_file(match.group(1) or "", _text(file, _HEAD_BYTES)))


def _in_document(where: str, document: Mapping[str, Any]) -> Iterator[Statement]:
    """Yield what a card states: Hugging Face names licences without a name of SPDX beside, in license_name."""
    text = _first(document)
    if text.casefold() == "other" and isinstance(document.get("license_name"), str):
        text = document["license_name"]
    if text:
        yield Statement(where, text)


def _first(document: Mapping[Any, Any]) -> str:
    found = {str(key).casefold(): value for key, value in document.items()}
    value = next((found[key] for key in _KEYS if found.get(key)), "")
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        # Of several licences nobody says which may be chosen: then all of them hold.
        return " AND ".join(f"({one})" for one in value[:20])
    return value.strip() if isinstance(value, str) else ""


def _of_file(suffix: str, text: str) -> str:
    if (tag := _TAG.search(text)) is not None:
        return tag.group(1).strip()
    beginning = " ".join(text.split())[:500].casefold()
    for title, name in _TITLES:
        found = title.search(beginning)
        if found is not None and found.start() <= _LONGEST_LEAD:
            return name
    return suffix if _is_known(suffix) else ""


def _is_known(text: str) -> bool:
    try:
        licence = read_licence(text)
    except UnreadableLicence:
        return False
    return licence is not None and not licence.unknown


def _front_matter(text: str) -> Mapping[str, Any]:
    if not text.startswith("---"):
        return {}
    head, end, _rest = text[3:].partition("\n---")
    return _yaml(head) if end else {}


def _yaml(text: str) -> Mapping[str, Any]:
    try:
        document = read_plain(text)
    except UnreadableYaml:
        return {}
    return document if isinstance(document, dict) else {}


def _text(file: VersionFile, most: int) -> str:
    size = min(file.blob.size, most)
    return b"".join(artifact_store().open_range(file.blob.sha256, 0, size)).decode("utf-8", "replace") if size else ""
