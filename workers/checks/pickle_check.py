"""The scan of pickles: what unpickling would import. Only a clean scan passes; a scan that cannot say is an error."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from registry.models import ModelVersion, Project, VersionFile
from registry.storage import artifact_store
from workers.checks.verdicts import Finding, NotChecked, VersionRejected, check
from workers.locks.leases import Lease
from workers.sandbox import Command, Ending, Limits, Mount, Outcome, SandboxUnavailable, run

KIND = "pickle_scan"
SCAN_SECONDS = 300
_PROGRAM = Path(__file__).resolve().parent / "pickle_process.py"
_NAMES = "names.json"
MAX_OUTPUT_BYTES = 4 * 1024**2
_MOST_NAMED = 5
_NOTHING: dict[str, Any] = {"pickles": 0, "looks_pickled": True, "globals": {}}
# These are pickles, or hold some: where nothing is found in one, nothing was seen.
_PICKLED = (".pkl", ".pickle", ".joblib", ".dill", ".pt", ".pth", ".ckpt")
# These may.
_PERHAPS = (*_PICKLED, ".pt2", ".npy", ".npz", ".bin", ".mar", ".zip", ".data", ".dat", ".model")
_MAGICS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04", b"\x93NUMPY")
_RAW = (".bin", ".data", ".dat", ".model")
SAFER = "safetensors, ONNX, torch.export"


def check_pickles(
    version: ModelVersion, files: Sequence[VersionFile], folder: Path, lease: Lease, warnings: list[str]
) -> None:
    """Scan every file of a version that is or may hold a pickle; nothing happens where none does.

    What cannot be read makes the verdict error and a warning of the version.

    Raises:
        VersionRejected: one would run what is known to be harmful, or, where the project asks for that, anything that
            is not known to be harmless.
    """
    wanted = [file for file in files if _concerns(file)]
    if not wanted:
        return
    place = folder / "pickles"
    place.mkdir()
    try:
        with check(version, KIND) as finding:
            for index, file in enumerate(wanted):
                lease.report(55, _("Scanning %(path)s") % {"path": file.path})
                artifact_store().copy_to(file.blob.sha256, place / str(index))
            results = _scan(place, [file.path for file in wanted], lease)
            project = Project.objects.get(models=version.model_id)
            finding.evidence.update(files=results, known_only=project.pickles_known_only)
            _judge(results, project, finding)
            warnings.extend(finding.warnings)
    except NotChecked as error:
        warnings.append(str(error))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _judge(results: Sequence[dict[str, Any]], project: Project, finding: Finding) -> None:
    """Fill in what was found. Raises VersionRejected or NotChecked, harm before doubt."""
    harmful, unknown = _judged(results, "dangerous"), _judged(results, "suspicious")
    if harmful:
        told = _("Loading it would run what is known to be harmful: %(named)s.")
        raise VersionRejected(told % {"named": _named(harmful)})
    if unknown and project.pickles_known_only:
        told = _("Project “%(project)s” takes pickles of known imports only, and these are not: %(named)s.")
        raise VersionRejected(told % {"project": project.slug, "named": _named(unknown)})
    unread = [_unread(result) for result in results if _unread(result)]
    if unread:
        told = _("The scan for pickles has not passed, because it could not read everything: %(why)s.")
        raise NotChecked(told % {"why": "; ".join(unread[:3])})
    if unknown:
        told = _("Loading it imports what nobody has judged: %(named)s. Safer formats: %(safer)s.")
        finding.warnings.append(told % {"named": _named(unknown), "safer": SAFER})
    count = sum(result["pickles"] for result in results)
    text = ngettext(
        "%(count)d pickle, which imports nothing but what is known to be harmless.",
        "%(count)d pickles, which import nothing but what is known to be harmless.",
        count,
    )
    finding.summary = text % {"count": count} if count else _("No file of it holds a pickle.")


def _concerns(file: VersionFile) -> bool:
    """Say whether a file is, or may hold, a pickle: by its name, or whatever it is called by its first bytes."""
    if file.path.lower().endswith(_PERHAPS):
        return True
    head = b"".join(artifact_store().open_range(file.blob.sha256, 0, 8)) if file.blob.size else b""
    return head.startswith(_MAGICS)


def _scan(folder: Path, names: Sequence[str], lease: Lease) -> list[dict[str, Any]]:
    """Return one result a file, also of those at which the scan ended."""
    (folder / _NAMES).write_text(json.dumps([*names]))
    output, problem = _in_sandbox(folder, lease) if settings.SANDBOX else _in_process(folder)
    found = {}
    for line in output[:MAX_OUTPUT_BYTES].splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            break
        found[one["path"]] = one
    return [
        found.get(name) or {**_NOTHING, "path": name, "problem": problem or _("the scan said nothing of it")}
        for name in names
    ]


def _in_sandbox(folder: Path, lease: Lease) -> tuple[bytes, str]:
    """Return what the scan wrote, and what was wrong with it."""
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)  # for the user of the sandbox
    command = Command(
        (sys.executable, "-s", "/flotilla/pickle_process.py", "/files", f"/files/{_NAMES}", "3"),
        mounts=(Mount(_PROGRAM, "/flotilla/pickle_process.py"), Mount(folder.resolve(), "/files")),
        environment={"OMP_NUM_THREADS": "1"},
        hidden=(Path(settings.DATA_DIR).absolute(), Path(settings.STAGING_DIR).absolute()),
    )
    limits = Limits(
        seconds=SCAN_SECONDS,
        memory_bytes=settings.SANDBOX_MEMORY_BYTES,
        scratch_bytes=1 << 20,
        file_bytes=1 << 20,
        cpu_seconds=SCAN_SECONDS,
        answer_bytes=MAX_OUTPUT_BYTES,
    )
    try:
        outcome = run(command, limits, lambda: lease.is_lost)
    except SandboxUnavailable as error:
        return b"", str(error)
    lease.check()
    return outcome.answer, _ending(outcome)


def _ending(outcome: Outcome) -> str:
    match outcome.ending:
        case Ending.ITSELF:
            told = _("the scan ended with status %(status)d") % {"status": outcome.status}
            return told if outcome.status else ""
        case Ending.MEMORY:
            return _("the scan took more memory than it may")
        case _:
            return _("the scan took longer than %(seconds)d s") % {"seconds": SCAN_SECONDS}


def _in_process(folder: Path) -> tuple[bytes, str]:
    """Do the same where the installation has no sandbox: in a process that limits itself."""
    try:
        done = subprocess.run(
            [sys.executable, "-s", str(_PROGRAM), str(folder), str(folder / _NAMES), "1"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SCAN_SECONDS,
            env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            cwd=folder,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return error.stdout or b"", _("the scan took longer than %(seconds)d s") % {"seconds": SCAN_SECONDS}
    problem = _("the scan ended with status %(status)d") % {"status": done.returncode} if done.returncode else ""
    return done.stdout, problem


def _unread(result: dict[str, Any]) -> str:
    if result["problem"]:
        # Under some names weights are often just numbers, which are no pickles and need not be any.
        is_raw = result["path"].lower().endswith(_RAW) and not result["looks_pickled"]
        return "" if is_raw and not result["globals"] else str(result["problem"])
    if not result["pickles"] and result["path"].lower().endswith(_PICKLED):
        return _("no pickle was found in %(path)s") % {"path": result["path"]}
    return ""


def _judged(results: Sequence[dict[str, Any]], verdict: str) -> list[str]:
    return sorted({name for result in results for name, judged in result["globals"].items() if judged == verdict})


def _named(names: Sequence[str]) -> str:
    text = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return _("%(named)s and %(count)d more") % {"named": text, "count": more} if more > 0 else text
