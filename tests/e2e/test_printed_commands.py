"""What the README and the pages print as commands is run as it stands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.web import equivalents
from flotilla.sdk import Flotilla
from tests.e2e.onnx_models import write_mlp
from tests.e2e.running import RunningFlotilla, clean_environment, wait_until
from tests.ports import held_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


@pytest.fixture(scope="module")
def token(flotilla: RunningFlotilla) -> str:
    done = subprocess.run(
        [*flotilla.command, "manage", "--data-dir", str(flotilla.data_dir), "demo_accounts"],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=True,
    )
    return str(json.loads(done.stdout)["author"]["token"])


@pytest.fixture
def shell(flotilla: RunningFlotilla, token: str, tmp_path: Path) -> Any:
    """Run a script in a folder with model.onnx and a command ``flotilla``, as a reader would."""
    write_mlp(tmp_path / "model.onnx", seed=5)
    (tmp_path / "config.pbtxt").write_text("max_batch_size: 8\ndynamic_batching { }\n")
    bin_folder = Path(sys.executable).parent

    def run(script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
            env=clean_environment(
                FLOTILLA_URL=flotilla.url,
                FLOTILLA_TOKEN=token,
                GIT_SHA="0" * 40,
                PATH=f"{bin_folder}:/usr/local/bin:/usr/bin:/bin",
            ),
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def _block(start: str) -> str:
    return next(block for block in re.findall(r"```\n(.*?)```", README, re.DOTALL) if block.startswith(start))


def _client(flotilla: RunningFlotilla, token: str) -> Flotilla:
    return Flotilla(flotilla.url, token)


def test_readme_with_curl(flotilla: RunningFlotilla, token: str, shell: Any) -> None:
    assert shutil.which("curl")
    block = _block("api=").replace("sentiment", "by-curl")
    upload, deploy = block.split('curl -sH "$auth" -H "$json" $api/projects/default/deployments/')
    shell(upload)
    with _client(flotilla, token) as client:
        wait_until(lambda: [v["number"] for v in client.versions("by-curl")] == [1], "the version is ready")
        names = "\n".join(upload.splitlines()[:2]) + "\n"
        shell(names + 'curl -sfH "$auth" -H "$json" $api/projects/default/deployments/' + deploy)
        assert client.wait_settled("by-curl", "development")["health"] == "healthy"


def test_readme_with_the_command(flotilla: RunningFlotilla, token: str, shell: Any) -> None:
    lines = [line.split("  #")[0].rstrip() for line in _block("export FLOTILLA_URL").splitlines()]
    commands = [line.replace("sentiment", "by-command") for line in lines if line.startswith("flotilla ")]
    assert len(commands) == 8
    for command in commands:
        if "--version 2 --canary" in command:
            shell(commands[0])
        shell(command)
    with _client(flotilla, token) as client:
        assert [route["version"] for route in client.deployment("by-command", "development")["routes"]]
        assert any(row["model"] == "by-command" for row in client.approvals())


def test_pages_with_curl_and_the_command(flotilla: RunningFlotilla, token: str, shell: Any, settings: Any) -> None:
    settings.PUBLIC_URL = flotilla.url
    shell(equivalents.upload("default", "by-page"))
    shell(equivalents.push("default", "by-page").replace("FLOTILLA_TOKEN=flo_…", ""))
    with _client(flotilla, token) as client:
        wait_until(lambda: {v["number"] for v in client.versions("by-page")} == {1, 2}, "both versions are ready")
    assert json.loads(shell(equivalents.curl("GET", "me/")))["username"] == "demo-author"


def test_page_with_the_join_command(flotilla: RunningFlotilla, settings: Any, tmp_path: Path) -> None:
    settings.PUBLIC_URL = flotilla.url
    done = subprocess.run(
        [*flotilla.command, "manage", "--data-dir", str(flotilla.data_dir), "join_token", "--labels", "spare=yes"],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=True,
    )
    first = held_ports(4)
    ports = " ".join(
        f"--{name}-port {first + offset}" for offset, name in enumerate(("http", "grpc", "metrics", "admin"))
    )
    command = f"exec flotilla node --node-name spare {ports}"
    script = equivalents.join(done.stdout.strip()).replace("flotilla node", command)
    node = subprocess.Popen(
        ["bash", "-ec", script],
        cwd=tmp_path,
        env=clean_environment(PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: (tmp_path / "node" / "identity.json").exists(), "the node joins")
        assert (tmp_path / "join-token").stat().st_mode & 0o077 == 0
    finally:
        node.terminate()
        node.wait(60)
