"""What a project asks of its versions, from a shell."""

from __future__ import annotations

import re
from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])i?B?)?", re.IGNORECASE)
_FACTORS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TREATMENTS = click.Choice(["accept", "review", "refuse"])


class Threshold(click.ParamType[int]):
    """A size such as 20GiB, or a number; ``none`` for no threshold (-1 here, because None is “not given”)."""

    name = "threshold"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if str(value).casefold() == "none":
            return -1
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            self.fail("Write it such as 20GiB or 1000, or “none”.", param, ctx)
        return int(float(found[1]) * _FACTORS.get((found[2] or "").upper(), 1))


@click.group()
def policies() -> None:
    """Say what versions of the project may be: their size and licence, and the code in them."""


@policies.command("show")
@json_option
@client_command
def show_all(client: Flotilla, /, as_json: bool) -> None:
    """Show the policies of the project."""
    found = client.policies.read()
    show(found, as_json, lambda: _text(found))


@policies.command()
@click.argument("policy", type=click.Choice(["allow", "approve", "forbid"]))
@click.option("--pickles", type=click.Choice(["known-only", "any"]), help="What pickles may import.")
@json_option
@client_command
def code(client: Flotilla, /, policy: str, pickles: str | None, as_json: bool) -> None:
    """Say whether versions may bring code: always (allow), once an approval names it (approve), never (forbid)."""
    more = {"pickles_known_only": pickles == "known-only"} if pickles else {}
    found = client.policies.change(code_formats=policy, **more)
    show(found, as_json, lambda: _text(found))


@policies.command()
@click.argument("measure", type=click.Choice(["total_bytes", "file_bytes", "files"]))
@click.option("--warn", type=Threshold(), help="Warn above: 5GiB, 1000, none.")
@click.option("--fail", type=Threshold(), help="Refuse above.")
@json_option
@client_command
def size(client: Flotilla, /, measure: str, warn: int | None, fail: int | None, as_json: bool) -> None:
    """Limit one MEASURE of versions: all files together, the largest one, or how many there are."""
    limits = client.policies.read()["size_limits"]
    given = {"warn": warn, "fail": fail}
    limits[measure] |= {name: None if value < 0 else value for name, value in given.items() if value is not None}
    if (
        warn is None
        and limits[measure]["fail"] is not None
        and (limits[measure]["warn"] or 0) > limits[measure]["fail"]
    ):
        limits[measure]["warn"] = None  # it would never be given
    found = client.policies.change(size_limits=limits)
    show(found, as_json, lambda: _text(found))


@policies.command()
@click.option("--allow", multiple=True, help="A licence of SPDX, or a beginning: BSD-*. Repeat it; replaces the list.")
@click.option("--forbid", multiple=True, help="The same for what is refused.")
@click.option("--unlisted", type=_TREATMENTS, help="What follows for a licence on neither list.")
@click.option("--missing", type=_TREATMENTS, help="What follows for a version that states none.")
@json_option
@client_command
def licences(
    client: Flotilla,
    /,
    allow: tuple[str, ...],
    forbid: tuple[str, ...],
    unlisted: str | None,
    missing: str | None,
    as_json: bool,
) -> None:
    """Say which licences versions may have. What is not given stays."""
    given = {"allowed": [*allow], "forbidden": [*forbid], "unlisted": unlisted, "missing": missing}
    policy = client.policies.read()["licence_policy"] | {name: value for name, value in given.items() if value}
    found = client.policies.change(licence_policy=policy)
    show(found, as_json, lambda: _text(found))


def _text(found: dict[str, Any]) -> str:
    limits = [
        [f"size: {measure}", f"warn above {limit['warn'] or '-'}, refuse above {limit['fail'] or '-'}"]
        for measure, limit in found["size_limits"].items()
    ]
    policy = found["licence_policy"]
    rows = [
        ["code", found["code_formats"]],
        ["pickles: known imports only", "yes" if found["pickles_known_only"] else "no"],
        ["signatures", found["signing_policy"]],
        *limits,
        ["licences allowed", ", ".join(policy["allowed"]) or "-"],
        ["licences forbidden", ", ".join(policy["forbidden"]) or "-"],
        ["on neither list", policy["unlisted"]],
        ["none stated", policy["missing"]],
    ]
    return table(rows, ["POLICY", "VALUE"])
