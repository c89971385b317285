"""What pickles would import, however they are packed: only what was read to its end and is known passes."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import subprocess
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.models import AuditEvent, Check, ModelVersion, Project, RegisteredModel
from registry.services.code import project_code_formats
from tests.workers import factories
from tests.workers.checks.test_unopened import CONFIG, PYTHON
from workers.checks import pickle_check, pickle_process
from workers.sandbox import Ending, Outcome, SandboxUnavailable
from workers.tasks.operations import work_on


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


class Odd:
    def __reduce__(self) -> Any:
        return io.StringIO, ("",)


GOOD = OrderedDict(a=1, b=[2.0, "x"])
EVIL = pickle.dumps(Evil(), 4)
FREE: Any = SimpleNamespace(is_lost=False, check=lambda: None)
DANGEROUS = "posix.system" if os.name == "posix" else "nt.system"


def packed(members: dict[str, bytes], **options: Any) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return whole.getvalue()


def array(value: Any) -> bytes:
    whole = io.BytesIO()
    np.save(whole, value, allow_pickle=True)
    return whole.getvalue()


def legacy(*objects: Any) -> bytes:
    magic = 0x1950A86A20F9469CFC6C
    head = [pickle.dumps(part, 2) for part in (magic, 1001, {"little_endian": True}, *objects)]
    return b"".join(head) + b"\x80\x02 raw numbers of storages"


def scanned(tmp_path: Path, name: str, content: bytes) -> dict[str, Any]:
    (tmp_path / "0").write_bytes(content)
    return pickle_process.scan(tmp_path / "0", name)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_pickles_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    if protocol > pickle.HIGHEST_PROTOCOL:
        return
    good = scanned(tmp_path, "a.pkl", pickle.dumps(GOOD, protocol))
    assert (good["problem"], good["globals"]) == ("", {"collections.OrderedDict": "innocuous"})
    evil = scanned(tmp_path, "a.pkl", pickle.dumps(Evil(), protocol))
    assert evil["globals"] == {DANGEROUS: "dangerous"}
    odd = scanned(tmp_path, "a.pkl", pickle.dumps(Odd(), protocol))
    assert odd["globals"] == {"_io.StringIO": "suspicious"}


HIDDEN = {
    "zip": packed({"archive/data.pkl": EVIL}),
    "zip under another name": packed({"archive/weights": EVIL}),
    "zip in a zip": packed({"inner.zip": packed({"data.pkl": EVIL})}),
    "gzip": gzip.compress(EVIL),
    "bzip2": bz2.compress(EVIL),
    "xz": lzma.compress(EVIL),
    "zlib": zlib.compress(EVIL),
    "gzip in a zip": packed({"x": gzip.compress(EVIL)}),
    "array of objects": array(np.array([Evil()], dtype=object)),
    "arrays in a zip": packed({"a.npy": array(np.array([Evil()], dtype=object))}),
    "before torch.save had zips": legacy(Evil(), []),
    "in the last pickle of those": legacy({}, Evil()),
    "second in the file": pickle.dumps(GOOD) + EVIL,
    "broken off": EVIL[:-2],
    "before rubbish": EVIL + b"\xff\xff\xff rubbish",
}


@pytest.mark.parametrize("name", sorted(HIDDEN))
@pytest.mark.parametrize("suffix", [".pkl", ".bin", ""])
def test_what_is_harmful_is_found_wherever_it_hides(tmp_path: Path, name: str, suffix: str) -> None:
    assert scanned(tmp_path, f"model{suffix}", HIDDEN[name])["globals"].get(DANGEROUS) == "dangerous"


UNREAD = {
    "nothing": b"",
    "no pickle": b"these are no operations",
    "half": pickle.dumps(GOOD)[:-3],
    "with rubbish": pickle.dumps(GOOD) + b"rubbish",
    "damaged zip": packed({"data.pkl": pickle.dumps(GOOD)})[:-30],
    "damaged member": packed({"data.pkl": pickle.dumps(GOOD)}).replace(b"OrderedDict", b"OrderedDicx"),
    "damaged gzip": gzip.compress(pickle.dumps(GOOD))[:-4],
    "bomb": gzip.compress(bytes(300 * 1024**2), 9),
    "zip bomb": packed({"data.pkl": bytes(300 * 1024**2)}, compression=zipfile.ZIP_DEFLATED),
    "three deep": packed({"a.zip": packed({"b.zip": packed({"c.zip": packed({"d.pkl": EVIL})})})}),
}


@pytest.mark.parametrize("name", sorted(UNREAD))
def test_what_cannot_be_read_is_never_clean(tmp_path: Path, name: str) -> None:
    found = scanned(tmp_path, "model.pkl", UNREAD[name])
    assert found["problem"] and DANGEROUS not in found["globals"]


def test_weights_that_begin_like_a_pickle_are_none(tmp_path: Path) -> None:
    members = {"archive/data.pkl": pickle.dumps(GOOD, 2), "archive/data/0": b"\x80\x02" + bytes(range(256))}
    found = scanned(tmp_path, "model.pt", packed(members))
    assert (found["problem"], found["pickles"]) == ("", 1)


@given(st.binary(max_size=400), st.integers(0, 60))
def test_no_bytes_make_the_scan_fail_or_pass_an_import(tmp_path_factory: Any, junk: bytes, place: int) -> None:
    folder = tmp_path_factory.mktemp("junk")
    found = scanned(folder, "model.pkl", junk)
    assert found["problem"] or found["pickles"]
    mixed = scanned(folder, "model.pkl", EVIL[:place] + junk)
    assert mixed["problem"] or mixed["pickles"]


def checked(files: dict[str, bytes], **project: Any) -> tuple[ModelVersion, Check | None]:
    model = RegisteredModel.objects.first() or factories.make_model()
    Project.objects.update(pickles_known_only=False)
    if project:
        Project.objects.filter(pk=model.project_id).update(**project)
    version = factories.make_version(model, {"model.py": PYTHON, "config.pbtxt": CONFIG, **files})
    work_on(factories.make_operation(version).pk)
    version.refresh_from_db()
    return version, Check.objects.filter(version=version, kind="pickle_scan").first()


@pytest.mark.django_db(transaction=True)
def test_verdicts_of_versions() -> None:
    version, row = checked({"weights.pkl": pickle.dumps(GOOD)})
    assert row is not None and (version.state, row.verdict) == ("ready", "pass"), version.state_reason
    version, row = checked({"weights.pkl": pickle.dumps(Odd())})
    assert row is not None and (version.state, row.verdict) == ("ready", "warn")
    assert "_io.StringIO" in row.summary and "safetensors" in row.summary
    version, row = checked({"weights.pkl": pickle.dumps(Odd())}, pickles_known_only=True)
    assert row is not None and (version.state, row.verdict) == ("rejected", "fail")
    version, row = checked({"lib/whatever": HIDDEN["zip"]})
    assert row is not None and (version.state, row.verdict) == ("rejected", "fail")
    assert DANGEROUS in version.state_reason and row.evidence["files"][0]["globals"] == {DANGEROUS: "dangerous"}
    version, row = checked({"weights.pt": b"PK\x03\x04 rest of an archive"})
    assert row is not None and (version.state, row.verdict) == ("ready", "error")
    assert "could not read everything" in row.summary
    version, row = checked({"weights.pt": packed({"readme": b"nothing here"})})
    assert row is not None and row.verdict == "error" and "no pickle was found" in row.summary
    version, row = checked({"weights.bin": bytes(1000)})
    assert row is not None and row.verdict == "pass"
    version, row = checked({})
    assert row is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", ["killed", "late", "silent", "nonsense"])
def test_a_scan_that_says_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    def run(command: Any, **options: Any) -> Any:
        if end == "late":
            raise subprocess.TimeoutExpired(command, 1)
        output = b'{"path": "weights.pkl", ' if end == "nonsense" else b""
        return subprocess.CompletedProcess(command, -9 if end == "killed" else 0, output, b"")

    monkeypatch.setattr(pickle_check.subprocess, "run", run)
    version, row = checked({"weights.pkl": pickle.dumps(GOOD)})
    assert row is not None and (version.state, row.verdict) == ("ready", "error")


def test_the_process_is_bounded_and_knows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOTILLA_SECRET_KEY", "hidden")
    seen: dict[str, Any] = {}
    real = subprocess.run

    def run(command: Any, **options: Any) -> Any:
        seen.update(options)
        return real(command, **options)

    monkeypatch.setattr(pickle_check.subprocess, "run", run)
    (tmp_path / "0").write_bytes(EVIL)
    (tmp_path / "1").write_bytes(pickle.dumps(GOOD))
    found = pickle_check._scan(tmp_path, ["a.pkl", "b.pkl"], FREE)
    assert [sorted(one["globals"].values()) for one in found] == [["dangerous"], ["innocuous"]]
    assert "FLOTILLA_SECRET_KEY" not in seen["env"] and seen["timeout"] == pickle_check.SCAN_SECONDS


def test_the_scan_runs_in_the_sandbox(tmp_path: Path, settings: Any) -> None:
    settings.SANDBOX, settings.DATA_DIR, settings.STAGING_DIR = True, tmp_path / "data", tmp_path
    place = tmp_path / "files"
    place.mkdir(mode=0o700)
    (place / "0").write_bytes(EVIL)
    (place / "1").write_bytes(b"rubbish")
    evil, rubbish = pickle_check._scan(place, ["a.pkl", "b.pkl"], FREE)
    assert (evil["globals"], evil["problem"]) == ({DANGEROUS: "dangerous"}, "")
    assert "not made of whole pickles" in rubbish["problem"]


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        (Ending.DEADLINE, "longer than"),
        (Ending.MEMORY, "more memory"),
        (Ending.ITSELF, "ended with status -9"),
        (None, "nothing was run"),
    ],
)
def test_a_sandbox_that_ends_it_leaves_what_was_read_and_an_error(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, ending: Ending | None, sentence: str
) -> None:
    settings.SANDBOX = True
    told = json.dumps({"path": "a.pkl", "pickles": 1, "looks_pickled": True, "globals": {}, "problem": ""}).encode()

    def run(*_arguments: Any) -> Outcome:
        if ending is None:
            raise SandboxUnavailable("The sandbox cannot be had, so nothing was run.")
        return Outcome(ending, -9, "", told + b'\n{"path"', 0, 1.0)

    monkeypatch.setattr(pickle_check, "run", run)
    first, second = pickle_check._scan(tmp_path, ["a.pkl", "b.pkl"], FREE)
    assert first["problem"] == ("" if ending else second["problem"]) and sentence in second["problem"]


@pytest.mark.django_db(transaction=True)
def test_the_wish_of_a_project_is_audited() -> None:
    project = factories.make_model().project
    project_code_formats(project=project, pickles_known_only=True, actor=factories.SYSTEM)
    event = AuditEvent.objects.get(action="project.code_formats")
    assert (event.before, event.after) == ({"pickles_known_only": False}, {"pickles_known_only": True})
