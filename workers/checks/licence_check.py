"""Whether the project takes versions under the licence that this one states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _

from registry.domain.licences import Licence, LicencePolicy, Treatment, UnreadableLicence, read_licence, severest
from registry.models import ModelVersion, Project, VersionFile
from registry.selectors.policies import licence_policy_of
from workers.checks.licence_sources import Statement, licence_statements
from workers.checks.verdicts import Finding, VersionRejected, check, is_asked

KIND = "licence"


def check_licence(
    version: ModelVersion, files: Sequence[VersionFile], metadata: Mapping[str, str], warnings: list[str]
) -> None:
    """Judge what is stated by the project's policy. ``metadata`` is what the model file says of itself.

    Nothing happens where nothing is stated and the project has no policy, unless somebody asks.

    Raises:
        VersionRejected: the project refuses such versions.
    """
    project = Project.objects.get(models=version.model_id)
    statements = licence_statements(version, files, metadata)
    if not statements and not project.licence_policy and not is_asked(KIND):
        return
    with check(version, KIND) as finding:
        _judge(project, licence_policy_of(project), statements, finding)
        warnings.extend(finding.warnings)


def _judge(project: Project, policy: LicencePolicy, statements: Sequence[Statement], finding: Finding) -> None:
    """Fill in what was found. What several places state holds together: the severest counts. Raises VersionRejected."""
    read = [_read(one) for one in statements]
    known = {licence.expression: licence for _one, licence, _why in read if licence is not None}
    finding.evidence.update(
        licence=next(iter(known), ""),
        statements=[_evidence(one, licence, why) for one, licence, why in read],
        policy=policy.to_json(),
    )
    rulings = {expression: policy.judge(licence) for expression, licence in known.items()}
    unread = [why for one, _licence, why in read if why and one.text]
    treatment = severest([ruling.treatment for ruling in rulings.values()])
    if not known:
        treatment = severest([policy.missing, Treatment.REVIEW]) if unread else policy.missing
    deciding = [name for one in rulings.values() if one.treatment is treatment for name in one.names]
    names = ", ".join(dict.fromkeys(deciding))
    if treatment is Treatment.REFUSE:
        raise VersionRejected(_refusal(project, names, unread))
    if treatment is Treatment.REVIEW:
        text = _("A person has to look at its licence: %(names)s is on no list of the project.")
        finding.warnings.append(text % {"names": names} if known else _unknown(statements, unread))
    elif known:
        finding.warnings += unread
    if len(known) > 1:
        text = _("It states several licences: %(names)s. All of them were judged.")
        finding.warnings.append(text % {"names": ", ".join(known)})
    own = [name for licence in known.values() for name in licence.unknown if not policy.names(name)]
    if own and treatment is Treatment.ACCEPT:
        text = _("SPDX lists no licence of this name: %(names)s.")
        finding.warnings.append(text % {"names": ", ".join(dict.fromkeys(own))})
    finding.summary = next(iter(known)) + "." if known else _("It states no licence.")


def _read(statement: Statement) -> tuple[Statement, Licence | None, str]:
    """Return a statement with its licence, or with why there is none."""
    if not statement.text:
        return (
            statement,
            None,
            _("%(where)s: its text is of no licence that is recognised.") % {"where": statement.where},
        )
    try:
        return statement, read_licence(statement.text), ""
    except UnreadableLicence as error:
        return statement, None, f"{statement.where}: {error}"


def _evidence(statement: Statement, licence: Licence | None, why: str) -> dict[str, Any]:
    expression = licence.expression if licence is not None else ""
    return {"where": statement.where, "text": statement.text, "licence": expression, "problem": why}


def _unknown(statements: Sequence[Statement], unread: Sequence[str]) -> str:
    if unread:
        return _("A person has to look at its licence. %(why)s") % {"why": unread[0]}
    if statements:
        names = ", ".join(one.where for one in statements)
        return _("A person has to look at its licence, which is in %(names)s.") % {"names": names}
    return _("It states no licence.")


def _refusal(project: Project, names: str, unread: Sequence[str]) -> str:
    if names:
        text = _("Project “%(project)s” does not take this licence: %(names)s.")
        return text % {"project": project.slug, "names": names}
    text = _("Project “%(project)s” takes no version without a licence.") % {"project": project.slug}
    return f"{text} {unread[0]}" if unread else text
