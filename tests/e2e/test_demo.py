"""``flotilla demo`` fills an installation: models of four backends, an approval, a canary, traffic in the charts."""

from __future__ import annotations

import json
import subprocess

import pytest

from flotilla.sdk import Flotilla
from tests.e2e.running import RunningFlotilla, clean_environment, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
MODELS = {
    "digit-classifier": "onnxruntime",
    "thumbnail-net": "openvino",
    "sentence-encoder": "pytorch",
    "tokenizer": "python",
}


def _run(flotilla: RunningFlotilla, *arguments: str) -> str:
    command, *rest = arguments
    done = subprocess.run(
        [*flotilla.command, command, "--data-dir", str(flotilla.data_dir), *rest],
        capture_output=True,
        text=True,
        timeout=300,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_demo_fills_everything_and_can_be_run_again(own_flotilla: RunningFlotilla) -> None:
    flotilla = own_flotilla
    # As at home: what is checked in the sandbox elsewhere is switched off for the tests.
    flotilla.environment["FLOTILLA_SANDBOX"] = "1"
    flotilla.start()
    said = _run(flotilla, "demo", "--seconds", "25")
    assert "needs an approval" in said
    assert int(said.rsplit(" answered, 0 failed", 1)[0].rsplit("\n", 1)[-1]) > 100

    token = json.loads(_run(flotilla, "manage", "demo_accounts"))["author"]["token"]
    with Flotilla(flotilla.url, token) as client:
        assert {model["slug"] for model in client.models()} >= MODELS.keys()
        for model, backend in MODELS.items():
            fleet = "production" if model == "sentence-encoder" else "development"
            assert client.deployment(model, fleet)["health"] == "healthy"
            [config] = client._transport.send("GET", f"projects/default/models/{model}/configs/").json()["results"][:1]
            assert config["body"]["backend"] == backend
        canary = client.deployment("digit-classifier", "development")
        assert {route["role"]: route["weight"] for route in canary["routes"]} == {"live": 90, "canary": 10}
        approval = next(row for row in client.approvals(state="applied") if row["model"] == "sentence-encoder")
        reviews = client.approval(approval["id"])["reviews"]
        assert [review["reviewer"] for review in reviews] == ["demo-approver"]

        def versions_with_traffic() -> set[str]:
            query = {"deployment": canary["deployment"]["id"], "metric": "request_rate", "by": "version"}
            answer = client._transport.send("GET", "metrics/query", params=query).json()
            return {line["label"] for line in answer["series"][0]["lines"] if any(line["values"])}

        wait_until(lambda: len(versions_with_traffic()) == 2, "the traffic of both versions is in the charts")

    assert "uploading" not in _run(flotilla, "demo", "--seconds", "1"), "what is there is left alone"
