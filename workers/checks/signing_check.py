"""Whether somebody whom the project trusts signed exactly the files of a version."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from registry.models import ModelVersion, Project, SigningPolicy, Transition, VersionFile, VersionState
from registry.selectors.signing import signing_identities, signing_keys
from registry.services.signing_identities import version_signer_set
from registry.storage import artifact_store
from serving_node.contract.signing import MAX_SIGNATURE_BYTES, SIGNATURE_FILE, Signer, SignerKind
from signatures.verify import (
    NotTrustedError,
    OtherDigestsError,
    UnverifiableError,
    differences,
    signed_files,
)
from workers.checks.verdicts import Finding, NeverRun, NotChecked, VersionRejected, check

KIND = "signature_verification"
_MOST_NAMED = 5


def check_signed(version: ModelVersion, files: Sequence[VersionFile], warnings: list[str]) -> None:
    """Verify ``model.sig`` over all other files, by the digests under which they are stored.

    Nothing happens where the project does not look at signatures.

    Raises:
        VersionRejected: the signature is bad; or there is none, or it could not be verified, and the project requires
            one.
    """
    project = Project.objects.get(models=version.model_id)
    if project.signing_policy == SigningPolicy.OFF:
        return
    is_required = project.signing_policy == SigningPolicy.REQUIRED
    try:
        with check(version, KIND) as finding:
            finding.evidence["policy"] = project.signing_policy
            try:
                _verify(version, files, finding, project)
            except NotChecked as error:
                # Deny by default: where a signature must be, not knowing is not enough.
                raise NeverRun(str(error)) if is_required else error from None
            warnings.extend(finding.warnings)
    except NotChecked as error:
        if isinstance(error, VersionRejected):
            raise
        warnings.append(str(error))


def _verify(version: ModelVersion, files: Sequence[VersionFile], finding: Finding, project: Project) -> None:
    """Fill in who signed. Raises VersionRejected or NotChecked."""
    stored = {file.path: file.blob for file in files}
    signature = stored.pop(SIGNATURE_FILE, None)
    if signature is None:
        told = _("There is no signature (%(name)s).") % {"name": SIGNATURE_FILE}
        if project.signing_policy == SigningPolicy.REQUIRED:
            raise VersionRejected(told + " " + _("Project “%(project)s” requires one.") % {"project": project.slug})
        finding.warnings.append(told)
        return
    finding.evidence["signature_sha256"] = signature.sha256
    if signature.size > MAX_SIGNATURE_BYTES:
        told = _("%(name)s has more than %(limit)d bytes, which no signature needs.")
        raise VersionRejected(told % {"name": SIGNATURE_FILE, "limit": MAX_SIGNATURE_BYTES})
    signers, without_root = _signers(project, version)
    if not signers:
        raise NotChecked(without_root or _("The project trusts nobody yet, so nobody's signature can be verified."))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / SIGNATURE_FILE
        artifact_store().copy_to(signature.sha256, path)
        try:
            signed = signed_files(path, list(signers))
        except UnverifiableError:
            told = _("Signatures cannot be verified here: the worker lacks the extra “signing” (model-signing).")
            raise NotChecked(told) from None
        except OtherDigestsError as error:
            told = _("“%(key)s” signed digests that are not SHA-256 of whole files; use flotilla sign.")
            raise VersionRejected(told % {"key": error.name}) from None
        except NotTrustedError as error:
            if without_root and error.kind is SignerKind.KEYLESS:
                raise NotChecked(without_root) from None
            raise VersionRejected(_nobody(error)) from None
    signer = signed.signer
    finding.evidence["signer"] = {
        "kind": signer.kind.value,
        "name": signer.name,
        "fingerprint": signed.fingerprint,
        **({"identity": signed.identity, "identity_id": signers[signer]} if signed.identity else {}),
        **({"issuer": signer.issuer} if signer.issuer else {}),
    }
    problem = _difference(signed.files, {name: blob.sha256 for name, blob in stored.items()})
    if problem:
        raise VersionRejected(_("What “%(key)s” signed is not what was uploaded: ") % {"key": signer.name} + problem)
    version_signer_set(version=version, signer=signer)
    text = ngettext(
        "%(who)s signed its %(count)d file.",
        "%(who)s signed all %(count)d files.",
        len(stored),
    )
    finding.evidence["files"] = len(stored)
    who = _("%(name)s (%(identity)s)") % {"name": signer.name, "identity": signed.identity}
    if not signed.identity:
        who = _("%(name)s (SHA-256 %(fingerprint)s)") % {"name": signer.name, "fingerprint": signed.fingerprint[:16]}
    finding.summary = text % {"who": who, "count": len(stored)}


def _signers(project: Project, version: ModelVersion) -> tuple[dict[Signer, str], str]:
    """Return whom the project trusts with the id of each, and why keyless identities are not among them, or nothing.

    Certificates are judged as of the moment when the files had arrived, whenever that is asked.
    """
    moves = Transition.objects.filter(object_type="modelversion", object_id=version.pk)
    arrived = moves.filter(to_state=VersionState.VALIDATING).order_by("created_at").first()
    at = (arrived.created_at if arrived else timezone.now()).timestamp()
    found = {
        Signer(name=key.name, kind=SignerKind.KEY, material=key.public_key): str(key.pk)
        for key in signing_keys(project)
    }
    root, problem = "", ""
    for row in signing_identities(project):
        if row.kind is SignerKind.KEYLESS and not root and not problem:
            root, problem = _trusted_root()
        material = root if row.kind is SignerKind.KEYLESS else row.certificates
        if material:
            found[Signer(row.name, row.kind, material, row.identity, row.issuer, at)] = str(row.pk)
    return found, problem


def _trusted_root() -> tuple[str, str]:
    """Return the trusted root of the site, and why there is none, or nothing."""
    if not settings.SIGSTORE_TRUSTED_ROOT:
        told = _("Keyless signatures cannot be verified here: the site has no Sigstore trusted root.")
        return "", told
    try:
        return Path(settings.SIGSTORE_TRUSTED_ROOT).read_text(), ""
    except (OSError, UnicodeDecodeError):
        return "", _("Keyless signatures cannot be verified here: the Sigstore trusted root cannot be read.")


def _nobody(error: NotTrustedError) -> str:
    match error.kind:
        case SignerKind.KEY | None:
            return _("No key that the project trusts made this signature.")
        case SignerKind.CERTIFICATE | SignerKind.KEYLESS:
            told = _("Nobody whom the project trusts made this signature.")
            return "; ".join([told, *(f"{name}: {why}" for name, why in error.reasons)])


def _difference(signed: Mapping[str, str], stored: Mapping[str, str]) -> str:
    """Return what differs, for people; empty: nothing does."""
    found = differences(signed, stored)
    parts = (
        (_("changed: %(names)s"), found.changed),
        (_("missing: %(names)s"), found.missing),
        (_("not signed: %(names)s"), found.not_signed),
    )
    return "; ".join(text % {"names": _named(names)} for text, names in parts if names)


def _named(names: Sequence[str]) -> str:
    text = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return _("%(named)s and %(count)d more") % {"named": text, "count": more} if more > 0 else text
