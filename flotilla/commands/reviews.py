"""Approvals: what waits, what it would change, and the decision."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show, table
from flotilla.commands.exit_codes import Exit
from flotilla.commands.terminal import say
from flotilla.sdk import Flotilla

_comment = click.option("--comment", "-m", default="", help="Why.")


@click.command()
@click.argument("approval", required=False)
@click.option("--state", default="open", show_default=True, help="open, applied, rejected, voided...")
@json_option
@client_command
def approvals(client: Flotilla, approval: str | None, state: str, as_json: bool) -> None:
    """List approval requests, or show request APPROVAL: what it would do, its checks, rules and reviews."""
    if approval is not None:
        one = client.approval(approval)
        return show(one, as_json, lambda: f"{_plan_text(client, one)}\n{one['state']} {one['state_reason']}".rstrip())
    found = client.approvals(state)
    rows = ([a["id"], a["model"], a["fleet"], a["requester"], a["plan_digest"][:12], a["state"]] for a in found)
    return show(found, as_json, lambda: table(rows, ["ID", "MODEL", "FLEET", "BY", "PLAN", "STATE"]))


@click.command()
@click.argument("approval")
@_comment
@click.option("--plan", "plan_digest", help="Digest of the plan that you have read; without it the plan is shown.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@client_command
def approve(client: Flotilla, approval: str, comment: str, plan_digest: str | None, yes: bool, as_json: bool) -> None:
    """Approve the plan of request APPROVAL, bound to the digest of what is shown."""
    _decide(client, approval, "approve", comment, plan_digest, yes, as_json)


@click.command()
@click.argument("approval")
@_comment
@click.option("--plan", "plan_digest", help="Digest of the plan that you have read; without it the plan is shown.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--request-changes", is_flag=True, help="Ask for changes instead: the request stays open.")
@json_option
@client_command
def reject(
    client: Flotilla,
    approval: str,
    comment: str,
    plan_digest: str | None,
    yes: bool,
    request_changes: bool,
    as_json: bool,
) -> None:
    """Reject the plan of request APPROVAL; say why with -m."""
    _decide(client, approval, "request_changes" if request_changes else "reject", comment, plan_digest, yes, as_json)


@click.command()
@click.argument("approval")
@click.argument("decision", type=click.Choice(["approve", "request_changes", "reject"]))
@click.option("--plan", "plan_digest", required=True, help="Digest of the plan that you have read.")
@_comment
@json_option
@client_command
def review(client: Flotilla, approval: str, decision: str, plan_digest: str, comment: str, as_json: bool) -> None:
    """Decide on an approval request, for scripts that read the plan themselves."""
    answer = client.review(approval, decision, plan_digest=plan_digest, comment=comment)
    show(answer, as_json, lambda: f"{approval}: {decision}")


@click.command()
@click.argument("approval")
@click.option("--comment", "-m", required=True, help="What to say.")
@json_option
@client_command
def comment(client: Flotilla, approval: str, comment: str, as_json: bool) -> None:
    """Comment on request APPROVAL without deciding about it."""
    answer = client.review(approval, "comment", plan_digest="", comment=comment)
    show(answer, as_json, lambda: f"The comment is added. The request is {answer['state']}.")


@click.command()
@click.argument("approval")
@click.option("--reason", required=True, help="Why the rules are bypassed; everybody sees it.")
@click.option("--plan", "plan_digest", help="Digest of the plan that you have read; without it the plan is shown.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@client_command
def bypass(client: Flotilla, approval: str, reason: str, plan_digest: str | None, yes: bool, as_json: bool) -> None:
    """Start the change of request APPROVAL past the rules of its environment, if that lets you."""
    digest = plan_digest or _read(client, approval, "Bypass the rules", yes)
    answer = client.bypass(approval, reason, plan_digest=digest)
    show(answer, as_json, lambda: f"The rules are bypassed. The request is {answer['state']}.")


@click.command()
@click.argument("approval")
@json_option
@client_command
def withdraw(client: Flotilla, approval: str, as_json: bool) -> None:
    """Take request APPROVAL back, also one that is approved and waits."""
    answer = client.withdraw(approval)
    show(answer, as_json, lambda: f"The request is {answer['state']}.")


def _decide(
    client: Flotilla, approval: str, decision: str, comment: str, plan_digest: str | None, yes: bool, as_json: bool
) -> None:
    words = decision.replace("_", " ").capitalize()
    digest = plan_digest or _read(client, approval, words, yes)
    answer = client.review(approval, decision, plan_digest=digest, comment=comment)
    show(answer, as_json, lambda: f"{words}d. The request is {answer['state']}.")


def _read(client: Flotilla, approval: str, question: str, yes: bool) -> str:
    """Show the plan, ask about it, and return its digest."""
    found = client.approval(approval)
    say(_plan_text(client, found), err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise CommandFailed("Nobody can be asked here: name what you have read with --plan.", Exit.USAGE)
        click.confirm(f"{question}?", abort=True, err=True)
    return str(found["plan_digest"])


def _plan_text(client: Flotilla, found: dict[str, Any]) -> str:
    header = ["VERSION", "CONFIG", "ROLE", "TRAFFIC"]
    after, before = _routes(found["spec"].get("routes", [])), _routes(found["routes_before"])
    reviews = [f"{r['reviewer']}: {r['decision']} {r['comment']}".rstrip() for r in found["reviews"]]
    target = found["target"]
    return "\n".join(
        [
            f"{found['model']} on {found['fleet']} ({found['environment']}), asked by {found['requester']}",
            *([f"  “{found['comment']}”"] if found["comment"] else []),
            f"  plan {found['plan_digest']}",
            f"  {client.site_page('approvals/' + found['id'])}",
            f"  nodes {', '.join(target['nodes']) or 'none'}",
            f"  {target['requests_per_second']:.1f} requests a second now",
            table(after, header) if after else "  takes everything off",
            *(["before:", table(before, header)] if before else ["before: nothing"]),
            *(line for version in found["versions"] for line in _version_lines(version)),
            *(line for config in found["configs"] for line in _config_lines(config)),
            *(f"  {rule['standing']}: {rule['sentence']}" for rule in found["protection"]),
            *reviews,
        ]
    )


def _routes(routes: list[dict[str, Any]]) -> list[list[Any]]:
    return [[r["version"], r["config"], r["role"], f"{r['weight']} %"] for r in routes]


def _version_lines(version: dict[str, Any]) -> list[str]:
    signer = version["signer"]
    signed = f"signed by {signer['name']}" if signer else "no verified signature"
    commit = f", commit {version['git_sha']}" if version["git_sha"] else ""
    return [
        f"{version['model']} version {version['number']}: {version['manifest_digest']}",
        f"  {version['format']}, uploaded by {version['author']}{commit}, {signed}",
        *(f"  {check['verdict']}: {check['kind']}: {check['summary']}" for check in version["checks"]),
    ]


def _config_lines(config: dict[str, Any]) -> list[str]:
    instead = f" instead of {config['replaces']}" if config["replaces"] else ", the first here"
    return [
        f"config {config['number']}{instead}: {config['digest']}",
        *(f"  {one['path']}: {json.dumps(one['before'])} -> {json.dumps(one['after'])}" for one in config["changes"]),
    ]
