"""``flotilla checks`` against the real server."""

from __future__ import annotations

import json
import threading
import time

from click.testing import CliRunner
from django.db import connection

from flotilla.cli import main
from registry.models import Check, Operation
from registry.services.checks import check_finish
from registry.services.operations import operation_claim, operation_succeed
from tests.console.conftest import Cast, RunningConsole


def test_checks_from_a_shell(shared_cast: Cast, console: RunningConsole) -> None:
    version = shared_cast.ready_version()
    Check.objects.create(version=version, kind="format", verdict="pass", summary="Good.")
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": shared_cast.token("bob"),
        "FLOTILLA_PROJECT": "wren",
    }

    def run(*arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(main, ["checks", "finch", *arguments], env=environment)
        assert result.exit_code == status, result.output
        return result.output

    def work() -> None:
        """Be the worker of one operation."""
        try:
            deadline = time.monotonic() + 30
            while (operation := Operation.objects.filter(kind="check_version").first()) is None:
                assert time.monotonic() < deadline
            assert operation_claim(operation.pk, "w1") is not None
            check_finish(check=Check.objects.get(version=version, kind="smoke"), verdict="fail", summary="It is not.")
            operation_succeed(operation.pk, "w1")
        finally:
            connection.close()

    assert [row["kind"] for row in json.loads(run("1", "--json"))] == ["format"]
    assert "no check" in run("1", "--again", "magic", status=1)
    worker = threading.Thread(target=work)
    worker.start()
    printed = run("1", "--again", "smoke", status=4)
    worker.join()
    assert "smoke: It is not." in printed
