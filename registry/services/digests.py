"""What the bytes of an upload hash to: SHA-256, by which content is known, and XXH3, which finds damage on the way."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from django.utils.translation import gettext as _
from xxhash import xxh3_128

from registry.errors import ValidationFailed

_DIGITS = {"sha256": 64, "xxh3": 32}
_READ_BYTES = 4 << 20


class Digests(NamedTuple):
    """SHA-256 and XXH3 (128 bits) of some bytes, in hexadecimal; empty where nobody knows."""

    sha256: str = ""
    xxh3: str = ""


def require_digests(promised: Digests) -> Digests:
    """Return what a client says about its bytes, in lower case.

    Raises:
        ValidationFailed: a digest that is none.
    """
    promised = Digests(*(digest.lower() for digest in promised))
    for name, digest in promised._asdict().items():
        if digest and not re.fullmatch(f"[0-9a-f]{{{_DIGITS[name]}}}", digest):
            message = _("The digest must be %(count)d hexadecimal digits.") % {"count": _DIGITS[name]}
            raise ValidationFailed(message, errors=[{"field": name, "message": message}])
    return promised


def digests_of(path: Path) -> Digests:
    """Read a local file once and return both. Raises OSError."""
    first, second = hashlib.sha256(), xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            first.update(piece)
            second.update(piece)
    return Digests(first.hexdigest(), second.hexdigest())
