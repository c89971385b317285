"""All that people read can be translated: it goes through gettext, as a plain literal that makemessages finds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils.translation import gettext

from registry.domain import texts
from registry.domain.paths import path_problem

ROOT = Path(__file__).parents[2]
# Their first sentence reaches people.
SPEAKING = {
    "CommandError",
    "Conflict",
    "Denied",
    "Immutable",
    "InvalidTransition",
    "NodeClientError",
    "NotFound",
    "PermissionDenied",
    "QuotaExceeded",
    "StaleWrite",
    "StorageFailed",
    "ValidationFailed",
    "Verdict",
    "VersionRejected",
    "FinishOperation",
    "MoveRollout",
}
TRANSLATORS = {"_", "gettext", "gettext_lazy", "ngettext", "pgettext"}
# The fake node speaks as a node does: in English.
LEFT_OUT = {"workers/node_client/fake.py"}


def sources() -> Iterator[Path]:
    for package in ("console", "registry", "workers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts and str(path.relative_to(ROOT)) not in LEFT_OUT:
                yield path


def called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return ""


def is_sentence(node: ast.expr) -> bool:
    """Whether the expression builds text for people out of a bare literal."""
    match node:
        case ast.Constant(str(text)):
            return " " in text.strip()
        case ast.JoinedStr():
            return any(is_sentence(part) for part in node.values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return is_sentence(left) or is_sentence(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return is_sentence(left)
        case ast.IfExp(body=body, orelse=orelse):
            return is_sentence(body) or is_sentence(orelse)
    return False


def problems(path: Path) -> list[str]:
    found = []
    name = path.relative_to(ROOT)
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        if called(node) in SPEAKING:
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            found += [f"{name}:{node.lineno}: not translated" for argument in arguments if is_sentence(argument)]
        if called(node) in TRANSLATORS and node.args and not isinstance(node.args[0], ast.Constant | ast.Name):
            found.append(f"{name}:{node.lineno}: makemessages cannot find this text")
    return found


def test_sentences_for_people_are_translated() -> None:
    assert not [problem for path in sources() for problem in problems(path)]


def test_the_domain_is_given_the_translation_of_the_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    assert texts._translate is gettext
    monkeypatch.setattr(texts, "_translate", {"The file name is empty.": "Der Dateiname ist leer."}.get)
    assert path_problem("") == "Der Dateiname ist leer."
