"""Models, versions and serving configs."""

from __future__ import annotations

from pathlib import Path

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla


@click.command()
@click.argument("model")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--git-sha", default="", help="Commit that the version was made from.")
@click.option("--ci-run", default="", help="Address of the CI run.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds to wait for the checks.")
@json_option
@client_command
def push(client: Flotilla, model: str, path: Path, git_sha: str, ci_run: str, timeout: float, as_json: bool) -> None:
    """Upload PATH (an .onnx file or a folder) as a new version of MODEL and wait for its checks."""
    source = {key: value for key, value in {"git_sha": git_sha, "ci_run": ci_run}.items() if value}
    version = client.push(
        model, _files(path), source=source, progress=None if as_json else _say_progress, timeout_seconds=timeout
    )
    show(version, as_json, lambda: f"{model} version {version['number']} is ready.")


@click.command()
@click.argument("model")
@json_option
@client_command
def versions(client: Flotilla, model: str, as_json: bool) -> None:
    """List the versions of MODEL."""
    found = client.versions(model)
    rows = ([v["number"] or "-", v["state"], v["size_bytes"], v["created_at"], v["state_reason"]] for v in found)
    show(found, as_json, lambda: table(rows, ["VERSION", "STATE", "BYTES", "CREATED", "REASON"]))


@click.command()
@json_option
@client_command
def models(client: Flotilla, as_json: bool) -> None:
    """List the models of the project."""
    found = client.models()
    show(found, as_json, lambda: table(([m["slug"], m["description"]] for m in found), ["MODEL", "DESCRIPTION"]))


@click.command()
@click.argument("model")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--comment", "-m", default="", help="Why.")
@click.option("--check", is_flag=True, help="Only say what is wrong; store nothing.")
@json_option
@client_command
def config(client: Flotilla, model: str, file: Path, comment: str, check: bool, as_json: bool) -> None:
    """Store FILE (config.pbtxt or JSON) as the serving config of MODEL."""
    kind = "json" if file.suffix == ".json" else "pbtxt"
    if check:
        report = client.check_config(model, file.read_text(), kind=kind)
        show(report, as_json, lambda: "The config is valid." if report["ok"] else _problems(report["errors"]))
        if not report["ok"]:
            raise SystemExit(1)
        return
    revision = client.push_config(model, file.read_text(), kind=kind, comment=comment)
    show(revision, as_json, lambda: f"{model} config {revision['number']} ({revision['digest'][:12]})")


def _files(path: Path) -> dict[str, Path]:
    """Return path inside the version -> local file. A single file of a known kind gets the name that nodes expect."""
    if path.is_dir():
        files = {str(file.relative_to(path)): file for file in sorted(path.rglob("*")) if file.is_file()}
        if not files:
            raise click.ClickException(f"{path} holds no files.")
        return files
    return {"model.onnx" if path.suffix == ".onnx" else path.name: path}


def _say_progress(path: str, sent: int, total: int) -> None:
    end = "\n" if sent == total else "\r"
    click.echo(f"{path}: {sent * 100 // max(total, 1):3d} % of {total} bytes{end}", nl=False, err=True)


def _problems(errors: list[dict[str, str]]) -> str:
    return "\n".join(f"{problem['field']}: {problem['message']}" for problem in errors)
