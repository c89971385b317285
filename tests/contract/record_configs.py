"""Load every config of config_cases.py on a real Triton and write down what it says.

    python -m tests.contract.record_configs [--to FILE] bash start-triton.sh {repository} {port}

The arguments are the command that starts Triton in the foreground; {repository} and {port} are replaced. HTTP must
listen on the port. The result goes to recorded/model_configs.json or FILE; what is there already is not asked again.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.contract.config_cases import CASES, Case

PORT = 20100
RECORDED = Path(__file__).parent / "recorded" / "model_configs.json"
_PREFIX = re.compile(r"^[EWI]\d{4} [\d:.]+ \d+ \S+\] ", re.MULTILINE)
_BACKENDS = re.compile(r"/[\w./-]*/backends(?=/python)")
_FLAGS = ["--model-control-mode=explicit", "--strict-readiness=false", "--exit-timeout-secs=5"]


def write_model(repository: Path, case: Case) -> None:
    """Write a model folder."""
    folder = repository / case.name
    (folder / "1").mkdir(parents=True)
    if case.config is None or "ensemble" not in case.config or "python" in case.config:
        (folder / "1" / "model.py").write_text(case.code)
    if case.config is not None:
        (folder / "config.pbtxt").write_text(case.config)
    for name, content in case.files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


def call(method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    """Return status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=20)
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, response.read().decode()


def wait_until_live() -> None:
    """Return when the server answers; it has a minute."""
    for _ in range(600):
        try:
            if call("GET", "/v2/health/live")[0] == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


def logged_reason(log: str, name: str) -> str | None:
    """Return why a model could not be read, which is only in the log."""
    text = _PREFIX.sub("\0", log)
    for entry in text.split("\0"):
        match = re.search(rf"Poll failed for model directory '{name}': (.*)", entry, re.DOTALL)
        if match:
            return match.group(1).strip()
    return None


def record(case: Case, log: Path) -> dict[str, object]:
    """Load one model and return what the server says."""
    seen = len(log.read_text())
    body = json.dumps({"parameters": {"config": case.override}}).encode() if case.override is not None else b"{}"
    status, text = call("POST", f"/v2/repository/models/{case.name}/load", body)
    if status == 200:
        status, text = call("GET", f"/v2/models/{case.name}/config")
        return {"config": json.loads(text)}
    time.sleep(0.02)
    entry: dict[str, object] = {"status": status, "error": json.loads(text)["error"]}
    reason = logged_reason(log.read_text()[seen:], case.name)
    if reason is not None:
        entry["reason"] = reason
    return entry


class Server:
    """A running Triton; started again when a model ends it or makes it hang."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._arguments = arguments
        self._log = log
        self._start()

    def _start(self) -> None:
        with self._log.open("a") as stream:
            self._process = subprocess.Popen(self._arguments, stdout=stream, stderr=stream)
        wait_until_live()

    def ask(self, case: Case) -> dict[str, object]:
        """Return what it says to a model."""
        try:
            return record(case, self._log)
        except TimeoutError:
            self.stop()
            self._start()
            return {"hangs": True}
        except (OSError, http.client.HTTPException):
            self._process.wait(30)
            self._start()
            return {"dies": True}

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(command: list[str]) -> None:
    """Record every case that is not recorded yet."""
    target = RECORDED
    if command[:1] == ["--to"]:
        target, command = Path(command[1]), command[2:]
    answers = json.loads(target.read_text()) if target.exists() else {}
    with tempfile.TemporaryDirectory(prefix="configs-") as text:
        repository = Path(text) / "models"
        repository.mkdir()
        for case in CASES:
            write_model(repository, case)
        log = Path(text) / "log"
        server = Server([part.format(repository=repository, port=PORT) for part in command] + _FLAGS, log)
        try:
            for case in CASES:
                if case.name not in answers:
                    answer = json.dumps(server.ask(case)).replace(str(repository), "REPOSITORY")
                    answer = _BACKENDS.sub("BACKENDS", answer)
                    answers[case.name] = json.loads(answer)
                    target.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")
        finally:
            server.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
