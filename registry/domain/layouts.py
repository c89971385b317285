"""What a bunch of files is: the files of one version, a model folder or a whole repository of Triton, an MLflow model,
an unpacked .mar. Pure: paths and small texts in, a plan out.

Nothing is guessed from contents that could be code: only names, and the three text files that describe the rest
(``MLmodel``, ``MAR-INF/MANIFEST.json``, ``config.pbtxt``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any

from registry.domain.plain_yaml import UnreadableYaml, read_plain
from registry.domain.texts import gettext as _
from registry.errors import ValidationFailed

CONFIG_FILE = "config.pbtxt"
_MLFLOW_FILE, _MAR_FILE = "MLmodel", "MAR-INF/MANIFEST.json"
_ARCHIVE = re.compile(r"[^/]+\.(?:zip|mar|tar|tgz|tar\.gz)", re.IGNORECASE)
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_CALLED = re.compile(r"\bmodel_name\s*:\s*[\"']([^\"']+)[\"']")
_MOST_MODELS = 200
_WORDS = (".txt", ".md", ".json", ".csv")

Read = Callable[[str], str]
"""Returns the text of a small file. Raises ValidationFailed when it is none."""


class LayoutKind(StrEnum):
    """What was recognised."""

    FILES = "files"
    """The files of one version, as they are."""
    MODEL_FOLDER = "triton_model"
    REPOSITORY = "triton_repository"
    MLFLOW = "mlflow"
    MAR = "mar"


@dataclass(frozen=True, slots=True)
class PlannedVersion:
    """One version to be: ``files`` maps its paths to where they are now. ``model`` "" is the model that was asked for.

    ``origin`` says where it comes from, ``notes`` what was left behind and why.
    """

    model: str
    files: Mapping[str, str]
    origin: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Versions in the order in which they are to be made: what others call comes first, older numbers come first."""

    kind: LayoutKind
    versions: tuple[PlannedVersion, ...]


def archive_among(paths: Sequence[str]) -> str:
    """Return the archive that is to be unpacked: the only file beside a config; "" when there is none."""
    others = [path for path in paths if path != CONFIG_FILE]
    return others[0] if len(others) == 1 and _ARCHIVE.fullmatch(others[0]) else ""


def is_apart(paths: Sequence[str]) -> bool:
    """Whether the names alone say that this is more than the files of one version."""
    inner, _top = _below_one_folder(paths)
    if _MAR_FILE in inner or _MLFLOW_FILE in inner:
        return True
    return any(_NUMBER.fullmatch(folder) for path in paths for folder in path.split("/")[:-1][:3]) and _found(paths)


def _found(paths: Sequence[str]) -> bool:
    try:
        return recognise(paths, lambda path: "").kind != LayoutKind.FILES
    except ValidationFailed:
        return True


def recognise(paths: Sequence[str], read: Read) -> Layout:
    """Return what the files are and which versions they make.

    Raises:
        ValidationFailed: they are of a kind that cannot be taken apart; the message says why.
    """
    inner, top = _below_one_folder(paths)
    if _MAR_FILE in inner:
        return _mar(inner, read)
    if _MLFLOW_FILE in inner:
        return _mlflow(inner, read)
    if _is_model_folder(inner):
        versions = _model_folder("", inner)
        return Layout(LayoutKind.MODEL_FOLDER, tuple(versions))
    folders = _folders(paths)
    if folders and all(_is_model_folder(files) for files in folders.values()):
        return _repository(folders, read)
    if top and len(folders) == 1 and (deeper := _folders(list(inner))) and all(map(_is_model_folder, deeper.values())):
        return _repository({name: {p: inner[f"{name}/{p}"] for p in files} for name, files in deeper.items()}, read)
    return Layout(LayoutKind.FILES, (PlannedVersion("", {path: path for path in paths}),))


def _below_one_folder(paths: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return the paths without the one folder that all are in, mapped to the whole paths, and that folder."""
    heads = {path.split("/", 1)[0] for path in paths}
    if len(heads) == 1 and all("/" in path for path in paths):
        (top,) = heads
        if not _NUMBER.fullmatch(top):
            return {path.removeprefix(f"{top}/"): path for path in paths}, top
    return {path: path for path in paths}, ""


def _folders(paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the files of each folder at the top; nothing when a file lies beside them."""
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        head, slash, rest = path.partition("/")
        if not slash:
            return {}
        found.setdefault(head, {})[rest] = path
    return found


def _is_model_folder(paths: Mapping[str, str]) -> bool:
    """Whether these are numbered folders, perhaps with a config and labels beside them."""
    numbered = [path for path in paths if "/" in path and _NUMBER.fullmatch(path.split("/", 1)[0])]
    if not numbered:
        return False
    if CONFIG_FILE in paths:
        return True
    # Without a config only labels and words may lie beside them: model.py with a folder "1" of weights is one version.
    return all(path in numbered or ("/" not in path and path.endswith(_WORDS)) for path in paths)


def _model_folder(model: str, paths: Mapping[str, str]) -> list[PlannedVersion]:
    beside = {path: where for path, where in paths.items() if "/" not in path}
    numbers: dict[int, dict[str, str]] = {}
    left = []
    for path, where in paths.items():
        head, slash, rest = path.partition("/")
        if slash and _NUMBER.fullmatch(head):
            numbers.setdefault(int(head), {})[rest] = where
        elif slash:
            left.append(path)
    notes = (_("Left out: %(files)s.") % {"files": ", ".join(sorted(left)[:5])},) if left else ()
    return [
        PlannedVersion(model, {**beside, **numbers[number]}, {"layout": "triton", "number": number}, notes)
        for number in sorted(numbers)
    ]


def _repository(folders: Mapping[str, Mapping[str, str]], read: Read) -> Layout:
    if len(folders) > _MOST_MODELS:
        raise ValidationFailed(
            _("The repository has %(count)d models; import at most %(limit)d at once.")
            % {"count": len(folders), "limit": _MOST_MODELS}
        )
    calls = {name: {called for called in _called(files, read) if called in folders} for name, files in folders.items()}
    try:
        order = [*TopologicalSorter({name: sorted(called) for name, called in sorted(calls.items())}).static_order()]
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise ValidationFailed(_("Ensembles call each other in a circle: %(circle)s.") % {"circle": circle}) from error
    versions = [version for name in order for version in _model_folder(name, folders[name])]
    return Layout(LayoutKind.REPOSITORY, tuple(versions))


def _called(files: Mapping[str, str], read: Read) -> set[str]:
    """Return the models that the steps of an ensemble name."""
    if CONFIG_FILE not in files:
        return set()
    text = read(files[CONFIG_FILE])
    return set(_CALLED.findall(text)) if "ensemble_scheduling" in text else set()


def _mlflow(paths: Mapping[str, str], read: Read) -> Layout:
    described = _mapping(_yaml(read(paths[_MLFLOW_FILE])), _MLFLOW_FILE)
    flavors = _mapping(described.get("flavors") or {}, _MLFLOW_FILE)
    origin = {"layout": "mlflow"}
    for name in ("run_id", "mlflow_version"):
        if isinstance(described.get(name), str):
            origin[name] = described[name]
    stated = described.get("metadata")
    licence = (stated.get("license") or stated.get("licence")) if isinstance(stated, dict) else None
    if isinstance(licence, str):
        origin["licence"] = licence[:500]
    # (flavor, key of its file, name that a node looks for)
    for flavor, key, served in (
        ("onnx", "data", "model.onnx"),
        ("pytorch", "model_data", "model.pt"),
        ("xgboost", "data", ""),
        ("lightgbm", "data", ""),
        ("sklearn", "pickled_model", ""),
    ):
        if flavor not in flavors:
            continue
        where = _mapping(flavors[flavor], _MLFLOW_FILE).get(key)
        chosen = _chosen(paths, str(where or ""))
        if not chosen:
            raise ValidationFailed(
                _("MLmodel names %(file)s for %(flavor)s, which is not among the files.")
                % {"file": where or _("no file"), "flavor": flavor}
            )
        files = _renamed(chosen, served)
        note = _("Taken from the flavor %(flavor)s; what else is in the MLflow folder was left out.")
        return Layout(
            LayoutKind.MLFLOW, (PlannedVersion("", files, {**origin, "flavor": flavor}, (note % {"flavor": flavor},)),)
        )
    raise ValidationFailed(
        _("The MLflow model has only the flavors %(flavors)s; log it as onnx, pytorch, xgboost, lightgbm or sklearn.")
        % {"flavors": ", ".join(sorted(map(str, flavors))) or "-"}
    )


def _chosen(paths: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the file at ``where`` with what lies beside it below the same folder, or the folder's files."""
    if where in paths:
        folder = where.rpartition("/")[0]
        beside = {p: w for p, w in paths.items() if folder and p.startswith(f"{folder}/")}
        return {where.rpartition("/")[2]: paths[where]} | {
            p.removeprefix(f"{folder}/"): w for p, w in beside.items() if p != where
        }
    return {p.removeprefix(f"{where}/"): w for p, w in paths.items() if where and p.startswith(f"{where}/")}


def _renamed(chosen: dict[str, str], served: str) -> dict[str, str]:
    """Give the model file, the first or the one with the suffix, the name that a node looks for."""
    if not served or served in chosen:
        return chosen
    suffixes = (".onnx",) if served.endswith(".onnx") else (".pt", ".pth")
    model = next((path for path in chosen if path.endswith(suffixes)), next(iter(chosen)))
    return {served if path == model else path: where for path, where in chosen.items()}


def _mar(paths: Mapping[str, str], read: Read) -> Layout:
    manifest = _mapping(_json(read(paths[_MAR_FILE])), _MAR_FILE)
    model = _mapping(manifest.get("model") or {}, _MAR_FILE)
    serialized, handler = str(model.get("serializedFile") or ""), str(model.get("handler") or "")
    if model.get("modelFile"):
        raise ValidationFailed(
            _("The .mar holds weights and the code of its network (%(file)s): save the model with torch.export.save.")
            % {"file": model["modelFile"]}
        )
    if serialized not in paths:
        raise ValidationFailed(
            _("The .mar names %(file)s as its model, which is not in it.") % {"file": serialized or _("no file")}
        )
    served = "model.onnx" if serialized.endswith(".onnx") else "model.pt"
    files = {served: paths[serialized]}
    if "index_to_name.json" in paths:
        files["index_to_name.json"] = paths["index_to_name.json"]
    origin = {"layout": "mar", "handler": handler, "model_version": str(model.get("modelVersion") or "")}
    note = _("Its handler %(handler)s is not run: send tensors as the network takes them.") % {
        "handler": handler or "-"
    }
    return Layout(LayoutKind.MAR, (PlannedVersion("", files, origin, (note,)),))


def _yaml(text: str) -> Any:
    try:
        return read_plain(text)
    except UnreadableYaml as error:
        raise ValidationFailed(_("%(file)s cannot be read as YAML.") % {"file": _MLFLOW_FILE}) from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationFailed(_("%(file)s cannot be read as JSON.") % {"file": _MAR_FILE}) from error


def _mapping(value: Any, file: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValidationFailed(_("%(file)s does not hold what it should.") % {"file": file})
    return value
