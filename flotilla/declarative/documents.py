"""Documents in YAML files: read strictly, written so that equal things give equal text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flotilla.declarative.schema import Problems, Shape, Text

MAX_FILE_BYTES = 4 << 20
# Anchors let a few lines stand for millions of values; documents have no use for them.
_NO_ALIASES = "anchors and aliases (&, *) are not read"


class DocumentsRefused(Exception):
    """Files that cannot be read as documents; the message has a line for each problem."""


@dataclass(frozen=True, slots=True)
class Document:
    """One thing as it shall be. ``project`` is empty for what belongs to the site; ``place`` is ``file:line``."""

    kind: str
    name: str
    project: str
    spec: Mapping[str, Any]
    place: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it the same thing."""
        return self.kind, self.project, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.project + '/' if self.project else ''}{self.name}"


def read_documents(path: Path, shapes: Mapping[str, Shape], site: frozenset[str], project: str) -> list[Document]:
    """Return the documents of a file, or of every .yaml and .yml file below a folder, in the order of their names.

    ``project`` is that of documents that name none. ``site``: kinds that are in no project.

    Raises:
        DocumentsRefused: something is wrong; every problem of every file is said at once.
    """
    files = sorted(file for file in path.rglob("*") if file.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
    if not files:
        raise DocumentsRefused(f"{path} holds no .yaml files.")
    documents: list[Document] = []
    problems: list[str] = []
    for file in files:
        found = Problems(str(file))
        documents += _read_file(file, shapes, site, project, found)
        problems += found.found
    seen: dict[tuple[str, str, str], Document] = {}
    for document in documents:
        first = seen.setdefault(document.key, document)
        if first is not document:
            problems.append(f"{document.place}: {document} is there twice; first at {first.place}.")
    if problems:
        raise DocumentsRefused("\n".join(problems))
    return documents


def write_documents(documents: Iterable[Document]) -> str:
    """Return YAML; the documents in the order given, their fields in the order of the kind."""
    texts = []
    for document in documents:
        head = {"kind": document.kind, "name": document.name}
        if document.project:
            head["project"] = document.project
        body = {**head, "spec": dict(document.spec)}
        texts.append(yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))
    return "---\n".join(texts)


def _read_file(
    file: Path, shapes: Mapping[str, Shape], site: frozenset[str], project: str, problems: Problems
) -> list[Document]:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            problems.found.append(f"{file}: larger than {MAX_FILE_BYTES >> 20} MiB.")
            return []
        text = file.read_text()
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if getattr(event, "anchor", None) is not None:
                line = event.start_mark.line + 1 if event.start_mark else 1
                problems.found.append(f"{file}:{line}: {_NO_ALIASES}.")
                return []
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problems.found.append(f"{file}:{line}: {error.problem or error.context}.")
        return []
    except (yaml.YAMLError, OSError, UnicodeDecodeError, RecursionError) as error:
        problems.found.append(f"{file}: cannot be read: {error}")
        return []
    full = [node for node in nodes if node.value != ""]  # nothing between two ---
    found = [_read_node(node, shapes, site, project, problems) for node in full]
    return [document for document in found if document is not None]


def _read_node(
    node: yaml.Node, shapes: Mapping[str, Shape], site: frozenset[str], project: str, problems: Problems
) -> Document | None:
    before = len(problems.found)
    head = Shape({"kind": Text(tuple(shapes)), "name": Text(), "project": Text(), "spec": _Unread()})
    outer = Shape(head.fields, required=frozenset({"kind", "name", "spec"})).read(node, "", problems)
    if outer is None or len(problems.found) > before:
        return None
    kind = outer["kind"]
    if kind in site and "project" in outer:
        problems.say(node, f"{kind} belongs to the site, so it has no project.")
    spec = shapes[kind].read(outer["spec"], "spec", problems)
    if len(problems.found) > before:
        return None
    place = f"{problems.file}:{node.start_mark.line + 1}"
    return Document(kind, outer["name"], "" if kind in site else outer.get("project", project), spec, place)


class _Unread:
    """Leaves a node for later, when it is known what it should be."""

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        return node


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks; lists indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # a next line character (U+0085) outside of quotes reads as a line feed
    style = '"' if "\x85" in text else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
