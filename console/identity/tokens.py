"""Bearer tokens of people, service accounts and CI."""

from __future__ import annotations

from rest_framework.authentication import BaseAuthentication


class TokenAuthentication(BaseAuthentication):
    """Reads ``Authorization: Bearer flo_<id>_<secret>``."""
