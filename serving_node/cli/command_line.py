"""From arguments and environment to settings, the help text, and the start of the node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from serving_node.cli.flags import ALIASES, FLAGS, GROUPS, STRICT_MODEL_CONFIG, Flag
from serving_node.cli.reading import FALSE, boolean
from serving_node.settings import NodeSettings, SettingsError, environment_values


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What was asked for. ``notes`` are sentences for the person who started the node."""

    settings: NodeSettings
    notes: tuple[str, ...] = ()


def parse(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> CommandLine:
    """Return the settings from arguments over environment over defaults.

    Raises:
        SettingsError: one sentence.
    """
    given, notes = _read_arguments(arguments)
    from_environment = environment_values(environment)
    values: dict[str, Any] = {}
    for flag in FLAGS.values():
        if flag.name in given:
            texts, source = given[flag.name], f"--{flag.name}"
        elif flag.setting and flag.name in from_environment:
            text = from_environment[flag.name]
            texts = [part for part in text.split(flag.separator) if part] if flag.repeat else [text]
            source = f"NODE_{flag.name.upper().replace('-', '_')}"
        else:
            continue
        try:
            read = [flag.read(text) for text in texts]
        except ValueError as error:
            raise SettingsError(f"{source}: {error}") from None
        if flag.setting:
            values[flag.setting] = tuple(read) if flag.repeat else read[-1]
        elif not flag.refused or any(text.lower() in FALSE for text in texts):
            notes.append(f"--{flag.name} has no effect: {flag.why}")
    settings = NodeSettings(**values)
    settings.check()
    return CommandLine(settings, tuple(notes))


def _read_arguments(arguments: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the texts given for each flag, and notes about deprecated ones."""
    given: dict[str, list[str]] = {}
    notes: list[str] = []
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        name, equals, text = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or not name:
            raise SettingsError(f"'{argument}' is not a flag; see --help")
        name = ALIASES.get(name, name)
        if name == "strict-model-config":
            notes.append(STRICT_MODEL_CONFIG)
            name = "disable-auto-complete-config"
        flag = FLAGS.get(name)
        if flag is None:
            raise SettingsError(f"unknown flag --{name}; see --help")
        if not equals:
            text = _next_text(flag, queue)
        if flag.refused and text.lower() not in FALSE:
            raise SettingsError(f"--{name} is not supported, and {flag.why}")
        given.setdefault(name, []).append(text)
    return given, notes


def _next_text(flag: Flag, queue: list[str]) -> str:
    """Take the text of a flag from the next argument; a switch alone is true."""
    if queue and not queue[0].startswith("--"):
        return queue.pop(0)
    if flag.read is boolean:
        return "true"
    raise SettingsError(f"--{flag.name} needs a value")


def help_text() -> str:
    """Return the help, grouped by subject."""
    parser = argparse.ArgumentParser(
        prog="python -m serving_node",
        description="Serve models by the open v2 inference protocol over HTTP and gRPC.",
        epilog="Every flag can be given as NODE_<FLAG> in the environment. Flags marked 'no effect' are tritonserver's:"
        " they are accepted, and the node says at its start why they change nothing.",
    )
    for title, flags in GROUPS:
        group = parser.add_argument_group(title)
        for flag in flags:
            metavar = flag.name.rsplit("-", 1)[-1].upper()
            words = flag.help if not flag.why else f"{flag.help}: {flag.why}"
            group.add_argument(f"--{flag.name}", metavar=metavar, help=words.replace("%", "%%"))
    return parser.format_help()


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Start a node and end the process with its exit status."""
    chosen = list(sys.argv[1:] if arguments is None else arguments)
    if any(argument in ("-h", "--help") for argument in chosen):
        sys.stdout.write(help_text())
        sys.exit(0)
    try:
        command_line = parse(chosen)
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
    # Imported late: --help and refusals need no event loop, engine or socket.
    from serving_node.server import run

    sys.exit(run(command_line.settings, command_line.notes))
