"""Errors of the domain, each with a stable code. Only the outermost layers map them to HTTP numbers."""

from __future__ import annotations

from typing import Any, ClassVar


class RegistryError(Exception):
    """Base of every expected failure. A subclass without a code fails at import.

    ``errors`` lists field problems as ``{"field": dotted path, "message": sentence}``.
    """

    code: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.code:
            raise TypeError(f"{cls.__name__} needs a code")

    def __init__(self, message: str, *, errors: list[dict[str, str]] | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.message = message
        self.errors = errors or []
        self.extra = extra


class ValidationFailed(RegistryError):
    """What was sent is not acceptable; ``errors`` names the fields."""

    code = "validation_failed"


class NotFound(RegistryError):
    """It does not exist, or the caller may not know that it does."""

    code = "not_found"


class PermissionDenied(RegistryError):
    """The caller is known but may not do this; the message says why."""

    code = "permission_denied"


class ReauthenticationRequired(RegistryError):
    """The caller signed in a while ago and must show again who they are before a sensitive act."""

    code = "reauthentication_required"


class InvalidToken(RegistryError):
    """A token that should prove who calls proves nothing; the message says why."""

    code = "invalid_token"


class IssuerUnavailable(RegistryError):
    """An issuer outside cannot be asked for its keys; try again."""

    code = "issuer_unavailable"


class SecondFactorRequired(RegistryError):
    """The account needs a second factor, and the session of its browser has none yet."""

    code = "second_factor_required"


class InvalidTransition(RegistryError):
    """The object is not in a state from which this move is allowed."""

    code = "invalid_transition"


class StaleWrite(RegistryError):
    """Somebody else changed the object since the caller read it."""

    code = "stale_write"


class PreconditionRequired(RegistryError):
    """A change must name the state that it changes."""

    code = "precondition_required"


class Conflict(RegistryError):
    """It clashes with something that exists: a name in use, a plan that no longer holds."""

    code = "conflict"


class KeyReused(RegistryError):
    """The Idempotency-Key was used for another request; every request has its own."""

    code = "idempotency_key_reused"


class KeyInUse(RegistryError):
    """The first request with this Idempotency-Key is still running."""

    code = "idempotency_key_in_use"


class Immutable(RegistryError):
    """Ready versions and config revisions do not change; make a new one."""

    code = "immutable"


class QuotaExceeded(RegistryError):
    """A limit of the project or of the storage is reached."""

    code = "quota_exceeded"


class StorageFailed(RegistryError):
    """The artifact store could not take or give the bytes (for example a full disk)."""

    code = "storage_failed"
