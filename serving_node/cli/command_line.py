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

_NOT_STRICT = "disable-auto-complete-config"
_STANDS_FOR = {STRICT_MODEL_CONFIG: _NOT_STRICT}


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
        if flag.warning:
            notes.append(flag.warning.format(value=read[-1]))
        elif flag.instead:
            notes.append(
                f"Warning: '--{flag.name}' has been deprecated and will be removed in future releases. Please use"
                f" '{flag.instead}' instead."
            )
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
        flag = FLAGS.get(_STANDS_FOR.get(name, name))
        if flag is None:
            raise SettingsError(f"unknown flag --{name}; see --help")
        if not equals:
            text = _next_text(flag, queue)
        if flag.refused and text.lower() not in FALSE:
            raise SettingsError(f"--{name} is not supported, and {flag.why}")
        given.setdefault(name, []).append(text)
    _settle_conflicts(given, notes)
    return given, notes


def _settle_conflicts(given: dict[str, list[str]], notes: list[str]) -> None:
    strict = given.pop(STRICT_MODEL_CONFIG, None)
    if strict is not None:
        known = f"'--{STRICT_MODEL_CONFIG}' has been deprecated! Please use '--{_NOT_STRICT}' instead."
        notes.append(f"Warning: {known}")
        if given.setdefault(_NOT_STRICT, strict) is not strict and strict[-1].lower() in FALSE:
            notes.append(
                f"Warning: Overriding deprecated '--{STRICT_MODEL_CONFIG}' from False to True in favor of"
                f" '--{_NOT_STRICT}'!"
            )
    if "cache-config" in given and "response-cache-byte-size" in given:
        raise SettingsError(
            "Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide one or"
            " the other."
        )


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
        usage="%(prog)s --model-repository FOLDER [--flag VALUE | --flag=VALUE ...]",
        description="Serve models by the open v2 inference protocol over HTTP and gRPC.",
        epilog="Every flag can be given as NODE_<FLAG> in the environment. Flags marked 'no effect' are tritonserver's:"
        " they are accepted, and the node says at its start why they change nothing.",
    )
    for title, flags in GROUPS:
        group = parser.add_argument_group(title)
        for flag in flags:
            metavar = flag.name.rsplit("-", 1)[-1].upper()
            more = flag.why or (f"use {flag.instead}" if flag.instead else "")
            words = f"{flag.help}: {more}" if more else flag.help
            group.add_argument(f"--{flag.name}", metavar=metavar, help=words.replace("%", "%%"))
    return parser.format_help()


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Start a node, build an engine or compile modules, and end the process with its exit status."""
    chosen = list(sys.argv[1:] if arguments is None else arguments)
    if chosen[:1] == ["build-engine"]:
        from serving_node.cli import build_engine

        sys.exit(build_engine.main(chosen[1:]))
    if chosen[:1] == ["compile"]:
        from serving_node.cli import compile_modules

        sys.exit(compile_modules.main(chosen[1:]))
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
