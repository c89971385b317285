"""The models that an ensemble calls, as a scratch node needs them beside it: from the versions of the same project."""

from __future__ import annotations

from collections.abc import Callable

from django.utils.translation import gettext as _

from registry.domain.plans import models_called
from registry.models import ConfigRevision, ModelVersion, RegisteredModel, VersionState
from registry.selectors.configs import config_latest
from serving_node.contract.model_config import ModelConfig, parse_json
from workers.checks.verdicts import NotChecked
from workers.scratch import MODEL, Part

MAX_PARTS = 20
Obstacle = Callable[[ModelVersion, ConfigRevision, ModelConfig], str]


def parts_of(version: ModelVersion, revision: ConfigRevision, obstacle: Obstacle) -> tuple[Part, ...]:
    """Return what the config calls, with what that calls in turn, each under its newest config; nothing for others.

    A version that is not named is the newest ready one. ``obstacle`` says why one cannot be tried.

    Raises:
        NotChecked: one is missing or cannot be tried here.
    """
    found: dict[tuple[str, int], Part] = {}
    waiting = [revision]
    while waiting:
        for name, numbers in sorted(models_called(waiting.pop().body).items()):
            for number in sorted(numbers):
                part, config = _part(version, name, number, obstacle)
                key = (name, part.version.number or 0)
                if key not in found:
                    found[key] = part
                    waiting.append(config)
        if len(found) > MAX_PARTS:
            raise NotChecked(_("It calls more than %(most)d models; that is not tried here.") % {"most": MAX_PARTS})
    return tuple(found.values())


def _part(caller: ModelVersion, name: str, number: int, obstacle: Obstacle) -> tuple[Part, ConfigRevision]:
    if name == MODEL:
        raise NotChecked(_("It calls a model “%(name)s”, which is what the scratch node calls it.") % {"name": name})
    model = RegisteredModel.objects.filter(project=caller.model.project_id, slug=name).first()
    ready = ModelVersion.objects.filter(model=model, state=VersionState.READY).select_related("model__project")
    if number > 0:
        ready = ready.filter(number=number)
    version = ready.order_by("-number").first() if model is not None else None
    config = config_latest(model) if model is not None else None
    if version is None or config is None:
        words = {"name": name, "number": number}
        text = _("It calls version %(number)s of “%(name)s”, which the project does not have ready.")
        raise NotChecked((text if number > 0 else _("It calls “%(name)s”, of which no version is ready.")) % words)
    parsed = parse_json(config.body)
    if why := obstacle(version, config, parsed):
        raise NotChecked(_("It calls “%(name)s”, which is not tried here: %(why)s") % {"name": name, "why": why})
    return Part(name, version, parsed), config
