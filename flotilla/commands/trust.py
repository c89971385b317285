"""``flotilla issuers`` and ``trust-rules``: CI jobs that sign in without a secret."""

from __future__ import annotations

from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla
from flotilla.sdk.quantities import counted


@click.group()
def issuers() -> None:
    """Say whose tokens CI jobs may exchange here."""


@issuers.command("list")
@json_option
@client_command
def list_issuers(client: Flotilla, as_json: bool) -> None:
    """List the issuers."""
    found = client.issuers.all()
    rows = (
        [
            i["slug"],
            i["kind"],
            i["url"],
            "on" if i["is_enabled"] else "off",
            i["keys"],
            i["rules"],
            i["keys_problem"] or "-",
        ]
        for i in found
    )
    show(found, as_json, lambda: table(rows, ["ISSUER", "KIND", "ADDRESS", "STATE", "KEYS", "RULES", "PROBLEM"]))


@issuers.command("create")
@click.argument("issuer")
@click.argument("kind", type=click.Choice(["github", "gitlab"]))
@click.option("--address", default="", help="Of your own installation; without it that of GitHub or GitLab itself.")
@click.option("--max-age", type=click.IntRange(1), help="Minutes after which a job's token is too old.")
@json_option
@client_command
def create_issuer(client: Flotilla, issuer: str, kind: str, address: str, max_age: int | None, as_json: bool) -> None:
    """Put ISSUER, a short name of yours, on the site's list. Its keys are read at once."""
    made = client.issuers.create(issuer, kind, url=address, max_age_minutes=max_age)
    show(
        made, as_json, lambda: made["keys_problem"] or f"{issuer} is on the list, with {counted(made['keys'], 'key')}."
    )


@issuers.command("change")
@click.argument("issuer")
@click.option("--max-age", type=click.IntRange(1), help="Minutes after which a job's token is too old.")
@click.option("--on/--off", "is_enabled", default=None, help="Off also ends the tokens that jobs have got.")
@json_option
@client_command
def change_issuer(client: Flotilla, issuer: str, max_age: int | None, is_enabled: bool | None, as_json: bool) -> None:
    """Change what is given of ISSUER."""
    given = {"max_age_minutes": max_age, "is_enabled": is_enabled}
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("Say what to change.")
    changed = client.issuers.update(issuer, **changes)
    show(changed, as_json, lambda: f"{issuer} is changed.")


@issuers.command("read-keys")
@click.argument("issuer")
@json_option
@client_command
def read_keys(client: Flotilla, issuer: str, as_json: bool) -> None:
    """Let the console read the public keys of ISSUER now; status 1 when it cannot."""
    found = client.issuers.read_keys(issuer)
    show(found, as_json, lambda: found["keys_problem"] or f"{counted(found['keys'], 'key is', 'keys are')} known.")
    if found["keys_problem"]:
        raise SystemExit(1)


@issuers.command("delete")
@click.argument("issuer")
@json_option
@client_command
def delete_issuer(client: Flotilla, issuer: str, as_json: bool) -> None:
    """Take ISSUER from the list, while no rule names it."""
    client.issuers.delete(issuer)
    show({"deleted": issuer}, as_json, lambda: f"{issuer} is deleted.")


@click.group("trust-rules")
def trust_rules() -> None:
    """Say which CI jobs may act in the project, and as whom."""


@trust_rules.command("list")
@json_option
@client_command
def list_rules(client: Flotilla, as_json: bool) -> None:
    """List the rules of the project."""
    found = client.trust_rules.all()
    rows = (
        [r["name"], r["issuer"], r["repository"] or r["repository_id"], _bound(r), r["service_account"], _state(r)]
        for r in found
    )
    show(found, as_json, lambda: table(rows, ["RULE", "ISSUER", "REPOSITORY", "FROM", "ACTS AS", "STATE"]))


def _rule_options(function: Any) -> Any:
    for option in reversed(
        (
            click.option("--repository", help="What people call it; only shown."),
            click.option("--repository-id", help="The issuer's number of it, which no renaming changes."),
            click.option("--owner-id", help="The issuer's number of its owner."),
            click.option("--account", "service_account", help="The service account that jobs act as."),
            click.option("--ref", help="Only this branch or tag, such as refs/heads/main."),
            click.option("--environment", help="Only jobs of this environment of the issuer."),
            click.option("--workflow", help="Only this workflow file."),
            click.option("--protected-ref/--any-ref", default=None, help="Only protected branches and tags?"),
            click.option("--event", "events", multiple=True, help="Only jobs that this began; repeatable."),
            click.option("--scope", "scopes", multiple=True, type=click.Choice(["read", "write"]), help="Repeatable."),
            click.option("--minutes", "lifetime_minutes", type=click.IntRange(1), help="How long their keys live."),
        )
    ):
        function = option(function)
    return function


@trust_rules.command("create")
@click.argument("rule")
@click.argument("issuer")
@_rule_options
@json_option
@client_command
def create_rule(client: Flotilla, /, rule: str, issuer: str, as_json: bool, **given: Any) -> None:
    """Let jobs of a repository at ISSUER act as a service account, by a new RULE."""
    needed = ("repository_id", "owner_id", "service_account", "scopes")
    missing = [name for name in needed if not given[name]]
    if missing:
        words = {"service_account": "account", "scopes": "scope"}
        options = ", ".join(f"--{words.get(name, name).replace('_', '-')}" for name in missing)
        raise click.UsageError(f"A rule needs {options}.")
    made = client.trust_rules.create(rule, issuer=issuer, **_said(given))
    show(
        made,
        as_json,
        lambda: f"Jobs of {made['repository'] or made['repository_id']} act as {made['service_account']}.",
    )


@trust_rules.command("change")
@click.argument("rule")
@_rule_options
@click.option("--on/--off", "is_enabled", default=None)
@json_option
@client_command
def change_rule(client: Flotilla, /, rule: str, as_json: bool, **given: Any) -> None:
    """Change what is given of RULE; keys that it has given end at once."""
    changes = _said(given)
    if not changes:
        raise click.UsageError("Say what to change.")
    changed = client.trust_rules.update(rule, **changes)
    show(changed, as_json, lambda: f"{rule} is changed.")


@trust_rules.command("delete")
@click.argument("rule")
@json_option
@client_command
def delete_rule(client: Flotilla, rule: str, as_json: bool) -> None:
    """Delete RULE; keys that it has given end at once."""
    client.trust_rules.delete(rule)
    show({"deleted": rule}, as_json, lambda: f"{rule} is deleted.")


def _said(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [*value] if isinstance(value, tuple) else value
        for name, value in given.items()
        if value not in (None, ())
    }


def _bound(rule: dict[str, Any]) -> str:
    parts = [rule["ref"], rule["environment"], rule["workflow"], "protected" if rule["protected_ref"] else ""]
    return ", ".join(part for part in parts if part) or "anywhere"


def _state(rule: dict[str, Any]) -> str:
    return "on" if rule["is_enabled"] else "off"
