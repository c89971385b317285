"""Who is believed when a signature over the files of a version names them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from serving_node.contract.messages import Message

SIGNATURE_FILE = "model.sig"
MAX_SIGNATURE_BYTES = 16 * 1024**2


class SignerKind(StrEnum):
    """How a signature proves who made it."""

    KEY = "key"
    CERTIFICATE = "certificate"
    KEYLESS = "keyless"


@dataclass(frozen=True, slots=True)
class Signer(Message):
    """Somebody whose signatures count.

    ``material``: the public key (PEM); the certificates of authorities, with lists of revoked ones if there are any
    (PEM); or a Sigstore trusted root (JSON). ``identity``: whom a certificate must name, see ``is_named``.
    ``issuer``: who must have vouched for the identity; keyless only. ``at``: when the signature was first seen, in
    seconds since 1970; certificates must have been valid then.
    """

    name: str
    kind: SignerKind
    material: str
    identity: str = ""
    issuer: str = ""
    at: float = 0.0


def is_named(pattern: str, names: Iterable[str]) -> bool:
    """Tell whether one of the names of a certificate is the wanted one; a ``*`` at its end stands for any rest."""
    if pattern.endswith("*"):
        return any(name.startswith(pattern[:-1]) for name in names)
    return pattern in names


def is_safe_pattern(kind: SignerKind, pattern: str) -> bool:
    """Tell whether an identity leaves no more open than its owner can vouch for.

    An authority of one's own may vouch for all that it names (``*``) or for all addresses below one
    (``spiffe://corp/ci/*``). Keyless authorities vouch for everybody on earth: there only the branch or tag of one
    workflow may stay open (``https://.../release.yml@refs/tags/*``).
    """
    if "*" not in pattern:
        return bool(pattern)
    fixed = pattern[:-1]
    if "*" in fixed or not pattern.endswith("*"):
        return False
    if kind is SignerKind.CERTIFICATE:
        scheme, found, rest = fixed.partition("://")
        return not fixed or (bool(found) and bool(scheme) and "/" in rest)
    address, found, reference = fixed.partition("@refs/")
    return bool(found) and address.startswith("https://") and "/" in reference
