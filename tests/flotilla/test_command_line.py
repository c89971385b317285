"""What holds for every command, and that what is printed for CI is understood."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from flotilla.cli import main
from flotilla.commands.exit_codes import Exit

ROOT = Path(__file__).resolve().parents[2]
# They start processes, or what they print is JSON or a script anyway.
WITHOUT_JSON = {"up", "demo", "manage", "node", "infer", "completion", "audit export"}


def commands(group: click.Group = main, name: str = "") -> Iterator[tuple[str, click.Command]]:
    for child, command in group.commands.items():
        full = f"{name} {child}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, full)
        else:
            yield full, command


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize(("name", "command"), commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_prints_json_and_says_what_it_does(name: str, command: click.Command) -> None:
    assert command.help, f"{name} has no help"
    if name not in WITHOUT_JSON:
        assert "--json" in options(command), f"{name} does not take --json"


def test_exit_statuses_are_distinct_and_documented() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    assert len({int(status) for status in Exit}) == len(Exit)
    assert all(f"| {int(status)} | {status.meaning} |" in page for status in Exit)
    assert all(f"## `flotilla {name}" in page for name, _command in commands())


def lines() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "examples/ci").glob("*.yml")):
        document = yaml.safe_load(file.read_text())
        scripts = document.get("model", {}).get("script", [])
        for job in document.get("jobs", {}).values():
            scripts += [step["run"] for step in job["steps"] if "run" in step]
        assert any("flotilla push" in script for script in scripts)
        yield from ((file.name, script) for script in scripts if script.startswith("flotilla "))
    for page in ("howto/deploy-from-ci.md", "howto/keep-it-in-files.md"):
        for block in re.findall(r"```\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL):
            for line in block.splitlines():
                if line.strip().startswith("flotilla "):
                    yield page, line.partition("   #")[0].partition(" > ")[0].strip()


@pytest.mark.parametrize(("where", "line"), lines())
def test_every_printed_command_is_understood(
    where: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("build/model.onnx", "serving/config.pbtxt", "deploy/all.yaml", "flotilla.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    words = shlex.split(re.sub(r"\$\{?\w+\}?", "x", line))[1:]
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.commands.get(words[0])
        assert found is not None, f"{where}: there is no command {words[0]}"
        command, words = found, words[1:]
    with command.make_context("flotilla", words):
        pass


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_a_script(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0 and "_FLOTILLA_COMPLETE" in done.output


def completed(arguments: list[str], incomplete: str) -> list[str]:
    found = ShellComplete(main, {}, "flotilla", "_FLOTILLA_COMPLETE").get_completions(arguments, incomplete)
    return [item.value for item in found]


def test_names_are_completed_from_the_console_and_nobody_waits_for_a_dead_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from flotilla.commands import completion

    monkeypatch.setenv("FLOTILLA_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("FLOTILLA_URL", "http://127.0.0.1:1")
    assert completed([], "prom") == ["promote"]
    assert completed(["config", "get"], "fi") == []
    monkeypatch.setattr(completion, "_names", lambda given, listed: ["finch", "owl"])
    assert completed(["config", "get"], "fi") == ["finch"]
    assert completed(["status", "--fleet"], "o") == ["owl"]


def test_a_console_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import socket

    monkeypatch.setenv("FLOTILLA_CONFIG_DIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("FLOTILLA_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        begun = time.monotonic()
        assert completed(["config", "get"], "fi") == []
        # the test would hang for 30 s otherwise
        assert time.monotonic() - begun < 15


def test_the_client_commands_import_neither_django_nor_numpy() -> None:
    import subprocess
    import sys

    found = "print([name for name in ('django', 'numpy') if name in sys.modules])"
    program = f"import sys, flotilla.cli, flotilla.declarative.applying; {found}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
