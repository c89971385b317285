"""Whether somebody whom the project trusts signed exactly the files of a version."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from registry.models import ModelVersion, Project, SigningKey, SigningPolicy, VersionFile
from registry.selectors.signing import signing_keys
from registry.storage import artifact_store
from workers.checks.verdicts import Finding, NeverRun, NotChecked, VersionRejected, check

KIND = "signature_verification"
SIGNATURE_FILE = "model.sig"
MAX_SIGNATURE_BYTES = 16 * 1024**2
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
                _verify(project, files, finding, is_required)
            except NotChecked as error:
                # Deny by default: where a signature must be, not knowing is not enough.
                raise NeverRun(str(error)) if is_required else error from None
            warnings.extend(finding.warnings)
    except NotChecked as error:
        if isinstance(error, VersionRejected):
            raise
        warnings.append(str(error))


def _verify(project: Project, files: Sequence[VersionFile], finding: Finding, is_required: bool) -> None:
    """Fill in who signed. Raises VersionRejected or NotChecked."""
    stored = {file.path: file.blob for file in files}
    signature = stored.pop(SIGNATURE_FILE, None)
    if signature is None:
        told = _("There is no signature (%(name)s).") % {"name": SIGNATURE_FILE}
        if is_required:
            raise VersionRejected(told + " " + _("Project “%(project)s” requires one.") % {"project": project.slug})
        finding.warnings.append(told)
        return
    finding.evidence["signature_sha256"] = signature.sha256
    if signature.size > MAX_SIGNATURE_BYTES:
        told = _("%(name)s has more than %(limit)d bytes, which no signature needs.")
        raise VersionRejected(told % {"name": SIGNATURE_FILE, "limit": MAX_SIGNATURE_BYTES})
    keys = list(signing_keys(project))
    if not keys:
        raise NotChecked(_("The project trusts no signing key yet, so nobody's signature can be verified."))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / SIGNATURE_FILE
        artifact_store().copy_to(signature.sha256, path)
        key, signed = _signed_files(path, keys)
    finding.evidence["signer"] = {"name": key.name, "fingerprint": key.fingerprint}
    problem = _difference(signed, {name: blob.sha256 for name, blob in stored.items()})
    if problem:
        raise VersionRejected(_("What “%(key)s” signed is not what was uploaded: ") % {"key": key.name} + problem)
    text = ngettext(
        "%(key)s (SHA-256 %(fingerprint)s) signed its %(count)d file.",
        "%(key)s (SHA-256 %(fingerprint)s) signed all %(count)d files.",
        len(stored),
    )
    finding.evidence["files"] = len(stored)
    finding.summary = text % {"key": key.name, "fingerprint": key.fingerprint[:16], "count": len(stored)}


def _signed_files(path: Path, keys: Iterable[SigningKey]) -> tuple[SigningKey, dict[str, str]]:
    """Return whose signature it is, and the SHA-256 of each file that it is about, by path.

    Raises:
        NotChecked: the library is missing.
        VersionRejected: nobody trusted made it, or it is about something else than files.
    """
    try:
        # Its public function reads every file again; these parts, pinned to 1.1, give what was signed instead, and
        # the store knows the digests of its files already.
        from model_signing._signing.sign_ec_key import Verifier
        from model_signing._signing.sign_sigstore_pb import Signature
    except ImportError:
        told = _("Signatures cannot be verified here: the worker lacks the extra “signing” (model-signing).")
        raise NotChecked(told) from None
    for key in keys:
        pem = path.with_name(f"{key.pk}.pem")
        pem.write_text(key.public_key)
        try:
            manifest = Verifier(pem).verify(Signature.read(path))
            how = manifest.serialization_type
            signed = {one.identifier: one.digest for one in manifest.resource_descriptors()}
        except Exception:  # noqa: S112 - a stranger's file: whatever reading it raises, this key has not signed it
            continue
        if how.get("method") != "files" or any(one.algorithm != "sha256" for one in signed.values()):
            told = _("“%(key)s” signed digests that are not SHA-256 of whole files; use flotilla sign.")
            raise VersionRejected(told % {"key": key.name})
        return key, {name: one.digest_hex for name, one in signed.items()}
    raise VersionRejected(_("No key that the project trusts made this signature."))


def _difference(signed: Mapping[str, str], stored: Mapping[str, str]) -> str:
    """Return what differs, for people; empty: nothing does."""
    parts = (
        (_("changed: %(names)s"), [name for name in signed if name in stored and signed[name] != stored[name]]),
        (_("missing: %(names)s"), [name for name in signed if name not in stored]),
        (_("not signed: %(names)s"), [name for name in stored if name not in signed]),
    )
    return "; ".join(text % {"names": _named(sorted(names))} for text, names in parts if names)


def _named(names: Sequence[str]) -> str:
    text = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return _("%(named)s and %(count)d more") % {"named": text, "count": more} if more > 0 else text
