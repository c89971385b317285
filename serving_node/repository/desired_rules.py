"""What a desired state must satisfy before a node obeys it, and which one may follow which. Pure."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath

import rfc8785

from serving_node.contract.control import Desired, DesiredModel, FileRef, Unit
from serving_node.contract.errors import ContractError
from serving_node.repository.convergence import models_used

# Unit ids name folders on the node's disk.
_UNIT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class DesiredConflictError(Exception):
    """A desired state may not follow the one in force (HTTP 409). The text says why."""


def desired_digest(desired: Desired) -> str:
    """Return the SHA-256 of the canonical JSON of a desired state."""
    return hashlib.sha256(rfc8785.dumps(desired.to_json())).hexdigest()


def check_succession(current: Desired | None, candidate: Desired) -> bool:
    """Tell whether ``candidate`` is new; False when it is the one in force.

    Raises:
        DesiredConflictError: an older epoch or generation, or the same generation with other content.
    """
    if current is None or candidate.epoch > current.epoch:
        return True
    if candidate.epoch < current.epoch:
        raise DesiredConflictError(f"epoch {candidate.epoch} is older than {current.epoch}")
    if candidate.generation < current.generation:
        raise DesiredConflictError(f"generation {candidate.generation} is older than {current.generation}")
    if candidate.generation > current.generation:
        return True
    if desired_digest(candidate) != desired_digest(current):
        raise DesiredConflictError(f"generation {candidate.generation} was seen before with other content")
    return False


def check_desired(desired: Desired) -> None:
    """Refuse a desired state that contradicts itself or names unusable paths.

    Raises:
        ContractError: ``field`` names what is wrong.
    """
    if desired.drain is not None and desired.drain.deadline_seconds < 0:
        raise ContractError("the deadline of a drain must not be negative", field="drain.deadline_seconds")
    names: set[str] = set()
    for index, model in enumerate(desired.models):
        path = f"models[{index}]"
        if model.name in names:
            raise ContractError(f"model '{model.name}' is named twice", field=f"{path}.name")
        names.add(model.name)
        _check_model(model, path)


def _check_model(model: DesiredModel, path: str) -> None:
    if not model.name.strip() or "/" in model.name or "\0" in model.name or model.name in (".", ".."):
        raise ContractError(f"'{model.name}' is not a usable model name", field=f"{path}.name")
    units: dict[str, Unit] = {}
    for unit in model.units:
        # Two deployments may want the same unit of one name; two meanings of one id are a mistake.
        if units.setdefault(unit.unit, unit) != unit:
            text = f"model '{model.name}' names unit '{unit.unit}' twice with different content"
            raise ContractError(text, field=f"{path}.units")
    for index, route in enumerate(model.routes):
        if route.unit not in units:
            text = f"model '{model.name}' routes to unit '{route.unit}', which is not among its units"
            raise ContractError(text, field=f"{path}.routes[{index}].unit")
        if not 0 <= route.weight <= 100:
            raise ContractError("a weight must be from 0 to 100", field=f"{path}.routes[{index}].weight")
        if not 0 <= route.sample_percent <= 100:
            raise ContractError("a share must be from 0 to 100", field=f"{path}.routes[{index}].sample_percent")
    for index, unit in enumerate(model.units):
        _check_unit(unit, f"{path}.units[{index}]")


def _check_unit(unit: Unit, path: str) -> None:
    if not _UNIT_ID.match(unit.unit):
        raise ContractError(f"'{unit.unit}' is not a usable unit id", field=f"{path}.unit")
    if unit.version < 1:
        raise ContractError("a version must be 1 or more", field=f"{path}.version")
    if not unit.files and not models_used(unit):
        raise ContractError(f"unit '{unit.unit}' has no files", field=f"{path}.files")
    seen: set[str] = set()
    for index, file in enumerate(unit.files):
        _check_file(file, f"{path}.files[{index}]")
        if file.path in seen:
            raise ContractError(f"file '{file.path}' is named twice", field=f"{path}.files[{index}].path")
        seen.add(file.path)


def _check_file(file: FileRef, path: str) -> None:
    pure = PurePosixPath(file.path)
    usable = bool(file.path) and not pure.is_absolute() and str(pure) == file.path and ".." not in pure.parts
    if not usable or "\\" in file.path or "\0" in file.path or file.path == ".":
        raise ContractError(f"'{file.path}' is not a usable file path", field=f"{path}.path")
    if not _SHA256.match(file.sha256):
        raise ContractError(f"'{file.sha256[:80]}' is not a SHA-256 digest", field=f"{path}.sha256")
    if file.size < 0:
        raise ContractError("a size must not be negative", field=f"{path}.size")
