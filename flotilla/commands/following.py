"""What the commands that wait share: options, the display, the verdict as a document and as an exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from flotilla.commands.context import CommandFailed, describe
from flotilla.commands.exit_codes import Exit, exit_code_of
from flotilla.commands.progress import Display
from flotilla.commands.terminal import say
from flotilla.sdk import ApiError, FollowFailed, OperationFailed

_STATUS = {
    "checks_failed": Exit.CHECKS_FAILED,
    "rejected": Exit.REJECTED,
    "changes_requested": Exit.REJECTED,
    "voided": Exit.NOT_APPROVED,
    "withdrawn": Exit.NOT_APPROVED,
    "expired": Exit.NOT_APPROVED,
    "failed": Exit.ROLLED_BACK,
    "rolled_back": Exit.ROLLED_BACK,
    "superseded": Exit.ROLLED_BACK,
    "operation_failed": Exit.FAILED,
    "cancelled": Exit.FAILED,
    "timed_out": Exit.TIMED_OUT,
}

timeout_option = click.option(
    "--timeout", default=3600.0, show_default=True, type=click.FloatRange(1), help="Seconds for all of it."
)
json_lines_option = click.option("--json-lines", is_flag=True, help="Print every step as a line of JSON, then --json.")


class Outcome:
    """What one waiting command did, filled as it goes: the last document of ``--json``."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.document: dict[str, Any] = {"verdict": "succeeded", "exit_status": 0, "message": ""}

    def add(self, **facts: Any) -> None:
        """Note what there is now."""
        self.document |= facts


@contextmanager
def following(as_json: bool, json_lines: bool, sentence: Callable[[dict[str, Any]], str]) -> Iterator[Outcome]:
    """Give an outcome to fill; at the end print it, and leave with the status of its verdict.

    Steps go to standard error, with ``--json-lines`` to standard output; with ``--json`` there are none.
    """
    kind = "json" if json_lines else "none" if as_json else "terminal" if sys.stderr.isatty() else "log"
    outcome = Outcome(Display(sys.stdout if json_lines else sys.stderr, kind))
    status, message = Exit.OK, ""
    try:
        yield outcome
    except FollowFailed as error:
        status, message = _STATUS[error.verdict], str(error)
        outcome.add(verdict=error.verdict, stage=error.stage)
    except OperationFailed as error:
        status, message = Exit.FAILED, str(error)
        outcome.add(verdict="failed")
    except ApiError as error:
        status, message = exit_code_of(error), describe(error)
        outcome.add(verdict="refused", code=error.code, request_id=error.request_id)
    except KeyboardInterrupt:
        status, message = Exit.INTERRUPTED, "Interrupted. What was begun goes on at the server."
        outcome.add(verdict="interrupted")
    finally:
        outcome.display.close()
    outcome.add(exit_status=int(status), message=message)
    if as_json or json_lines:
        document = {"event": "result", **outcome.document} if json_lines else outcome.document
        click.echo(json.dumps(document, indent=None if json_lines else 2))
    elif status == Exit.OK:
        say(sentence(outcome.document))
    if status != Exit.OK:
        if as_json or json_lines:
            raise SystemExit(int(status))
        raise CommandFailed(message, status)
