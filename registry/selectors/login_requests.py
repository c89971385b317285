"""Sign-ins of command lines that wait for a person."""

from __future__ import annotations

from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.login_codes import read_code
from registry.errors import NotFound
from registry.models import LoginRequest, LoginState


def login_by_code(typed: str) -> LoginRequest:
    """Return the request that waits under a code.

    Raises:
        NotFound: there is none, it ran out, or somebody decided; which of these is not told.
    """
    code = read_code(typed)
    waiting = LoginRequest.objects.filter(user_code=code, state=LoginState.WAITING, expires_at__gt=timezone.now())
    found = waiting.first() if code else None
    if found is None:
        raise NotFound(_("No sign-in waits under this code. Codes last 10 minutes and work once."))
    return found
