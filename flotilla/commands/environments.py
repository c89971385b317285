"""Environments and their rules from a shell."""

from __future__ import annotations

import re
from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla

_LENGTH = re.compile(r"([0-9]{1,6})([mhd])")
_MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
_WINDOW = re.compile(
    r"(?:(?P<name>[^:]*):)?\s*(?P<cron>\S+(?:\s+\S+){4})\s+for\s+(?P<length>\S+)(?:\s+(?P<zone>\S+))?\s*"
)


class Length(click.ParamType[int]):
    """A length of time such as 30m, 12h or 2d, as minutes."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the minutes."""
        found = _LENGTH.fullmatch(str(value).strip())
        if found is None:
            self.fail("Write it such as 30m, 12h or 2d.", param, ctx)
        return int(found[1]) * _MINUTES[found[2]]


class Window(click.ParamType[dict[str, Any]]):
    """A window as text: ``NAME: CRON for LENGTH ZONE``; name and zone may be left out."""

    name = "window"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Return the window as JSON, without its effect."""
        found = _WINDOW.fullmatch(str(value).strip())
        if found is None:
            self.fail("Write it such as “weekend: 0 18 * * FRI for 62h Europe/Berlin”.", param, ctx)
        return {
            "name": (found["name"] or "").strip(),
            "cron": found["cron"],
            "duration_minutes": Length().convert(found["length"], param, ctx),
            "time_zone": found["zone"] or "UTC",
        }


@click.group()
def environments() -> None:
    """Make environments, and say when changes may start in them."""


@environments.command("list")
@json_option
@client_command
def list_all(client: Flotilla, as_json: bool) -> None:
    """List the environments."""
    found = client.environments.all()
    rows = ([e["slug"], _approvals(e), _checks(e), f"{e['wait_minutes']}m", len(e["windows"])] for e in found)
    show(found, as_json, lambda: table(rows, ["NAME", "APPROVALS", "CHECKS", "WAIT", "WINDOWS"]))


@environments.command("show")
@click.argument("name")
@click.option("--at", default="", help="A time with its offset, such as 2026-11-22T18:00:00Z; now.")
@json_option
@client_command
def show_one(client: Flotilla, name: str, at: str, as_json: bool) -> None:
    """Show the rules of environment NAME, and when changes may start."""
    found = client.environments.get(name)
    opening = client.environments.windows(name, at)
    show({**found, "opening": opening}, as_json, lambda: _described(found, opening))


@environments.command()
@click.argument("name")
@click.option("--title", default="", help="What people read; the short name, unless given.")
@click.option(
    "--approvals", type=click.IntRange(0, 10), default=1, show_default=True, help="How many approve; 0: none."
)
@json_option
@client_command
def create(client: Flotilla, /, name: str, title: str, approvals: int, as_json: bool) -> None:
    """Make environment NAME; ``set`` gives it more rules, and ``flotilla fleets create`` nodes."""
    made = client.environments.create(name, title=title, approvals=approvals)
    show(made, as_json, lambda: _described(made, client.environments.windows(name)))


@environments.command("set")
@click.argument("name")
@click.option("--approvals", type=click.IntRange(0, 10), help="How many people approve; 0: nobody has to.")
@click.option("--approver", "approvers", multiple=True, help="Only this person approves; again for more.")
@click.option("--any-approver", is_flag=True, help="Everybody approves who has the role to.")
@click.option("--approver-role", type=click.Choice(["approver", "operator", "admin"]), help="And who has this role.")
@click.option("--require", "required", multiple=True, metavar="CHECK[:warn]", help="Checks that must pass; again.")
@click.option("--no-checks", is_flag=True, help="No check is required.")
@click.option("--wait", type=Length(), help="How long an approved change waits, such as 30m; 0m: not at all.")
@click.option("--deny", type=Window(), multiple=True, help='No changes in this window: "CRON for LENGTH ZONE".')
@click.option("--allow", type=Window(), multiple=True, help="Changes only in windows like this one.")
@click.option("--no-windows", is_flag=True, help="Changes start at any time.")
@click.option("--bypasser", "bypassers", multiple=True, help="This account may bypass the rules; again for more.")
@click.option("--no-bypassers", is_flag=True, help="Nobody is named to bypass the rules.")
@click.option("--admins-bypass/--no-admins-bypass", default=None, help="Whether site administrators may.")
@json_option
@client_command
def change(client: Flotilla, /, name: str, as_json: bool, **given: Any) -> None:
    """Change the rules of environment NAME; what is not named stays. Windows are given all at once."""
    rules = _rules(given)
    if not rules:
        raise click.UsageError("Name what to change.")
    changed = client.environments.update(name, **rules)
    show(changed, as_json, lambda: _described(changed, client.environments.windows(name)))


@environments.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@json_option
@client_command
def delete(client: Flotilla, name: str, yes: bool, as_json: bool) -> None:
    """Delete environment NAME with its fleets, while nothing is deployed there."""
    if not yes:
        click.confirm(f"Delete environment {name} with its fleets?", abort=True)
    client.environments.delete(name)
    show({"deleted": name}, as_json, lambda: f"{name} is deleted.")


def _rules(given: dict[str, Any]) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    if given["approvals"] is not None:
        rules["requires_approval"] = given["approvals"] > 0
        if given["approvals"]:
            rules["required_approvals"] = given["approvals"]
    if given["any_approver"]:
        rules |= {"approvers": [], "approver_role": ""}
    if given["approvers"]:
        rules["approvers"] = [*given["approvers"]]
    if given["approver_role"]:
        rules["approver_role"] = given["approver_role"]
    if given["required"] or given["no_checks"]:
        rules["required_checks"] = [
            {"kind": one.partition(":")[0], "allow_warn": one.endswith(":warn")} for one in given["required"]
        ]
    if given["wait"] is not None:
        rules["wait_minutes"] = given["wait"]
    if given["deny"] or given["allow"] or given["no_windows"]:
        rules["windows"] = [{**one, "effect": effect} for effect in ("deny", "allow") for one in given[effect]]
    if given["bypassers"] or given["no_bypassers"]:
        rules["bypassers"] = [*given["bypassers"]]
    if given["admins_bypass"] is not None:
        rules["admins_bypass"] = given["admins_bypass"]
    return rules


def _described(found: dict[str, Any], opening: dict[str, Any]) -> str:
    bypass = [*found["bypassers"], *(["site administrators"] if found["admins_bypass"] else [])]
    lines = [
        f"{found['name']} ({found['slug']})",
        f"approvals: {_approvals(found)}",
        f"checks: {_checks(found)}",
        f"wait: {found['wait_minutes']}m",
        *(
            f"window: {one['effect']} {one['name']}: {one['cron']} for {one['duration_minutes']}m {one['time_zone']}"
            for one in found["windows"]
        ),
        f"bypass: {', '.join(bypass) or 'nobody'}",
    ]
    if opening["is_open"]:
        lines.append("Changes may start now.")
    else:
        lines.append(f"Closed by {opening['closed_by']}; opens at {opening['opens_at'] or 'no time within 400 days'}.")
    return "\n".join(lines)


def _approvals(found: dict[str, Any]) -> str:
    if not found["requires_approval"]:
        return "none"
    named = [*found["approvers"], *([f"role {found['approver_role']}"] if found["approver_role"] else [])]
    return f"{found['required_approvals']}" + (f" by {', '.join(named)}" if named else "")


def _checks(found: dict[str, Any]) -> str:
    return ", ".join(one["kind"] + (":warn" if one["allow_warn"] else "") for one in found["required_checks"]) or "none"
