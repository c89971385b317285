"""What a project asks of signatures over versions, and the public keys that it trusts."""

from __future__ import annotations

import hashlib
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from django.db import transaction
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.errors import Conflict, QuotaExceeded, ValidationFailed
from registry.models import Project, SigningKey, SigningPolicy
from registry.services import audit
from registry.services.permissions import require

MAX_KEYS = 50
MAX_PEM_CHARACTERS = 10_000
# Those that the signing library can verify with.
CURVES = ("secp256r1", "secp384r1", "secp521r1")


def signing_policy_set(*, project: Project, policy: str, actor: Actor) -> Project:
    """Say whether new versions must be signed. Versions that are ready stay as they are.

    Raises:
        ValidationFailed: there is no such policy.
    """
    require(actor, "project.policy", project)
    if policy not in SigningPolicy.values:
        raise _invalid("signing_policy", _("Signatures are “off”, “optional” or “required”."))
    with transaction.atomic():
        locked = Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        before = locked.signing_policy
        if before != policy:
            Project.objects.filter(pk=project.pk).update(signing_policy=policy)
            audit.record(
                actor=actor,
                action="project.signing_policy",
                obj=project,
                before={"signing_policy": before},
                after={"signing_policy": policy},
            )
            signing_changed(project)
    project.refresh_from_db()
    return project


def signing_key_add(*, project: Project, name: str, public_key: str, actor: Actor) -> SigningKey:
    """Trust the holder of the private key that belongs to ``public_key`` (PEM).

    Raises:
        ValidationFailed: a bad name, or no public key that signatures can be verified with; ``errors`` names the field.
        Conflict: the name is taken, or the key is trusted already.
        QuotaExceeded: there are too many.
    """
    require(actor, "project.policy", project)
    name = name.strip()
    if not name or len(name) > 100 or not name.isprintable():
        raise _invalid("name", _("Give the key a name of at most 100 characters."))
    pem = _canonical(public_key)
    # The signing library names the key in a signature by the same digest.
    key = SigningKey(
        project=project,
        name=name,
        public_key=pem,
        fingerprint=hashlib.sha256(pem.encode()).hexdigest(),
        created_by_id=actor.user_id,
    )
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        trusted = list(SigningKey.objects.filter(project=project))
        if len(trusted) >= MAX_KEYS:
            raise QuotaExceeded(_("There are %(limit)d keys already, the most there may be.") % {"limit": MAX_KEYS})
        for other in trusted:
            if other.fingerprint == key.fingerprint:
                raise _taken("public_key", _("This key is trusted already, as “%(name)s”.") % {"name": other.name})
            if other.name == name:
                raise _taken("name", _("There is a key “%(name)s” already.") % {"name": name})
        key.save()
        audit.record(actor=actor, action="signing_key.add", obj=key, after=_facts(key))
        signing_changed(project)
    return key


def signing_key_remove(*, key: SigningKey, actor: Actor) -> None:
    """Trust a key no longer. Verdicts that were given stay until the check is made again."""
    require(actor, "project.policy", key.project)
    with transaction.atomic():
        audit.record(actor=actor, action="signing_key.remove", obj=key, before=_facts(key))
        signing_changed(key.project)
        SigningKey.objects.filter(pk=key.pk).delete()


def _canonical(text: str) -> str:
    """Return the one PEM text of a public key. Raises ValidationFailed."""
    if "PRIVATE KEY" in text:
        raise _invalid("public_key", _("This is a private key. Keep it secret, and give the public one."))
    try:
        key = load_pem_public_key(text[:MAX_PEM_CHARACTERS].encode())
    except (ValueError, UnsupportedAlgorithm):
        raise _invalid("public_key", _("This is no public key in PEM.")) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in CURVES:
        raise _invalid("public_key", _("Signing keys are elliptic curve keys: P-256, P-384 or P-521."))
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def _facts(key: SigningKey) -> dict[str, Any]:
    return {"name": key.name, "fingerprint": key.fingerprint}


def signing_changed(project: Project) -> None:
    """Tell open pages that whose signatures count has changed."""
    telemetry.publish_on_commit(f"project:{project.pk}", project=project.pk)


def _invalid(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])


def _taken(field: str, message: str) -> Conflict:
    return Conflict(message, errors=[{"field": field, "message": message}])
