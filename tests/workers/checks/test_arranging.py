"""Archives, repositories, MLflow models and .mar through the real checks, with a real database and store."""

from __future__ import annotations

import io
import json
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import ValidationFailed
from registry.models import Blob, Check, ModelVersion, Operation, RegisteredModel, VersionFile
from tests.workers import factories
from tests.workers.checks import onnx_models as models
from workers.checks.archives import Limits, unpack
from workers.tasks.operations import work_on

VALID = models.linear().SerializeToString()
OTHER = models.linear(width=8).SerializeToString()
CONFIG = b'backend: "onnxruntime"\nmax_batch_size: 4\n'


def zipped(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def validate(files: dict[str, bytes], model: RegisteredModel | None = None) -> tuple[ModelVersion, Operation]:
    version = factories.make_version(model or factories.make_model(), files)
    operation = factories.make_operation(version)
    work_on(operation.pk)
    version.refresh_from_db()
    operation.refresh_from_db()
    return version, operation


def paths_of(version: ModelVersion) -> list[str]:
    return sorted(VersionFile.objects.filter(version=version).values_list("path", flat=True))


@pytest.mark.django_db(transaction=True)
class TestVersions:
    @pytest.fixture(autouse=True)
    def _staging_is_left_clean(self, tmp_path: Path) -> Iterator[None]:
        yield
        assert not list(tmp_path.glob("staging/unpack-*"))
        assert not list(tmp_path.glob("staging/check-*"))

    @pytest.mark.parametrize(
        "files",
        [
            {"model.zip": zipped({"model.onnx": VALID, "labels.txt": b"a"})},
            {"model.tar.gz": tarred({"./model.onnx": VALID, "labels.txt": b"a"})},
            {"model.tar": tarred({"net/1/model.onnx": VALID, "net/labels.txt": b"a"}, "w")},
            {"net/1/model.onnx": VALID, "net/labels.txt": b"a"},
        ],
        ids=["zip", "tar.gz", "tar of a model folder", "model folder"],
    )
    def test_one_version_goes_on_by_itself(self, files: dict[str, bytes]) -> None:
        version, operation = validate(files)
        assert (operation.state, version.state, version.number) == ("succeeded", "ready", 1)
        assert paths_of(version) == ["labels.txt", "model.onnx"]
        assert Check.objects.get(version=version, kind="layout").verdict == "pass"

    def test_a_repository_makes_models_in_the_order_of_their_calls(self) -> None:
        repository = {
            "a-net/config.pbtxt": CONFIG,
            "a-net/1/model.onnx": VALID,
            "a-net/3/model.onnx": OTHER,
            "b-net/1/model.onnx": VALID,
        }
        version, operation = validate({"repository.zip": zipped(repository)})
        assert (operation.state, version.state) == ("succeeded", "abandoned")
        assert version.state_reason == "Taken apart into 3 versions of a-net, b-net."
        assert [one["model"] for one in operation.result["made"]] == ["a-net", "a-net", "b-net"]
        assert paths_of(version) == []
        for one in operation.result["made"]:
            work_on(one["operation"])
        made = ModelVersion.objects.exclude(pk=version.pk).order_by("created_at")
        assert [(one.model.slug, one.number, one.state) for one in made] == [
            ("a-net", 1, "ready"),
            ("a-net", 2, "ready"),
            ("b-net", 1, "ready"),
        ]
        assert [one.metadata["import"]["number"] for one in made] == [1, 3, 1]
        assert {one.author_id for one in made} == {version.author_id}
        # The same content is kept once.
        assert made[0].files.get(path="model.onnx").blob == made[2].files.get(path="model.onnx").blob

    def test_the_younger_version_waits_for_the_number_of_the_older_one_for_a_while(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = {"net/1/model.onnx": VALID, "net/2/model.onnx": OTHER}
        version, operation = validate({"folder.zip": zipped(folder)})
        older, younger = operation.result["made"]
        ended = threading.Thread(target=_work_and_close, args=[younger["operation"]])
        ended.start()
        work_on(older["operation"])
        ended.join(60)
        numbers = {str(one.pk): one.number for one in version.model.versions.exclude(number=None)}
        assert numbers == {older["version"]: 1, younger["version"]: 2}
        monkeypatch.setattr("workers.checks.arranging.OLDER_SECONDS", 0.0)
        _version, operation = validate({"folder.zip": zipped(folder)}, version.model)
        older, younger = operation.result["made"]
        work_on(younger["operation"])
        assert ModelVersion.objects.get(pk=younger["version"]).number == 3

    def test_an_mlflow_folder_and_a_mar_give_their_network(self) -> None:
        text = b"run_id: abc\nflavors:\n  onnx: {data: model.onnx}\n"
        version, _operation = validate({"MLmodel": text, "model.onnx": VALID, "conda.yaml": b"x: y"})
        assert (version.state, paths_of(version)) == ("ready", ["model.onnx"])
        assert version.metadata["import"] == {"layout": "mlflow", "run_id": "abc", "flavor": "onnx"}
        manifest = json.dumps({"model": {"serializedFile": "net.onnx", "handler": "base_handler"}}).encode()
        mar = {"net.mar": zipped({"MAR-INF/MANIFEST.json": manifest, "net.onnx": VALID})}
        version, _operation = validate(mar, version.model)
        assert (version.state, paths_of(version)) == ("ready", ["model.onnx"])
        assert "base_handler is not run" in Check.objects.get(version=version, kind="layout").summary

    @pytest.mark.parametrize(
        ("files", "why"),
        [
            ({"bad.zip": b"PK\x03\x04 nonsense"}, "is no archive, or a damaged one"),
            ({"bad.tar.gz": tarred({"a": b"b" * 9999})[:-40]}, "damaged"),
            ({"a.zip": zipped({"../../etc/x": b"1"})}, "'..'"),
            ({"a.zip": zipped({"/etc/x": b"1"})}, "relative"),
            ({"a.zip": zipped({"a": b"1", "a/b": b"1"})}, "cannot be inside"),
            ({"a.zip": zipped({})}, "empty"),
            ({"r.zip": zipped({"bad name/1/model.onnx": VALID, "x/1/model.onnx": VALID})}, "bad name"),
            ({"MLmodel": b"\xff\xfe", "x": b"1"}, "not text in UTF-8"),
        ],
        ids=["no zip", "cut tar", "escape", "absolute", "file and folder", "empty", "bad model name", "bad text"],
    )
    def test_what_is_refused_leaves_nothing(self, files: dict[str, bytes], why: str) -> None:
        version, operation = validate(files)
        assert (operation.state, version.state) == ("failed", "rejected")
        assert why in version.state_reason
        assert ModelVersion.objects.count() == RegisteredModel.objects.count() == 1
        assert not VersionFile.objects.exists()

    def test_a_worker_that_died_in_between_begins_again(self) -> None:
        version, _operation = validate({"model.zip": zipped({"model.onnx": VALID})})
        assert version.number == 1
        again = factories.make_version(version.model, {"model.zip": zipped({"model.onnx": VALID})})
        first = factories.make_operation(again)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("workers.checks.validation._run_checks", _die)
            with pytest.raises(SystemExit):
                work_on(first.pk)
        assert paths_of(again) == ["model.onnx"]
        Operation.objects.filter(pk=first.pk).update(lease_until="2020-01-01T00:00:00Z")
        work_on(first.pk)
        again.refresh_from_db()
        assert (again.state, again.number) == ("ready", 2)
        assert Blob.objects.filter(sha256=version.files.get().blob.sha256).count() == 1


def _work_and_close(operation: str) -> None:
    try:
        work_on(operation)
    finally:
        connections.close_all()


def _die(*arguments: Any) -> None:
    raise SystemExit(9)


LIMITS = Limits(10, 1 << 20)


def out_of(content: bytes, tmp_path: Path, limits: Limits = LIMITS) -> dict[str, bytes]:
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    found: dict[str, bytes] = {}
    unpack(archive, "archive", limits, lambda path, pieces: found.update({path: b"".join(pieces)}))
    return found


def linked(name: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return target.getvalue()


def tar_of(kind: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        info = tarfile.TarInfo("here")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    return target.getvalue()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (linked("here"), "is a link"),
        (tar_of(tarfile.SYMTYPE), "is a link"),
        (tar_of(tarfile.LNKTYPE), "is a link"),
        (tar_of(tarfile.CHRTYPE), "no ordinary file"),
        (tar_of(tarfile.FIFOTYPE), "no ordinary file"),
        (zipped({f"f{number}": b"" for number in range(11)}), "at most 10 files"),
        (zipped({f"folder{number}/": b"" for number in range(41)}), "too many entries"),
        (zipped({"zeros": bytes(2 << 20)}), "unpacks to more than 1048576 bytes"),
        (tarred({"zeros": bytes(2 << 20)}), "unpacks to more than 1048576 bytes"),
        (tarred({"a\x01b": b"1"}), "control character"),
        (tarred({"same": b"1", "./same": b"2"}), "twice"),
    ],
    # Archives hold the time at which they were made; names of tests must be the same in every process.
    ids=[
        *(
            "zip link",
            "symlink",
            "hard link",
            "device",
            "pipe",
            "files",
            "folders",
            "zip zeros",
            "tar zeros",
            "name",
            "twice",
        ),
    ],
)
def test_archives_of_ill_will_are_refused(content: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationFailed, match=why):
        out_of(content, tmp_path)


def described(format: int, **facts: Any) -> bytes:
    """A packed .tar whose one member is described by much and holds little."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz", format=format) as archive:
        info = tarfile.TarInfo(facts.pop("name", "a"))
        info.pax_headers = facts
        archive.addfile(info)
    return target.getvalue()


def listed(method: int = zipfile.ZIP_STORED, comment: bytes = b"", count: int = 1) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for number in range(count):
            info = zipfile.ZipInfo(f"f{number}")
            info.comment, info.compress_type = comment, method
            archive.writestr(info, b"1")
    return target.getvalue()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (described(tarfile.PAX_FORMAT, comment="x" * (2 << 20)), "describes its members at a length"),
        (described(tarfile.GNU_FORMAT, name="x" * (2 << 20)), "describes its members at a length"),
        (listed(comment=b"x" * 65_000, count=130), "describes its members at a length"),
        (listed(method=zipfile.ZIP_LZMA), "packed in a way"),
    ],
    ids=["attributes", "long name", "long list", "lzma"],
)
def test_archives_that_are_made_to_fill_memory_are_refused(content: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationFailed, match=why):
        out_of(content, tmp_path)


def test_members_that_are_large_or_far_apart_are_no_descriptions(tmp_path: Path) -> None:
    members = {f"f{number}": bytes([number]) * 1_500_000 for number in range(3)}
    for pack in (tarred, zipped):
        assert out_of(pack(members), tmp_path, Limits(10, 1 << 30)) == members


def test_what_grows_out_of_proportion_is_refused_before_the_disk_is_full(tmp_path: Path) -> None:
    bomb = zipped({"zeros": bytes(80 << 20)})
    with pytest.raises(ValidationFailed, match="unpacks to more than 67108864 bytes"):
        out_of(bomb, tmp_path, Limits(10, 1 << 40))


@given(st.binary(max_size=400), st.booleans(), st.integers(0, 60), st.binary(max_size=4))
def test_damaged_archives_end_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, is_zip: bool, at: int, noise: bytes
) -> None:
    whole = bytearray((zipped if is_zip else tarred)({"a": content, "b": b"x"}))
    whole[at : at + len(noise)] = noise
    try:
        found = out_of(bytes(whole), tmp_path_factory.mktemp("archive"))
    except ValidationFailed:
        return
    assert sum(map(len, found.values())) <= 1 << 20
