"""Identities whose signatures a project trusts, and who signed a version."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from django.db import transaction
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import Conflict, QuotaExceeded, ValidationFailed
from registry.models import Deployment, ModelVersion, Project, ScratchUnit, SigningIdentity, VersionSigner
from registry.selectors.fleet import nodes_of
from registry.services import audit
from registry.services.nodes import node_generation_raise
from registry.services.permissions import require
from registry.services.signing import signing_changed
from serving_node.contract.digests import plan_digest
from serving_node.contract.signing import Signer, SignerKind, is_safe_pattern

MAX_IDENTITIES = 50
MAX_CERTIFICATES_CHARACTERS = 100_000
MAX_IDENTITY = 500


def signing_identity_add(
    *, project: Project, name: str, identity: str, certificates: str = "", issuer: str = "", actor: Actor
) -> SigningIdentity:
    """Trust whom a certificate names: one of an authority in ``certificates``, or a keyless one, of an ``issuer``.

    Raises:
        ValidationFailed: not exactly one of the two, or one of them or the identity cannot be used; ``errors`` names
            the field.
        Conflict: the name is taken, or the same is trusted already.
        QuotaExceeded: there are too many.
    """
    require(actor, "project.policy", project)
    name, identity, issuer = name.strip(), identity.strip(), issuer.strip()
    if not name or len(name) > 100 or not name.isprintable():
        raise _invalid("name", _("Give the identity a name of at most 100 characters."))
    if bool(certificates.strip()) == bool(issuer):
        raise _invalid("issuer", _("Give the certificates of an authority, or the issuer of a keyless identity."))
    kind = SignerKind.KEYLESS if issuer else SignerKind.CERTIFICATE
    if len(identity) > MAX_IDENTITY or not identity.isprintable() or not is_safe_pattern(kind, identity):
        raise _invalid("identity", _UNSAFE[kind]())
    if kind is SignerKind.KEYLESS:
        _check_issuer(issuer)
    else:
        certificates = _canonical(certificates)
    facts = {"identity": identity, "issuer": issuer, "certificates": certificates}
    row = SigningIdentity(
        project=project, name=name, **facts, fingerprint=plan_digest(facts), created_by_id=actor.user_id
    )
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        trusted = list(SigningIdentity.objects.filter(project=project))
        if len(trusted) >= MAX_IDENTITIES:
            told = _("There are %(limit)d identities already, the most there may be.")
            raise QuotaExceeded(told % {"limit": MAX_IDENTITIES})
        for other in trusted:
            if other.fingerprint == row.fingerprint:
                told = _("This identity is trusted already, as “%(name)s”.") % {"name": other.name}
                raise Conflict(told, errors=[{"field": "identity", "message": told}])
            if other.name == name:
                told = _("There is an identity “%(name)s” already.") % {"name": name}
                raise Conflict(told, errors=[{"field": "name", "message": told}])
        row.save()
        audit.record(actor=actor, action="signing_identity.add", obj=row, after=_facts(row))
        signing_changed(project)
    return row


def signing_identity_remove(*, identity: SigningIdentity, actor: Actor) -> None:
    """Trust an identity no longer. Verdicts that were given stay until the check is made again."""
    require(actor, "project.policy", identity.project)
    with transaction.atomic():
        audit.record(actor=actor, action="signing_identity.remove", obj=identity, before=_facts(identity))
        signing_changed(identity.project)
        SigningIdentity.objects.filter(pk=identity.pk).delete()


def version_signer_set(*, version: ModelVersion, signer: Signer) -> None:
    """Write down who signed a version; nodes that want the version verify it from now on.

    A signer stays written down when nobody trusts it any more: what serves goes on, and approvals are void.
    """
    with transaction.atomic():
        ModelVersion.objects.select_for_update(no_key=True).get(pk=version.pk)
        before = VersionSigner.objects.filter(version=version).first()
        if before is not None and before.signer == signer.to_json():
            return
        VersionSigner.objects.update_or_create(version=version, defaults={"signer": signer.to_json()})
        node_generation_raise(_nodes_with(version))


def _nodes_with(version: ModelVersion) -> set[uuid.UUID]:
    """Return the nodes whose desired state names the version."""
    deployments = Deployment.objects.filter(routes__version=version).select_related("fleet").distinct()
    nodes = set(nodes_of(*{one.fleet for one in deployments}).values_list("pk", flat=True)) if deployments else set()
    return nodes | set(ScratchUnit.objects.filter(version=version).values_list("node_id", flat=True))


_UNSAFE = {
    SignerKind.CERTIFICATE: lambda: _(
        "The identity is the subject or a name of the certificate, an address that ends in * after a slash, or * alone."
    ),
    SignerKind.KEYLESS: lambda: _(
        "The identity is an e-mail address or the address of a workflow; * may only stand at the end of its branch or "
        "tag, as in https://.../release.yml@refs/tags/*."
    ),
}


def _check_issuer(issuer: str) -> None:
    try:
        parts = urlsplit(issuer)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "https" or not parts.hostname or len(issuer) > MAX_IDENTITY or not issuer.isprintable():
        raise _invalid("issuer", _("The issuer is an https address, like https://token.actions.githubusercontent.com."))


def _canonical(text: str) -> str:
    """Return certificates and lists of revoked ones as PEM, without anything else. Raises ValidationFailed."""
    if "PRIVATE KEY" in text:
        raise _invalid("certificates", _("There is a private key in it. Keep it secret, and give certificates only."))
    if len(text) > MAX_CERTIFICATES_CHARACTERS:
        told = _("Give at most %(limit)d characters.") % {"limit": MAX_CERTIFICATES_CHARACTERS}
        raise _invalid("certificates", told)
    try:
        certificates = x509.load_pem_x509_certificates(text.encode())
        revocations = [x509.load_pem_x509_crl(block) for block in _lists_of_revoked(text)]
        for one in certificates:
            if not one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
                raise ValueError
    except (ValueError, x509.ExtensionNotFound):
        told = _("These are no certificates of authorities in PEM (with basicConstraints CA:TRUE).")
        raise _invalid("certificates", told) from None
    blocks = [one.public_bytes(Encoding.PEM) for one in certificates]
    blocks += [one.public_bytes(Encoding.PEM) for one in revocations]
    return b"".join(blocks).decode()


def _lists_of_revoked(text: str) -> list[bytes]:
    begin, end = "-----BEGIN X509 CRL-----", "-----END X509 CRL-----"
    return [f"{begin}{part.partition(end)[0]}{end}\n".encode() for part in text.split(begin)[1:]]


def _facts(row: SigningIdentity) -> dict[str, Any]:
    return {"name": row.name, "identity": row.identity, "issuer": row.issuer, "fingerprint": row.fingerprint}


def _invalid(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])
