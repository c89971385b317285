"""Config revisions: checked by the contract, stored once by digest, never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from registry.domain.actors import Actor
from registry.models import ConfigRevision, ModelVersion, RegisteredModel


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
    """
    raise NotImplementedError


def config_create(
    *,
    model: RegisteredModel,
    body: Mapping[str, Any] | None = None,
    text: str = "",
    format: str = "json",
    comment: str = "",
    parent: ConfigRevision | None = None,
    actor: Actor,
) -> ConfigRevision:
    """Store a revision with the next number; the same content as the newest returns the newest.

    Raises:
        ValidationFailed: the contract refuses it; ``errors`` names the fields.
    """
    raise NotImplementedError


def config_pbtxt(body: Mapping[str, Any]) -> str:
    """Return a stored body as config.pbtxt."""
    raise NotImplementedError


def config_diff(a: ConfigRevision | Mapping[str, Any], b: ConfigRevision | Mapping[str, Any]) -> list[FieldChange]:
    """Return what changed from ``a`` to ``b``, by field path, in order."""
    raise NotImplementedError
