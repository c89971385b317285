"""``flotilla push``: a version from files to its checks, and on to traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flotilla.commands.context import CommandFailed, client_command, json_option
from flotilla.commands.deployments import wanted_routes
from flotilla.commands.fact_options import VersionFacts, fact_options
from flotilla.commands.following import Outcome, following, json_lines_option, timeout_option
from flotilla.commands.upload_bar import UploadBar
from flotilla.sdk import Flotilla, FolderRefused, FollowFailed, PushRecord, Step
from flotilla.sdk.folder import files_in
from flotilla.sdk.quantities import counted, size


class FileOrAddress(click.Path):
    """A path that exists, or an address that the server is to fetch."""

    name = "path"

    def __init__(self) -> None:
        super().__init__(exists=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an address as it is, else a Path."""
        return value if isinstance(value, str) and "://" in value else super().convert(value, param, ctx)


@click.command()
@click.argument("model")
@click.argument("path", type=FileOrAddress())
@fact_options
@click.option("--follow-links", is_flag=True, help="Send the files that links in the folder name.")
@click.option("--resume/--no-resume", default=True, help="Go on with the same push that was killed; on by default.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Follow checks, approval and rollout.")
@click.option("--alias", help="Then point this alias at the version.")
@click.option("--deploy", "fleet", metavar="FLEET", help="Then serve the version there.")
@click.option("--config", "-c", type=int, default=0, help="With --deploy: config revision; the newest by default.")
@click.option("--canary", type=click.IntRange(1, 99), help="With --deploy: only this percentage of the traffic.")
@click.option("--comment", "-m", default="", help="With --deploy: what approvers read.")
@timeout_option
@json_option
@json_lines_option
@client_command
def push(
    client: Flotilla,
    model: str,
    path: Path | str,
    facts: VersionFacts,
    follow_links: bool,
    resume: bool,
    wait: bool,
    alias: str | None,
    fleet: str | None,
    config: int,
    canary: int | None,
    comment: str,
    timeout: float,
    as_json: bool,
    json_lines: bool,
) -> None:
    """Upload PATH (a file or a folder) as a new version of MODEL and follow it to the end.

    An address (https://..., s3://...) instead of PATH is fetched by the server, if its operator allows that.

    When it is killed, the same command goes on where it stopped: the same version, only the bytes that are missing.

    One line a stage: upload, checks, alias, approval, rollout. The exit status says how it ended. An archive, a
    folder or repository of Triton, an MLflow model or a .mar is taken apart; a repository makes other models too.
    """
    if not wait and (alias or fleet):
        raise click.UsageError("--alias and --deploy need the checks to have passed, so they do not go with --no-wait.")
    files = files_of(path, follow_links=follow_links) if isinstance(path, Path) else {}
    with (
        following(as_json, json_lines, lambda done: _sentence(model, done)) as outcome,
        _record(client, model, files, facts, resume) as record,
    ):
        tell = outcome.display.tell
        follower = client.follower(timeout, tell)
        if isinstance(path, str):
            version, fetching = client.fetch(model, path, **facts.arguments())
            page = client.page(f"models/{model}/versions/{version['id']}")
            if not wait:
                outcome.add(version=version, checks=[], links={"version": page}, operation=fetching["id"])
                return
            fetched = follower.operation(fetching["id"], "fetch", link=page, verdict="checks_failed")
            operation = {"id": fetched["result"]["operation"]}
        else:
            sizes = [file.stat().st_size for file in files.values()]
            version, operation = client.upload(
                model,
                files,
                **facts.arguments(),
                progress=UploadBar(sizes, tell),
                record=record,
                notice=lambda sentence: tell(Step("upload", "running", sentence)),
            )
            page = client.page(f"models/{model}/versions/{version['id']}")
            tell(Step("upload", "done", f"{counted(len(files), 'file')} of {model}, {size(sum(sizes))}", 100, page))
        outcome.add(version=version, checks=[], links={"version": page})
        if not wait:
            record.forget()
            outcome.add(operation=operation["id"])
            return
        try:
            ended = follower.operation(operation["id"], "checks", link=page, verdict="checks_failed")
            apart = (ended.get("result") or {}).get("made")
            for made in apart or ():
                follower.operation(made["operation"], f"checks of {made['model']}", verdict="checks_failed")
        except FollowFailed as error:
            if error.verdict != "timed_out":
                record.forget()
            outcome.add(version=client.version(model, version["id"]), checks=client.checks(model, version["id"]))
            raise
        record.forget()
        if apart:
            outcome.add(version=client.version(model, version["id"]))
            outcome.add(made=[client.version(one["model"], one["version"]) for one in apart])
            if alias or fleet:
                raise CommandFailed(
                    "The versions are ready. --alias and --deploy go with one version, and these are more."
                )
            return
        version = client.version(model, version["id"])
        checks = client.checks(model, version["id"])
        outcome.add(version=version, checks=checks)
        warned = sum(check["verdict"] == "warn" for check in checks)
        text = f"version {version['number']} is ready" + (
            f", {counted(warned, 'check warns', 'checks warn')}" if warned else ""
        )
        tell(Step("checks", "done", text, 100, page))
        if alias:
            outcome.add(alias=client.aliases.set(model, alias, version["number"], comment=comment))
            tell(Step("alias", "done", f"{alias} is version {version['number']}"))
        if fleet:
            routes = wanted_routes(client, model, fleet, version["number"], config, canary)
            deploy_and_follow(client, outcome, follower, client.deploy(model, fleet, routes, comment=comment))


def deploy_and_follow(client: Flotilla, outcome: Outcome, follower: Any, answer: dict[str, Any]) -> None:
    """Follow what a change answered and note it in the outcome."""
    links = dict(outcome.document.get("links", {}))
    links["deployment"] = client.page(f"deployments/{answer['deployment']}")
    if answer.get("approval"):
        links["approval"] = client.site_page(f"approvals/{answer['approval']}")
    outcome.add(change=answer, links=links)
    try:
        outcome.add(**client.follow_change(answer, follower))
    except FollowFailed as error:
        outcome.add(**{error.stage: error.document})
        raise


def files_of(path: Path, *, follow_links: bool = False) -> dict[str, Path]:
    """Return path inside the version -> local file. A single file of a known kind gets the name that nodes expect."""
    if path.is_dir():
        try:
            return files_in(path, follow_links=follow_links)
        except FolderRefused as refused:
            raise CommandFailed(str(refused)) from None
        except OSError as error:
            raise CommandFailed(f"{error.filename} cannot be read: {error.strerror}.") from None
    return {"model.onnx" if path.suffix == ".onnx" else path.name: path}


def _record(client: Flotilla, model: str, files: dict[str, Path], facts: VersionFacts, resume: bool) -> PushRecord:
    if not files or not resume:
        return PushRecord()
    try:
        return client.push_record(model, files, **facts.arguments())
    except OSError as error:
        raise CommandFailed(f"{error.filename} cannot be read: {error.strerror}.") from None


def _sentence(model: str, done: dict[str, Any]) -> str:
    if made := done.get("made"):
        return "\n".join(f"{one['model']} version {one['number']} is ready." for one in made)
    number = done["version"]["number"]
    if number is None:
        return f"{model} is uploaded; its checks run: {done['links']['version']}"
    served = " and serves" if done.get("rollout") else ""
    return f"{model} version {number} is ready{served}."
