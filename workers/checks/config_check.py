"""Configs against the signature of a model file: the one that came with the files, or the newest stored one."""

from __future__ import annotations

from pathlib import Path

from django.utils.translation import gettext as _

from registry.domain.plans import calls_itself
from registry.models import ConfigRevision, ModelVersion
from registry.selectors.configs import config_latest
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import (
    ModelConfig,
    check_signature,
    complete,
    detect_backend,
    normalise,
    parse_json,
    parse_pbtxt,
    to_json,
    validate,
)
from serving_node.contract.signature import ModelSignature
from workers.checks.verdicts import Finding, VersionRejected, check

CONFIG_FILE = "config.pbtxt"
MODEL_FILE = "model.onnx"
MAX_CONFIG_BYTES = 1 << 20


def check_config(
    version: ModelVersion, uploaded: Path | None, paths: list[str], signature: ModelSignature, warnings: list[str]
) -> ModelConfig | None:
    """Return the config in the file ``uploaded`` if it is to become the model's first; it must fit.

    ``paths`` are the version's files, which tell the backend where the config does not.

    The newest stored revision only gives a warning when it does not fit: it can be edited later.

    Raises:
        VersionRejected: the uploaded config cannot be read or contradicts the model.
    """
    with check(version, "config") as finding:
        stored = config_latest(version.model)
        if stored is not None:
            finding.evidence.update(config=stored.number, digest=stored.digest)
            _compare_stored(stored, signature, finding)
            if uploaded is not None:
                finding.warnings.append(_("%(name)s is not used: the model has configs.") % {"name": CONFIG_FILE})
            warnings.extend(finding.warnings)
            return None
        if uploaded is None:
            finding.summary = _("The model has no config yet; one is made from the signature.")
            return None
        config = read_uploaded(uploaded, paths, version.model.slug)
        problems = _contradictions(config, signature)
        finding.evidence["errors"] = problems
        if problems:
            words = {"name": CONFIG_FILE, "problem": problems[0]["message"]}
            raise VersionRejected(_("%(name)s contradicts the model: %(problem)s") % words, errors=problems)
        finding.summary = _("%(name)s fits and becomes config 1.") % {"name": CONFIG_FILE}
        return config


def read_uploaded(path: Path, paths: list[str], name: str) -> ModelConfig:
    """Return an uploaded config under the model's name, with the backend that the version's files tell.

    Raises:
        VersionRejected: it cannot be read.
    """
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise VersionRejected(_("%(name)s is larger than 1 MiB.") % {"name": CONFIG_FILE})
    try:
        config = parse_pbtxt(path.read_text("utf-8"))
        config.name = name
        return detect_backend(config, [one for one in paths if "/" not in one], model_name=name)
    except (ContractError, UnicodeDecodeError) as error:
        raise VersionRejected(
            _("%(name)s cannot be read: %(problem)s") % {"name": CONFIG_FILE, "problem": error}
        ) from error


def _contradictions(config: ModelConfig, signature: ModelSignature) -> list[dict[str, str]]:
    try:
        full = normalise(complete(config, signature))
        validate(full)
        errors = check_signature(full, signature)
    except ContractError as error:
        errors = [error]
    problems = [{"field": error.field, "message": error.message} for error in errors]
    return problems + calls_itself(to_json(config, defaults=False), config.name)


def _compare_stored(stored: ConfigRevision, signature: ModelSignature, finding: Finding) -> None:
    problems = _contradictions(parse_json(stored.body), signature)
    finding.evidence["errors"] = problems
    words = {"number": stored.number, "problem": problems[0]["message"] if problems else ""}
    if problems:
        finding.warnings.append(_("Config %(number)d does not fit this version: %(problem)s") % words)
    finding.summary = _("Config %(number)d fits.") % words
