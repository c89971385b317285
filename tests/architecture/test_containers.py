"""docker-compose.yml and the Dockerfile, checked as far as that is possible without a Docker engine."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def _words(service: dict[str, Any]) -> str:
    command = service.get("command", [])
    return " ".join(command) if isinstance(command, list) else command


def test_every_role_of_the_product_is_there() -> None:
    assert {"postgres", "valkey", "web", "worker", "jobs", "beat", "observe", "node-a", "node-b"} <= set(SERVICES)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_python_modules_of_the_commands_exist(name: str) -> None:
    for module in re.findall(r"python -m ([\w.]+)", _words(SERVICES[name])):
        assert importlib.util.find_spec(module), module


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_volumes_and_dependencies_are_declared(name: str) -> None:
    service = SERVICES[name]
    assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(COMPOSE["volumes"])
    assert set(service.get("depends_on", {})) <= set(SERVICES)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_ports_are_published_on_loopback_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_nodes_hold_no_credentials_of_the_control_plane() -> None:
    for name in ("node-a", "node-b"):
        assert not {"DATABASE_URL", "REDIS_URL", "FLOTILLA_SECRET_KEY"} & set(SERVICES[name].get("environment", {}))


def test_node_flags_are_known(tmp_path: Path) -> None:
    from serving_node.cli import parse

    for name in ("node-a.pem", "node-a.key"):
        (tmp_path / name).touch()

    command = _words(SERVICES["node-a"]).split("python -m serving_node ")[1].replace("$$NODE_NAME", "node-a")
    command = command.replace("/certificates", str(tmp_path))
    settings = parse(command.split(), {}).settings
    assert settings.admin_address == "0.0.0.0"


def test_dockerfile_copies_what_the_wheel_needs() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for needed in ("pyproject.toml", "constraints.txt", "templates", "static", "serving_node", "registry"):
        assert re.search(rf"^COPY .*\b{re.escape(needed)}\b", text, re.MULTILINE), needed
    assert re.search(r"^USER (?!root)", text, re.MULTILINE)
