"""What a CI job must prove before it may act here: claims of its token, read by the rules of a project. Pure.

Sources: GitHub, "OpenID Connect reference"; GitLab, "OpenID Connect (OIDC) authentication using ID tokens".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from registry.domain.texts import gettext as _

ALGORITHMS = ("RS256", "ES256")
# A rule gives no scope with which a job could make itself a key that stays.
SCOPES = ("read", "write")
MAX_LIFETIME_MINUTES = 15
MAX_AGE_MINUTES = 24 * 60
MAX_ASSERTION_BYTES = 16 * 1024
# Clocks differ.
LEEWAY = timedelta(seconds=60)
MAX_EVENTS = 20

_NUMBER = re.compile(r"[0-9]{1,20}")
_WORD = re.compile(r"[a-z_]{1,40}")
_LONGEST_CLAIM = 500


@dataclass(frozen=True, slots=True)
class Preset:
    """The names of one kind of issuer. ``events`` are those of jobs that run code of the repository itself.

    ``max_age_minutes``: GitHub makes a token when the job asks for it, GitLab when the job begins.
    ``environment_protected`` empty: there is no such claim.
    """

    url: str
    repository_id: str
    owner_id: str
    path: str
    workflow: str
    event: str
    run: str
    environment_protected: str
    events: tuple[str, ...]
    max_age_minutes: int


PRESETS: Mapping[str, Preset] = {
    "github": Preset(
        url="https://token.actions.githubusercontent.com",
        repository_id="repository_id",
        owner_id="repository_owner_id",
        path="repository",
        workflow="workflow_ref",
        event="event_name",
        run="run_id",
        environment_protected="",
        events=("push", "workflow_dispatch", "schedule", "release"),
        max_age_minutes=10,
    ),
    "gitlab": Preset(
        url="https://gitlab.com",
        repository_id="project_id",
        owner_id="namespace_id",
        path="project_path",
        workflow="ci_config_ref_uri",
        event="pipeline_source",
        run="pipeline_id",
        environment_protected="environment_protected",
        events=("push", "web", "schedule", "api", "trigger"),
        max_age_minutes=60,
    ),
}


@dataclass(frozen=True, slots=True)
class Job:
    """What a token says about the job that holds it. Texts are empty where it says nothing."""

    repository_id: str
    owner_id: str
    path: str
    ref: str
    is_ref_protected: bool
    environment: str
    is_environment_protected: bool
    workflow: str
    event: str
    run: str


class Rule(Protocol):
    """What the domain knows of a rule (``registry.models.TrustRule`` satisfies it)."""

    @property
    def repository_id(self) -> str: ...
    @property
    def owner_id(self) -> str: ...
    @property
    def protected_ref(self) -> bool: ...
    @property
    def ref(self) -> str: ...
    @property
    def environment(self) -> str: ...
    @property
    def workflow(self) -> str: ...
    @property
    def events(self) -> Any: ...


def job_of(kind: str, claims: Mapping[str, Any]) -> Job:
    """Return the job that an issuer's token speaks of.

    Raises:
        ValueError: with the name of a claim that it must have and has not.
    """
    names = PRESETS[kind]

    def text(name: str) -> str:
        value = claims.get(name, "")
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        return value[:_LONGEST_CLAIM] if isinstance(value, str) else ""

    def truth(name: str) -> bool:
        # Both issuers write a word where JSON has a truth value.
        return claims.get(name) is True or claims.get(name) == "true"

    for name in (names.repository_id, names.owner_id):
        if not _NUMBER.fullmatch(text(name)):
            raise ValueError(name)
    if kind == "gitlab" and text("ref_type") == "tag":
        ref = f"refs/tags/{text('ref')}"
    elif kind == "gitlab" and text("ref"):
        ref = f"refs/heads/{text('ref')}"
    else:
        ref = text("ref")
    return Job(
        repository_id=text(names.repository_id),
        owner_id=text(names.owner_id),
        path=text(names.path),
        ref=ref,
        is_ref_protected=truth("ref_protected"),
        environment=text("environment"),
        # Where the issuer does not say, it keeps jobs out of a protected environment itself.
        is_environment_protected=truth(names.environment_protected) if names.environment_protected else True,
        workflow=text(names.workflow),
        event=text(names.event),
        run=text(names.run),
    )


def is_of_repository(rule: Rule, job: Job) -> bool:
    """Say whether a rule is about the job's repository, so that its job may know why it is refused."""
    return rule.repository_id == job.repository_id and rule.owner_id == job.owner_id


def failures(rule: Rule, job: Job) -> list[str]:
    """Return each binding of a rule that a job does not meet, as what is true of the job instead; empty: it may."""
    found = []
    if not is_of_repository(rule, job):
        found.append(_("it runs in another repository"))
    if rule.protected_ref and not job.is_ref_protected:
        found.append(_("its ref (%(ref)s) is not protected") % {"ref": job.ref or _("none")})
    if rule.ref and job.ref != rule.ref:
        found.append(_("it runs on %(ref)s, which is not the ref of the rule") % {"ref": job.ref or _("no ref")})
    if rule.environment and job.environment != rule.environment:
        named = job.environment or _("none")
        found.append(_("its environment (%(name)s) is not the one of the rule") % {"name": named})
    elif rule.environment and not rule.protected_ref and not job.is_environment_protected:
        found.append(_("its environment (%(name)s) is not protected") % {"name": job.environment})
    if rule.workflow and job.workflow != rule.workflow:
        named = job.workflow or _("none")
        found.append(_("its workflow (%(name)s) is not the one of the rule") % {"name": named})
    if job.event not in rule.events:
        found.append(_("it was started by “%(event)s”, which the rule does not name") % {"event": job.event})
    return found


def actor_name(job: Job, account: str) -> str:
    """Return what audit rows show: ``ci: owner/repo@ref run 123 via account``."""
    where = f"{job.path}@{job.ref}" if job.ref else job.path
    run = f" run {job.run}" if job.run else ""
    return f"ci: {where[:140]}{run} via {account}"[:200]


def rule_problems(
    *,
    repository_id: str,
    owner_id: str,
    protected_ref: bool,
    ref: str,
    environment: str,
    workflow: str,
    events: Sequence[str],
    scopes: Iterable[str],
    lifetime_minutes: int,
) -> list[tuple[str, str]]:
    """Return what a rule must not be, as pairs of field and sentence."""
    found = []
    for field, value in (("repository_id", repository_id), ("owner_id", owner_id)):
        if not _NUMBER.fullmatch(value):
            found.append((field, _("This is a number that the issuer gave, and not a name.")))
    if not protected_ref and not environment:
        found.append(("protected_ref", _("Ask for a protected ref, for an environment, or for both.")))
    for field, value in (("ref", ref), ("environment", environment), ("workflow", workflow)):
        if not value.isprintable() or any(sign in value for sign in "*?") or value != value.strip():
            found.append((field, _("Give the whole name: there are no patterns.")))
    if ref and not ref.startswith("refs/"):
        found.append(("ref", _("A ref begins with refs/, as refs/heads/main does.")))
    if not events or len(events) > MAX_EVENTS or not all(_WORD.fullmatch(event) for event in events):
        found.append(("events", _("Name what may start the job, for example push.")))
    given = set(scopes)
    if not given or given - set(SCOPES):
        found.append(("scopes", _("Scopes are any of: %(scopes)s.") % {"scopes": ", ".join(SCOPES)}))
    if not 1 <= lifetime_minutes <= MAX_LIFETIME_MINUTES:
        limit = {"limit": MAX_LIFETIME_MINUTES}
        found.append(("lifetime_minutes", _("A token lasts 1 to %(limit)d minutes.") % limit))
    return found
