"""Who may do what, and the sentence why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from registry.domain.actors import Actor


@dataclass(frozen=True, slots=True)
class Allowed:
    """The caller may."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Denied:
    """The caller may not; ``reason`` is one sentence for people."""

    reason: str

    def __bool__(self) -> bool:
        return False


def role_in(actor: Actor, project: Any) -> str:
    """Return the actor's role in a project, empty when there is none."""
    raise NotImplementedError


def can(actor: Actor, permission: str, obj: Any = None) -> Allowed | Denied:
    """Say whether the actor may do ``permission`` on ``obj``.

    Project permissions take any row of a project (project, model, version, config, deployment, approval, operation):
    ``project.view``, ``model.write``, ``version.write``, ``version.quarantine``, ``config.write``,
    ``deployment.change``, ``deployment.traffic``, ``deployment.rollback``, ``deployment.infer``, ``approval.review``,
    ``approval.withdraw``, ``operation.cancel``, ``project.members``, ``project.tokens``.
    Site permissions take None: ``site.view``, ``site.fleet``, ``site.users``, ``site.projects``.
    """
    raise NotImplementedError
