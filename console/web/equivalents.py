"""The same act from a terminal: what a form does, as ``curl`` and ``flotilla`` commands."""

from __future__ import annotations

import json
import shlex
from typing import Any

from django.conf import settings


def curl(method: str, path: str, body: Any = None, *, is_new: bool = False) -> str:
    """Return a curl command for the REST API. The token is taken from the variable FLOTILLA_TOKEN.

    A change takes any state for the one it expects; who wants to be sure sends the ETag that was read.
    ``is_new``: the command makes what is not there yet, and changes nothing that somebody made meanwhile.
    """
    parts = ["curl -sS"]
    if method != "GET":
        parts[0] += f" -X {method}"
    parts.append('-H "Authorization: Bearer $FLOTILLA_TOKEN"')
    if method in {"PUT", "PATCH", "DELETE"}:
        parts.append('-H "If-None-Match: *"' if is_new else '-H "If-Match: *"')
    if body is not None:
        parts.append('-H "Content-Type: application/json"')
        parts.append("-d " + shlex.quote(json.dumps(body, ensure_ascii=False)))
    address = f"{settings.PUBLIC_URL}/api/v1/{path}"
    # A shell takes an ampersand for its own; $VERSION of longer scripts stays what the shell fills in.
    parts.append(shlex.quote(address) if "?" in path else address)
    return " \\\n  ".join(parts)


def push(project: str, model: str, file: str = "model.onnx") -> str:
    """Return the command that uploads a version and waits for its checks."""
    return "\n".join(
        [
            f"export FLOTILLA_URL={settings.PUBLIC_URL} FLOTILLA_TOKEN=flo_…",
            f"flotilla push {model} {shlex.quote(file)} --project {project}",
        ]
    )


def ci_github(project: str, rule: str, environment: str) -> str:
    """Return a GitHub workflow whose job signs in without a secret and pushes; ``rule`` empty: only one fits."""
    lines = [
        "permissions:",
        "  id-token: write",
        "  contents: read",
        "jobs:",
        "  push:",
        "    runs-on: ubuntu-latest",
        *([f"    environment: {json.dumps(environment)}"] if environment else []),
        "    env:",
        f"      FLOTILLA_URL: {settings.PUBLIC_URL}",
        f"      FLOTILLA_PROJECT: {project}",
        "      RUN_URL: ${{ github.server_url }}/${{ github.repository }}/actions/runs/${{ github.run_id }}",
        "    steps:",
        "      - uses: actions/checkout@v4",
        "      - run: pip install ./flotilla-*.whl",
        f"      - run: {_login(rule)}",
        '      - run: flotilla push MODEL model.onnx --git-sha "$GITHUB_SHA" --ci-run "$RUN_URL"',
    ]
    return "\n".join(lines)


def ci_gitlab(project: str, rule: str, environment: str, audience: str) -> str:
    """Return a GitLab job that signs in without a secret and pushes; ``rule`` empty: only one fits."""
    lines = [
        "push:",
        "  id_tokens:",
        "    FLOTILLA_ID_TOKEN:",
        f"      aud: {json.dumps(audience)}",
        *([f"  environment: {json.dumps(environment)}"] if environment else []),
        "  variables:",
        f"    FLOTILLA_URL: {settings.PUBLIC_URL}",
        f"    FLOTILLA_PROJECT: {project}",
        "  script:",
        "    - pip install ./flotilla-*.whl",
        f"    - {_login(rule)}",
        '    - flotilla push MODEL model.onnx --git-sha "$CI_COMMIT_SHA" --ci-run "$CI_JOB_URL"',
    ]
    return "\n".join(lines)


def _login(rule: str) -> str:
    """Return the command by which a job shows who it is, as a scalar of YAML."""
    return (
        json.dumps(f"flotilla login --oidc --rule {shlex.quote(rule)}", ensure_ascii=False)
        if rule
        else "flotilla login --oidc"
    )


def join(token: str) -> str:
    """Return the command with which a machine joins; the token is in a file, because others see command lines."""
    return (
        f"(umask 077; echo {token} > join-token)\n"
        f"flotilla node --join {settings.PUBLIC_URL} --join-token-file join-token --state-dir ./node"
    )


def upload(project: str, model: str, file: str = "model.onnx") -> str:
    """Return the upload as curl: a version, one tus upload for each file, and the submission."""
    root = f"{settings.PUBLIC_URL}/api/v1"
    header = '-H "Authorization: Bearer $FLOTILLA_TOKEN"'
    return "\n".join(
        [
            f"FILE={shlex.quote(file)}; SIZE=$(stat -c %s $FILE)",
            f"curl -sS -o /dev/null {header} -H 'Content-Type: application/json' -d '{{\"slug\": \"{model}\"}}' \\",
            f"  {root}/projects/{project}/models/  # an existing model stays as it is",
            f"VERSION=$(curl -sS -X POST {header} -H 'Content-Type: application/json' -d '{{}}' \\",
            f"  {root}/projects/{project}/models/{model}/versions/ | "
            "python3 -c 'import json,sys; print(json.load(sys.stdin)[\"id\"])')",
            'META="version $(printf %s $VERSION | base64 -w0),path $(printf %s $FILE | base64 -w0)"',
            f"WHERE=$(curl -sS -X POST {header} -H 'Tus-Resumable: 1.0.0' \\",
            '  -H "Upload-Length: $SIZE" -H "Upload-Metadata: $META" \\',
            f"  -D - -o /dev/null {root}/uploads/ | sed -n 's/^[Ll]ocation: //p' | tr -d '\\r')",
            f"curl -sS -X PATCH {header} -H 'Tus-Resumable: 1.0.0' -H 'Upload-Offset: 0' \\",
            f"  -H 'Content-Type: application/offset+octet-stream' --data-binary @$FILE {settings.PUBLIC_URL}$WHERE",
            f"curl -sS -X POST {header} {root}/projects/{project}/models/{model}/versions/$VERSION/submit",
        ]
    )


def fetch(project: str, model: str, address: str) -> str:
    """Return the same as curl, for a model that exists: a version, and the order to fetch into it."""
    root = f"projects/{project}/models/{model}/versions/"
    identifier = "python3 -c 'import json,sys; print(json.load(sys.stdin)[\"id\"])'"
    order = curl("POST", f"{root}$VERSION/fetch", {"address": address})
    return f"VERSION=$({curl('POST', root, {})} | {identifier})\n{order}"


def infer_curl(name: str, body: dict[str, Any]) -> str:
    """Return an inference request to a node as curl; long tensors are cut."""
    text = json.dumps(_cut(body), ensure_ascii=False)
    return f"curl -sS http://NODE:8000/v2/models/{name}/infer \\\n  -d {shlex.quote(text)}"


def infer_python(name: str, body: dict[str, Any]) -> str:
    """Return an inference request with Triton's stock Python client."""
    lines = [
        "import numpy as np",
        "import tritonclient.http as triton",
        "from tritonclient.utils import triton_to_np_dtype",
        "",
        'client = triton.InferenceServerClient("NODE:8000")',
        "inputs = []",
    ]
    for tensor in body.get("inputs", []):
        lines += [
            f"tensor = triton.InferInput({tensor['name']!r}, {tensor['shape']!r}, {tensor['datatype']!r})",
            f"data = np.zeros({tuple(tensor['shape'])!r}, dtype=triton_to_np_dtype({tensor['datatype']!r}))",
            "tensor.set_data_from_numpy(data)",
            "inputs.append(tensor)",
        ]
    lines.append(f"print(client.infer({name!r}, inputs).get_response())")
    return "\n".join(lines)


def _cut(body: dict[str, Any], most: int = 32) -> dict[str, Any]:
    inputs = []
    for tensor in body.get("inputs", []):
        data = tensor.get("data", [])
        inputs.append({**tensor, "data": [*data[:most], "…"] if len(data) > most else data})
    return {**body, "inputs": inputs}
