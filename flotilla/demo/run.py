"""The demo's story: make, push, configure, deploy, approve, canary, then traffic until stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flotilla.demo.load import Target, keep_busy
from flotilla.demo.networks import MODELS, Made, make
from flotilla.sdk import ApiError, Flotilla

_ACCOUNTS_TIMEOUT_SECONDS = 60
_CANARY = "digit-classifier"
_APPROVED = "sentence-encoder"
Say = Callable[[str], None]


def run(url: str, environment: dict[str, str], seconds: float | None, say: Say) -> None:
    """Fill the console at ``url`` and load its nodes for ``seconds``, or until interrupted when None."""
    accounts = _accounts(environment)
    with (
        tempfile.TemporaryDirectory(prefix="flotilla-demo-") as scratch,
        Flotilla(url, accounts["author"]["token"]) as author,
        Flotilla(url, accounts["approver"]["token"]) as approver,
    ):
        targets = []
        for name in MODELS:
            made = make(name, Path(scratch) / name / "1", seed=1)
            targets.append(Target(_publish(author, approver, name, made, say), made.sample))
        _add_canary(author, Path(scratch), say)
        node = next(node for node in author.nodes() if node["is_reachable"])
        say(f"Sending requests to node {node['name']} at {node['endpoints']['http']}; Ctrl-C stops them.")
        say(f"Watch them at {url}/p/default/models/")
        for role in ("author", "approver"):
            if accounts[role].get("password"):
                say(f"  sign in as the {role}: {accounts[role]['username']}  {accounts[role]['password']}")
        keep_busy(node["endpoints"]["http"], targets, seconds, say)


def _accounts(environment: dict[str, str]) -> dict[str, Any]:
    """Make the demo's two people and return their tokens; passwords only when they were made just now."""
    done = subprocess.run(
        [sys.executable, "-m", "django", "demo_accounts"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_ACCOUNTS_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"demo_accounts failed: {done.stderr.strip()[-500:]}")
    return dict(json.loads(done.stdout))


def _publish(author: Flotilla, approver: Flotilla, name: str, made: Made, say: Say) -> str:
    """Make sure that a version of the model serves; return the name it is served under."""
    fleet = "production" if name == _APPROVED else "development"
    try:
        return str(author.deployment(name, fleet)["deployment"]["served_name"])
    except ApiError as error:
        if error.status != 404:
            raise
    version = next((v for v in author.versions(name) if v["state"] == "ready"), None) if _exists(author, name) else None
    if version is None:
        say(f"{name}: uploading {made.size} bytes for {MODELS[name].backend}")
        version = author.push(name, made.files, source={"author": "flotilla demo"})
    config = author.push_config(name, _config(name), comment="Batches of 8, two instances")
    route = {"version": version["number"], "config": config["number"], "role": "live", "weight": 100}
    say(f"{name}: deploying version {version['number']} on {fleet}")
    answer = author.deploy(name, fleet, [route], comment="From the demo")
    if approval := answer.get("approval"):
        say(f"{name}: {fleet} needs an approval; the second person gives it")
        approver.review(approval, "approve", plan_digest=answer["plan_digest"], comment="Looks right to me.")
    author.wait_settled(name, fleet)
    return str(author.deployment(name, fleet)["deployment"]["served_name"])


def _exists(author: Flotilla, name: str) -> bool:
    return any(model["slug"] == name for model in author.models())


def _add_canary(author: Flotilla, scratch: Path, say: Say) -> None:
    """Push a second version of one model and give it a tenth of the traffic."""
    deployment = author.deployment(_CANARY, "development")
    if len(deployment["routes"]) > 1:
        return
    live = deployment["routes"][0]
    made = make(_CANARY, scratch / _CANARY / "2", seed=2)
    version = author.push(_CANARY, made.files, source={"author": "flotilla demo"})
    say(f"{_CANARY}: sending 10 % of the traffic to version {version['number']}")
    routes = [
        {"version": live["version"], "config": live["config"], "role": "live", "weight": 90},
        {"version": version["number"], "config": live["config"], "role": "canary", "weight": 10},
    ]
    author.deploy(_CANARY, "development", routes, comment="Second version, carefully")
    author.wait_settled(_CANARY, "development")


def _config(name: str) -> str:
    """Return a config.pbtxt that batches; inputs and outputs are completed from the model."""
    return (
        f'name: "{name}"\nbackend: "{MODELS[name].backend}"\n'
        f'default_model_filename: "{MODELS[name].model_file}"\nmax_batch_size: 8\n'
        "dynamic_batching {\n  preferred_batch_size: [ 4, 8 ]\n  max_queue_delay_microseconds: 2000\n}\n"
        "instance_group [ { count: 2 kind: KIND_CPU } ]\n"
    )
