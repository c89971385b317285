"""Shell completion: the script to load, and names that a console knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem, get_completion_class

from flotilla import settings
from flotilla.profiles import ProfileError
from flotilla.sdk import ApiError, Flotilla

# Whoever presses Tab waits no longer than this; without an answer there are no names.
SECONDS = 1.0


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options, and names that the console knows.

    \b
    bash: eval "$(flotilla completion bash)"        in ~/.bashrc
    zsh:  eval "$(flotilla completion zsh)"         in ~/.zshrc
    fish: flotilla completion fish | source         in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(context.find_root().command, {}, "flotilla", "_FLOTILLA_COMPLETE").source())


def complete_names(root: click.Group) -> None:
    """Let every parameter of every command that names a thing of the console be completed with what there is."""
    for command in _commands(root):
        for parameter in command.params:
            listed = _LISTED.get(parameter.name or "")
            if listed is not None and isinstance(parameter.type, click.types.StringParamType):
                # replaces the completion of the type, which knows nothing
                parameter._custom_shell_complete = _completer(listed)


def _commands(group: click.Group) -> list[click.Command]:
    found: list[click.Command] = []
    for command in group.commands.values():
        found += _commands(command) if isinstance(command, click.Group) else [command]
    return found


_VERSIONS = "projects/{project}/models/{model}/versions/"
# Name of a parameter -> the list that has its values, and the column; {model} is that of the same command.
_LISTED: dict[str, tuple[str, str]] = {
    "model": ("projects/{project}/models/", "slug"),
    "fleet": ("fleets/", "slug"),
    "source": ("fleets/", "slug"),
    "target": ("fleets/", "slug"),
    "node": ("nodes/", "name"),
    "project": ("projects/", "slug"),
    "approval": ("approvals/", "id"),
    "operation": ("operations/", "id"),
    "person": ("users/", "username"),
    "account": ("service-accounts/", "username"),
    "provider": ("sso-providers/", "slug"),
    "issuer": ("issuers/", "slug"),
    "rule": ("projects/{project}/trust-rules/", "name"),
    "version": (_VERSIONS, "number"),
    "before": (_VERSIONS, "number"),
    "after": (_VERSIONS, "number"),
}


def _completer(listed: tuple[str, str]) -> Callable[..., list[CompletionItem]]:
    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in _names(context.params, listed) if name.startswith(incomplete)]

    return complete


def _names(given: dict[str, Any], listed: tuple[str, str]) -> list[str]:
    """Return the names on the first page, none when nobody answers in time."""
    try:
        where = settings.client_settings(
            given.get("url"), given.get("token"), given.get("project"), given.get("profile")
        )
        with Flotilla(where.url, where.token, where.project, seconds=SECONDS) as client:
            path = listed[0].format(project=where.project, model=quote(given.get("model") or "", safe=""))
            values = [row[listed[1]] for row in client.transport.send("GET", path).json()["results"]]
            return [str(value) for value in values if value is not None]
    except (ApiError, ProfileError, OSError, ValueError, KeyError):
        return []
