"""docs/howto/use-the-api.md does what it says: its commands, as they stand there, against a running Flotilla."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.onnx_models import write_mlp
from tests.e2e.running import RunningFlotilla, clean_environment

PAGE = Path(__file__).parents[2] / "docs/howto/use-the-api.md"

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="the page uses curl and jq")
def test_the_commands_of_the_page_bring_a_version_to_production(flotilla: RunningFlotilla, tmp_path: Path) -> None:
    accounts = subprocess.run(
        [*flotilla.command, "manage", "--data-dir", str(flotilla.data_dir), "demo_accounts"],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=True,
    )
    people = json.loads(accounts.stdout)
    write_mlp(tmp_path / "model.onnx", seed=23)
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 6
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=clean_environment(
            FLOTILLA_URL=flotilla.url,
            FLOTILLA_TOKEN=people["author"]["token"],
            REVIEWER_TOKEN=people["approver"]["token"],
        ),
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    lines = done.stdout.splitlines()
    assert '{"name":"champion","version":1}' in lines
    assert '{"state":"applied","environment":"production"}' in lines or '"state":"approved"' in done.stdout
    assert json.loads(lines[-1])["phase"] in ("pending", "progressing", "verifying", "succeeded")
