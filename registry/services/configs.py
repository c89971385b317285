"""Config revisions: checked by the contract, stored once by digest, never changed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.plans import calls_itself
from registry.errors import Immutable, PermissionDenied, ValidationFailed
from registry.models import ConfigRevision, ModelVersion, RegisteredModel, VersionState
from registry.selectors.configs import config_latest
from registry.services import audit
from registry.services.permissions import require
from serving_node.contract.digests import config_digest
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import (
    ModelConfig,
    check_signature,
    complete,
    default_config,
    detect_backend,
    parse_json,
    parse_pbtxt,
    problems,
    to_json,
    to_pbtxt,
)
from serving_node.contract.signature import ModelSignature

FORMATS = ("form", "json", "pbtxt", "generated")
_TEXT_LIMIT = 256 * 1024
# What runs a format, where the name of the format does not say it.
_BACKENDS = {"onnx": "onnxruntime", "torchscript": "pytorch", "pt2": "pytorch"}


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """What the contract says about a config text. ``body``, ``pbtxt`` and ``digest`` are set when it could be read.

    ``errors`` are ``{"field": dotted path, "message": sentence}``; ``warnings`` are sentences.
    """

    ok: bool
    errors: tuple[dict[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    body: dict[str, Any] | None = None
    pbtxt: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One difference of two configs; None: not set on that side."""

    path: str
    before: Any
    after: Any


def config_check(
    *,
    model: RegisteredModel,
    text: str = "",
    body: Mapping[str, Any] | None = None,
    format: str = "json",
    version: ModelVersion | None = None,
) -> ConfigReport:
    """Read and judge a config; stores nothing and raises nothing for bad input.

    Give ``text`` with ``format`` pbtxt or json, or ``body`` (format form or json). With ``version`` it is also
    compared with that version's inputs and outputs (else with those of the newest ready version, if any).
    Inputs, outputs and the backend that the config leaves out are filled in from that version.
    """
    try:
        config = _parse(text, body, format)
    except ContractError as error:
        return ConfigReport(ok=False, errors=(_field_error(error),))
    reference = version if _signature(version) else _newest_ready(model)
    signature = _signature(reference)
    found: list[ContractError] = []
    if not config.name:
        config.name = model.slug
    if reference is not None and not (config.backend or config.platform):
        files = list(reference.files.values_list("path", flat=True))
        with contextlib.suppress(ContractError):  # what is missing then is said below, with all other problems
            config = detect_backend(config, files, model_name=model.slug)
    if signature is not None:
        try:
            config = complete(config, signature)
        except ContractError as error:
            found.append(error)
    found += list(problems(config, model_name=model.slug, require_tensors=signature is not None))
    if signature is not None and not found:
        found += check_signature(config, signature)
    warnings = [] if signature is not None else [_("No version is ready yet, so inputs and outputs were not compared.")]
    body = to_json(config, defaults=False)
    errors = (*(_field_error(error) for error in found), *calls_itself(body, model.slug))
    return ConfigReport(
        ok=not errors,
        errors=errors,
        warnings=tuple(warnings),
        body=body,
        pbtxt=to_pbtxt(config),
        digest=config_digest(config),
    )


def config_create(
    *,
    model: RegisteredModel,
    body: Mapping[str, Any] | None = None,
    text: str = "",
    format: str = "json",
    comment: str = "",
    parent: ConfigRevision | None = None,
    version: ModelVersion | None = None,
    actor: Actor,
) -> ConfigRevision:
    """Store a revision with the next number; the same content as the newest returns the newest.

    ``version``: compare with this version's inputs and outputs instead of the newest ready one's.

    Raises:
        ValidationFailed: the contract refuses it; ``errors`` names the fields.
    """
    require(actor, "config.write", model)
    if actor.user_id is None:
        raise PermissionDenied(_("A config needs an author."))
    if format not in FORMATS:
        raise ValidationFailed(_("There is no such config format."), errors=[{"field": "format", "message": format}])
    report = config_check(model=model, text=text, body=body, format=format, version=version)
    if not report.ok or report.body is None:
        raise ValidationFailed(report.errors[0]["message"], errors=list(report.errors))
    if parent is not None and parent.model_id != model.pk:
        raise Immutable(_("The parent revision belongs to another model."))
    with transaction.atomic():
        locked = RegisteredModel.objects.select_for_update().get(pk=model.pk)
        newest = config_latest(locked)
        if newest is not None and newest.digest == report.digest:
            return newest
        return _store(
            ConfigRevision(
                model=locked,
                body=report.body,
                digest=report.digest,
                source_text=text,
                source_format=format,
                comment=comment[:500],
                author_id=actor.user_id,
                author_token_id=actor.token_id,
                parent=parent or newest,
            ),
            actor,
        )


def first_config(
    *,
    model: RegisteredModel,
    version: ModelVersion,
    signature: ModelSignature,
    format: str,
    config: ModelConfig | None = None,
) -> ConfigRevision | None:
    """Make a model's first revision (the caller holds the model's row lock); None when it has one already.

    Its author is the author of the version: whoever uploads a model answers for how it is served at first.
    """
    if config_latest(model) is not None:
        return None
    made = config is None
    if config is None:
        config = default_config(model.slug, signature, backend=_BACKENDS.get(format, format))
    else:
        config = complete(config, signature)
    config.name = model.slug
    return _store(
        ConfigRevision(
            model=model,
            body=to_json(config, defaults=False),
            digest=config_digest(config),
            source_text="" if made else to_pbtxt(config),
            source_format="generated" if made else "pbtxt",
            comment=_("Made from the model file.") if made else _("Came with the model file."),
            author_id=version.author_id,
            author_token_id=version.author_token_id,
        ),
        Actor.system("checks"),
    )


def config_pbtxt(body: Mapping[str, Any]) -> str:
    """Return a stored body as config.pbtxt."""
    return to_pbtxt(parse_json(dict(body)))


def config_diff(a: ConfigRevision | Mapping[str, Any], b: ConfigRevision | Mapping[str, Any]) -> list[FieldChange]:
    """Return what changed from ``a`` to ``b``, by field path, in order."""
    before, after = dict(_leaves(_body(a))), dict(_leaves(_body(b)))
    paths = sorted(before.keys() | after.keys())
    return [
        FieldChange(path=path, before=before.get(path), after=after.get(path))
        for path in paths
        if before.get(path) != after.get(path)
    ]


def _store(revision: ConfigRevision, actor: Actor) -> ConfigRevision:
    model = revision.model
    revision.number = model.next_config
    model.next_config += 1
    RegisteredModel.objects.filter(pk=model.pk).update(next_config=model.next_config)
    revision.save(force_insert=True)
    audit.record(
        actor=actor,
        action="config.create",
        obj=revision,
        after={"number": revision.number, "digest": revision.digest, "comment": revision.comment},
    )
    telemetry.publish_on_commit(f"model:{model.pk}", project=model.project_id)
    return revision


def _parse(text: str, body: Mapping[str, Any] | None, format: str) -> ModelConfig:
    if body is not None:
        return parse_json(dict(body))
    if len(text) > _TEXT_LIMIT:
        raise ContractError(_("The config is larger than 256 KiB."))
    if "\0" in text:
        raise ContractError(_("The config contains a null character."))
    return parse_pbtxt(text) if format == "pbtxt" else parse_json(text)


def _newest_ready(model: RegisteredModel) -> ModelVersion | None:
    return model.versions.filter(state=VersionState.READY).order_by("-number").first()


def _signature(version: ModelVersion | None) -> ModelSignature | None:
    if version is None or version.signature is None:
        return None
    return ModelSignature.from_json(version.signature)


def _field_error(error: ContractError) -> dict[str, str]:
    return {"field": error.field, "message": error.message}


def _body(config: ConfigRevision | Mapping[str, Any]) -> Mapping[str, Any]:
    return config.body if isinstance(config, ConfigRevision) else config


def _leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return (path, scalar) of a JSON document; lists of scalars are one value."""
    if isinstance(value, Mapping):
        return [
            leaf for key, item in value.items() for leaf in _leaves(item, f"{path}.{key}" if path else str(key))
        ] or ([(path, {})] if path else [])
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, f"{path}[{index}]")]
    return [(path, value)]
