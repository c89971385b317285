"""Every service that somebody calls leaves an audit event, itself or through another service."""

from __future__ import annotations

import ast
from pathlib import Path

SERVICES = Path(__file__).parents[3] / "registry/services"
# They read, or they are a step of a service that records.
NO_WRITE_OF_THEIR_OWN = {"require", "deployment_plan", "move", "operation_create", "record"}


def functions() -> dict[str, ast.FunctionDef]:
    return {
        node.name: node
        for path in SERVICES.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }


def calls(function: ast.FunctionDef) -> set[str]:
    found = set()
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)):
                found.add(name)
    return found


def records(name: str, known: dict[str, ast.FunctionDef], seen: frozenset[str] = frozenset()) -> bool:
    called = calls(known[name])
    if "record" in called:
        return True
    return any(records(other, known, seen | {name}) for other in called & known.keys() - seen - {name})


def test_every_write_is_audited() -> None:
    known = functions()
    assert len(known) > 100
    writes = [
        name
        for name, function in known.items()
        if not name.startswith("_")
        and name not in NO_WRITE_OF_THEIR_OWN
        and "actor" in {argument.arg for argument in function.args.kwonlyargs}
    ]
    assert len(writes) > 30
    assert [name for name in writes if not records(name, known)] == []
