"""Write the pages of docs/reference that say what the code says: states, permissions, addresses of the API, limits.

Usage: ``python scripts/generate_reference.py [--check]``. ``--check`` writes nothing and exits with 1 if a page is not
what would be written.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/reference"
WRITTEN = "Written by `scripts/generate_reference.py`; change the code, then run it."

# What it bounds, where it is, whose setting it is (empty: fixed).
LIMITS = [
    ("One uploaded file", "console.settings:MAX_UPLOAD_BYTES", "bytes", "FLOTILLA_MAX_UPLOAD_BYTES"),
    ("An unfinished upload is kept", "console.settings:UPLOAD_EXPIRY_HOURS", "hours", "FLOTILLA_UPLOAD_EXPIRY_HOURS"),
    ("Disk that uploads leave free", "console.settings:STAGING_FREE_BYTES", "bytes", "FLOTILLA_STAGING_FREE_BYTES"),
    ("Content that nobody holds is kept", "console.settings:BLOB_GRACE_HOURS", "hours", "FLOTILLA_BLOB_GRACE_HOURS"),
    (
        "Bytes that a request of an upload brings a second",
        "console.settings:UPLOAD_LEAST_BYTES_PER_SECOND",
        "at least",
        "FLOTILLA_UPLOAD_LEAST_BYTES_PER_SECOND",
    ),
    ("The time over which that is counted", "console.uploads.reception:WINDOW_SECONDS", "seconds", ""),
    (
        "One request of an upload",
        "console.settings:UPLOAD_REQUEST_SECONDS",
        "seconds",
        "FLOTILLA_UPLOAD_REQUEST_SECONDS",
    ),
    ("The body of any other request", "console.settings:BODY_SECONDS", "seconds", "FLOTILLA_BODY_SECONDS"),
    ("Files of a version", "registry.domain.paths:MAX_FILES", "", ""),
    ("Characters of a file's path", "registry.domain.paths:MAX_PATH", "", ""),
    ("Aliases of a model", "registry.services.aliases:MAX_ALIASES", "", ""),
    ("A model card", "registry.domain.cards:MAX_CARD_BYTES", "bytes", ""),
    ("Links of a model", "registry.domain.model_facts:MAX_LINKS", "", ""),
    ("Metrics of a version", "registry.domain.version_facts:MAX_METRICS", "", ""),
    ("Metadata of a version", "registry.domain.version_facts:MAX_METADATA_BYTES", "bytes", ""),
    ("The preview of a file", "registry.domain.previews:MAX_PREVIEW_BYTES", "bytes", ""),
    ("A config's text", "registry.services.configs:_TEXT_LIMIT", "bytes", ""),
    ("A body sent to the API or a page", "console.middleware.body_limit:MOST_BYTES", "bytes", ""),
    ("Try it: what is sent", "registry.services.operations:_TRY_LIMIT_BYTES", "bytes", ""),
    ("Try it: the answer", "workers.tasks.interactive:MAX_RESULT_BYTES", "bytes", ""),
    ("Try it: waiting for the node", "workers.tasks.interactive:DEADLINE_SECONDS", "seconds", ""),
    ("Try it: the answer is kept", "registry.services.operations:_KEEP_ANSWERS", "", ""),
    ("A measurement: combinations", "registry.domain.measurements:MAX_CELLS", "", ""),
    ("A measurement: one combination", "registry.domain.measurements:MAX_SECONDS", "seconds", ""),
    ("A measurement: loading the copy", "workers.tasks.measuring:LOAD_SECONDS", "seconds", ""),
    ("A measurement: in all", "workers.tasks.measuring:ALL_SECONDS", "seconds", ""),
    ("A measurement: one request", "registry.domain.measurements:MAX_REQUEST_BYTES", "bytes", ""),
    ("An ended operation is kept", "registry.services.operations:_KEEP_ENDED", "", ""),
    ("Attempts of an operation", "registry.services.operations:MAX_ATTEMPTS", "", ""),
    ("A worker's lease on an operation", "console.settings:OPERATION_LEASE_SECONDS", "seconds",
     "FLOTILLA_OPERATION_LEASE_SECONDS"),
    ("One task of a worker", "console.settings:CELERY_TASK_TIME_LIMIT", "seconds", ""),
    ("A rollout, from when a node answers", "registry.domain.reconcile:PROGRESS_DEADLINE", "", ""),
    ("A node that says nothing counts as unreachable after", "registry.services.node_life:LEASE", "", ""),
    ("Samples of 10 s are kept", "registry.domain.rollups:KEEP[10]", "", ""),
    ("Samples of 1 min are kept", "registry.domain.rollups:KEEP[60]", "", ""),
    ("Samples of 1 h are kept", "registry.domain.rollups:KEEP[3600]", "", ""),
    ("Series of one scrape", "workers.observe.exposition:_MAX_SERIES", "", ""),
    ("Event streams of one caller", "console.settings:STREAMS_PER_CALLER", "", "FLOTILLA_STREAMS_PER_CALLER"),
    ("Event streams of a web process", "console.settings:STREAMS", "", "FLOTILLA_STREAMS"),
    ("Topics of one stream", "console.live.topics:MAX_TOPICS", "", ""),
    ("Wrong passwords for a name from one address", "console.identity.login_limit:TRIES_PER_NAME", "", ""),
    ("Sign-ins from one address", "console.identity.login_limit:TRIES_PER_ADDRESS", "", ""),
    ("The time in which those are counted", "console.identity.login_limit:WINDOW_SECONDS", "seconds", ""),
    ("Webhooks of a project", "registry.services.webhooks:MAX_WEBHOOKS", "", ""),
    ("One attempt to deliver to a webhook", "workers.webhooks.sending:ATTEMPT_SECONDS", "seconds", ""),
    ("Attempts of a delivery", "registry.domain.webhooks:MAX_ATTEMPTS", "", ""),
    ("A webhook that fails is switched off after", "registry.domain.webhooks:DISABLE_AFTER", "", ""),
    ("An ended delivery is kept", "registry.services.webhook_deliveries:KEEP_DELIVERIES", "", ""),
    ("An Idempotency-Key is remembered", "registry.services.idempotency:KEPT", "", ""),
]  # fmt: skip


def states() -> str:
    """Return the page with a diagram for each transition table."""
    from registry.domain.states import TABLES

    parts = [
        "# States",
        WRITTEN,
        "Every move is one conditional UPDATE and leaves a row that says who, from, to and why.",
    ]
    for (noun, column), table in TABLES.items():
        lines = [f"  [*] --> {next(iter(table))}"]
        for before, targets in table.items():
            order = [state for state in table if state in targets]
            lines += [f"  {before} --> {after}" for after in order] or [f"  {before} --> [*]"]
        parts += [f"## {noun}.{column}", "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])]
    return _page(parts)


def permissions() -> str:
    """Return the page with a row for each permission."""
    from registry.models import ROLE_RANK
    from registry.selectors import permissions as known

    roles = sorted(ROLE_RANK, key=lambda role: ROLE_RANK[role])
    in_project = [
        (f"`{name}`", *(_mark(name, role, needed, roles, known._RELAXED) for role in roles), f"`{scope}`")
        for name, (needed, scope) in known._PROJECT.items()
    ]
    site_roles = ("none", "operator", "admin")
    on_site = [
        (f"`{name}`", *("yes" if role in allowed else "" for role in site_roles), f"`{scope}`")
        for name, (allowed, scope) in known._SITE.items()
    ]
    return _page(
        [
            "# Permissions",
            WRITTEN,
            "A token acts with the role of its owner, for the scopes it was given, in its project if it has one.",
            "## In a project, by role",
            _table(("Permission", *roles, "scope of a token"), in_project),
            "¹ only in environments that need no approval. Site administrators may also manage members."
            " `approval.bypass` is for those whom the environment names (and site administrators, if it says so),"
            " whatever their role in the project.",
            "Who asked for a change, uploaded a version in it, wrote a config in it, or owns a token used for these"
            " cannot approve it. Service accounts never approve.",
            "Contributors of a version are those, beside its author, who added content to it before it was submitted:"
            " uploaded a file, kept content that the project has already, or had it fetched from an address. That needs"
            " `version.write` and gives no permission of its own. A contributor may do with the version what their role"
            " allows, and may approve plans without it; a plan that holds the version, or one made of the same upload,"
            " they cannot approve, nor can the owner of a token that was used to contribute. Samples, tags, metrics and"
            " model cards make nobody a contributor.",
            "## On the site, by site role",
            _table(("Permission", *site_roles, "scope of a token"), on_site),
            "A token that belongs to a project has no permission on the site.",
        ]
    )


def _mark(name: str, role: str, needed: str, roles: list[str], relaxed: Iterable[str]) -> str:
    if roles.index(role) >= roles.index(needed):
        return "yes"
    return "yes¹" if name in relaxed and roles.index(role) >= roles.index("publisher") else ""


def rest_api() -> str:
    """Return the page with a row for each address and method."""
    from console.description import document

    rows = [
        (f"`{method.upper()}`", f"`{path.removeprefix('/api/v1/')}`", entry.get("summary", ""))
        for path, operations in sorted(document()["paths"].items())
        for method, entry in operations.items()
    ]
    return _page(
        [
            "# The REST API",
            WRITTEN,
            "Addresses are below `/api/v1/`. Begin with [from a key to production](../howto/use-the-api.md). Bodies,"
            " answers, examples and commands are on the console's page `/api/docs/`, and for programs in"
            " [openapi.json](openapi.json), which is what `GET /api/v1/openapi.json` answers.",
            "Sign in with `Authorization: Bearer flo_...` (or, from the console's own pages, with the session and"
            " `X-CSRFToken`). Refusals are problem documents with a stable `code`: see [errors](errors.md)."
            " Long work answers 202 with the `Location` of an operation.",
            "PUT, PATCH and DELETE need `If-Match` with the `ETag` of what was read (428 without, 412 when"
            " it has changed since); verbs check it when it is sent. Writes take `Idempotency-Key`: what is"
            " sent again with the same key within a day gets the first answer and is not done twice. Refusals"
            " are not kept, and another request with the key is refused with 422.",
            "Lists take `cursor` and `page_size` (to 200), `ordering` by one or more columns, `fields`, filters by"
            " value (`state=ready,archived`) and by time (`created_at__gte=`, `created_at__lt=`). A page begins after"
            " the row before it, so that rows which come and go are neither repeated nor missed. Parameters, fields and"
            " bodies that an address does not know are refused with 400.",
            _table(("Method", "Address", "What it does"), rows),
        ]
    )


def openapi() -> str:
    """Return the description of the API as it is served, in one order for good.

    Raises:
        SystemExit: the generator had to guess something; it has said what.
    """
    import json

    from drf_spectacular.drainage import GENERATOR_STATS

    from console.description import document

    document()
    if GENERATOR_STATS:
        sys.exit("openapi.json: describe what the generator warns of.")
    return json.dumps(document(), indent=1, sort_keys=True, ensure_ascii=False, default=str) + "\n"


def errors() -> str:
    """Return the page with a row for each code of a problem document."""
    from console.middleware.problem_codes import catalogue

    rows = [
        (f"`{row.code}`", str(row.status), row.title, row.meaning, "yes" if row.is_worth_repeating else "")
        for row in catalogue().values()
    ]
    return _page(
        [
            "# Errors of the REST API",
            WRITTEN,
            "Every refusal is `application/problem+json` (RFC 9457): `type`, `title`, `status`, `code`, `detail`,"
            " `errors`, `request_id`. Compare `code`, which stays as it is; show `detail`. Each of `errors` has a"
            " `message`, the `field` it is about and where that is: a `pointer` into the body (`#/routes/0/weight`, RFC"
            " 6901), or the `parameter` of the address. Several codes may share a status.",
            _table(("Code", "Status", "Title", "What it means", "May be repeated as it is"), rows),
        ]
    )


def checks() -> str:
    """Return the page with a row for each kind of check."""
    from registry.domain.checks import CHECK_KINDS, Cause

    words = {Cause.SUBMIT: "before the version is ready", Cause.AFTER: "once it is ready"}
    rows = [
        (f"`{kind.name}`", kind.title, kind.meaning, ", ".join(sorted(kind.formats)) or "all", words[kind.cause])
        for kind in CHECK_KINDS.values()
    ]
    return _page(
        [
            "# Checks",
            WRITTEN,
            "A check leaves one row for a version: a verdict (`pass`, `warn`, `fail`, `error`), a sentence, evidence as"
            " JSON and a log. `error` says that the check itself could not be done; it never counts as passed. Running"
            " a check again overwrites its row.",
            _table(("Kind", "Title", "What it looks at", "Formats", "When"), rows),
            "`POST .../versions/{version}/checks/{kind}/rerun` makes one check again, as an operation. The version"
            " stays as it is; an approval is bound to the checks that are no advice, and void once one turns bad.",
            "What follows once a version is ready: smoke inference, and each check that an environment requires; others"
            " when somebody asks.",
            "Smoke inference sends [samples](sample-inputs.md) and compares the answers with what they expect. Without"
            " any, tensors are made up, with the sizes of the config's first warm-up where sizes are dynamic, else 1: a"
            " batch of one and of two, or of a model of sequences one sequence with its beginning, middle and end. A"
            " decoupled model is asked over a stream: the evidence has how many answers came, whether the last one was"
            " marked, the time to the first and between them. Each kind of answer (types and shapes) is compared with"
            " the config. What runs code runs in the [sandbox](sandbox.md).",
        ]
    )


def limits() -> str:
    """Return the page with a row for each limit."""
    rows = [(what, _value(where, unit), f"`{setting}`" if setting else "") for what, where, unit, setting in LIMITS]
    return _page(["# Limits", WRITTEN, _table(("What", "Limit", "Setting"), rows)])


def _value(where: str, unit: str) -> str:
    module, _colon, name = where.partition(":")
    name, _bracket, key = name.partition("[")
    value: Any = getattr(import_module(module), name)
    if key:
        value = value[int(key.rstrip("]"))]
    if isinstance(value, timedelta):
        value, unit = value.total_seconds(), "seconds"
    if unit == "seconds":
        for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
            if value >= 2 * size and value % size == 0:
                value, unit = value / size, name
                break
    if unit == "bytes":
        for size, name in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
            if value >= size and value % size == 0:
                value, unit = value / size, name
                break
    return f"{value:,.0f} {unit}".strip()


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    first = list(heads)
    lines = [first, ["---"] * len(first), *([*row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


def command_line() -> str:
    """Every command of ``flotilla`` with its options, and the exit statuses."""
    import click

    from flotilla.cli import main as root
    from flotilla.commands.exit_codes import Exit

    def described(command: click.Command, name: str) -> Iterable[str]:
        context = click.Context(command, info_name=name)
        if isinstance(command, click.Group):
            for child in sorted(command.commands):
                yield from described(command.commands[child], f"{name} {child}")
            return
        yield f"## `{' '.join([name, *command.collect_usage_pieces(context)])}`"
        yield inspect.cleandoc(command.help or "").replace("\b\n", "").replace("``", "`")
        rows = []
        for parameter in command.params:
            record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
            if record is not None and record[0] not in shared:
                rows.append((f"`{record[0]}`", record[1].replace("|", "\\|")))
        if rows:
            yield _table(["Option", ""], rows)

    shared = {"-h, --help", "--json", "--url TEXT", "--token TEXT", "-p, --project TEXT", "--profile TEXT"}
    statuses = [(str(int(status)), status.meaning) for status in Exit]
    return _page(
        [
            "# The command line",
            WRITTEN,
            "`flotilla COMMAND --help` says the same. `flotilla completion bash|zsh|fish` prints what makes a shell "
            "complete commands, options and the names of models, fleets and nodes. Every command that prints something "
            "takes `--json`.",
            "Which console, who asks, and in which project: `--url`, `--token`, `--project`, else the variables "
            "`FLOTILLA_URL`, `FLOTILLA_TOKEN` (or `FLOTILLA_TOKEN_FILE`) and `FLOTILLA_PROJECT`, else the profile "
            "(`--profile`, `FLOTILLA_PROFILE`, else the one used last) that `flotilla login` keeps in "
            "`~/.config/flotilla/profiles.json`, readable by its user alone. The token of a profile goes to no other "
            "address than that of the profile.",
            "Errors are one sentence with the code of the refusal and the request's id, which stands in the log of the "
            "console.",
            "## Exit status",
            _table(["Status", "When"], statuses),
            *described(root, "flotilla"),
        ]
    )


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": command_line,
    "states.md": states,
    "permissions.md": permissions,
    "rest-api.md": rest_api,
    "checks.md": checks,
    "limits.md": limits,
    "errors.md": errors,
    "openapi.json": openapi,
}


def main() -> int:
    """Write or check the pages; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if a page is stale")
    check = parser.parse_args().check
    sys.path.insert(0, str(ROOT))
    # Pages tell defaults, not what is set here.
    for name in [name for name in os.environ if name.startswith("FLOTILLA_")]:  # noqa: TID251
        del os.environ[name]  # noqa: TID251
    os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"  # noqa: TID251
    import django

    django.setup()
    stale = 0
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if path.is_file() and path.read_text() == text:
            continue
        stale += 1
        print(f"{path.relative_to(ROOT)}: {'stale' if check else 'written'}")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
