"""The ``flotilla`` command."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from pathlib import Path

import click

from flotilla import settings
from flotilla.commands import (
    aliases,
    apply_sets,
    audit,
    bench_model,
    cards,
    checks,
    code,
    completion,
    configs,
    convert,
    declarative,
    deployments,
    environments,
    fleet,
    fleets,
    keys,
    logs,
    models,
    operations,
    people,
    policies,
    projects,
    promote,
    push,
    quotas,
    reviews,
    rollouts,
    samples,
    service_accounts,
    sign_in,
    signatures,
    signing,
    sso,
    status,
    trust,
    version_facts,
    webhooks,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="flotilla")
def main() -> None:
    """Run Flotilla, and push, deploy and watch models from a shell or CI."""


@main.command()
@click.option("--port", default=7070, show_default=True, help="Port of the console.")
@click.option(
    "--node-port", default=8000, show_default=True, help="HTTP port of the node; gRPC, metrics, admin follow."
)
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Where everything is kept.")
@click.option("--no-node", is_flag=True, help="Start the control plane only.")
@click.option("--db-user", default="nobody", show_default=True, help="As root: the user that runs PostgreSQL.")
def up(port: int, node_port: int, data_dir: Path | None, no_node: bool, db_user: str) -> None:
    """Start everything on this machine: database, broker, console, workers and one serving node."""
    from flotilla.embedded.postgres import EmbeddedError
    from flotilla.up.data_folder import AlreadyRunning, DataFolder
    from flotilla.up.stack import UpOptions
    from flotilla.up.supervisor import StartFailed, Supervisor

    if importlib.util.find_spec("django") is None:
        raise click.ClickException(
            "flotilla up needs the control plane: pip install 'flotilla[console,embedded,node,onnx]'"
        )
    # everything that any of our processes makes is private unless it says otherwise
    os.umask(0o077)
    folder = DataFolder((data_dir or settings.default_data_dir()).absolute())
    try:
        folder.acquire()
    except AlreadyRunning as error:
        where = error.info.get("url", "an address it has not told yet")
        raise click.ClickException(
            f"Flotilla already runs in {folder.path}: {where} (process {error.info.get('pid', 'unknown')})."
        ) from None
    options = UpOptions(folder.path, port, node_port, not no_node, db_user)
    try:
        asyncio.run(Supervisor(options, folder).run())
    except (StartFailed, EmbeddedError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        folder.release()


def _running_environment(data_dir: Path | None) -> tuple[str, dict[str, str]]:
    """Return the URL and the environment of the Flotilla that runs in the folder."""
    from flotilla.up.data_folder import DataFolder

    folder = DataFolder((data_dir or settings.default_data_dir()).absolute())
    info = folder.read_run_info()
    if info.get("state") != "running":
        raise click.ClickException(f"Flotilla does not run in {folder.path}. Start it with: flotilla up")
    return str(info["url"]), settings.inherited_environment() | folder.read_environment()


@main.command()
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Where the running one keeps its data."
)
@click.option("--seconds", type=float, help="Stop the load after so long; by default on Ctrl-C.")
def demo(data_dir: Path | None, seconds: float | None) -> None:
    """Fill a running Flotilla with models of four backends, approvals, a canary and traffic."""
    missing = [name for name in ("torch", "onnx", "onnxscript", "openvino") if importlib.util.find_spec(name) is None]
    if missing:
        raise click.ClickException(f"The demo needs {', '.join(missing)}: pip install them, or use make demo.")
    from flotilla.demo.run import run

    url, environment = _running_environment(data_dir)
    run(url, environment, seconds, click.echo)


@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def manage(data_dir: Path | None, arguments: tuple[str, ...]) -> None:
    """Run one of Django's management commands against the running Flotilla."""
    _, environment = _running_environment(data_dir)
    os.execve(sys.executable, [sys.executable, "-m", "django", *arguments], environment)  # noqa: S606


@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def node(arguments: tuple[str, ...]) -> None:
    """Run a serving node. Takes tritonserver's flags; see ``flotilla node --help``."""
    os.execv(sys.executable, [sys.executable, "-m", "serving_node", *arguments])  # noqa: S606


for _command in (
    sign_in.login,
    sign_in.logout,
    sign_in.whoami,
    push.push,
    models.models,
    models.versions,
    models.model,
    models.download,
    checks.checks,
    version_facts.version,
    cards.card,
    samples.samples,
    aliases.alias,
    configs.config,
    declarative.export,
    declarative.apply,
    declarative.diff,
    apply_sets.apply_sets,
    convert.convert,
    bench_model.bench_model,
    deployments.deploy,
    deployments.traffic,
    deployments.rollback,
    rollouts.rollouts,
    promote.promote,
    status.status,
    deployments.infer,
    reviews.approvals,
    reviews.approve,
    reviews.reject,
    reviews.comment,
    reviews.review,
    reviews.bypass,
    reviews.withdraw,
    completion.completion,
    operations.operations,
    logs.logs,
    deployments.nodes,
    fleet.fleet,
    fleets.fleets,
    environments.environments,
    webhooks.webhooks,
    audit.audit,
    keys.keys,
    projects.projects,
    quotas.quotas,
    people.people,
    people.members,
    service_accounts.service_accounts,
    sso.sso,
    sso.scim_tokens,
    trust.issuers,
    trust.trust_rules,
    policies.policies,
    code.code,
    signatures.sign,
    signatures.verify,
    signing.signing,
):
    main.add_command(_command)
completion.complete_names(main)


if __name__ == "__main__":
    main()
