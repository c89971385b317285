"""Every code that a problem document of the API can carry: its status, its title and what it means.

Errors of the domain are described by their classes (registry.errors) and get their status here. The page
docs/reference/errors.md and the answers in the OpenAPI document are made from this catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from registry import errors

STATUS_BY_CODE: dict[str, int] = {
    errors.ValidationFailed.code: 400,
    errors.InvalidToken.code: 401,
    errors.PermissionDenied.code: 403,
    errors.ReauthenticationRequired.code: 403,
    errors.SecondFactorRequired.code: 403,
    errors.NotFound.code: 404,
    errors.InvalidTransition.code: 409,
    errors.Conflict.code: 409,
    errors.Immutable.code: 409,
    errors.KeyInUse.code: 409,
    errors.KeyReused.code: 422,
    errors.StaleWrite.code: 412,
    errors.PreconditionRequired.code: 428,
    errors.QuotaExceeded.code: 413,
    errors.IssuerUnavailable.code: 503,
    errors.StorageFailed.code: 507,
}


@dataclass(frozen=True, slots=True)
class ProblemCode:
    """One row of the catalogue. ``is_worth_repeating``: the same request may succeed later, unchanged."""

    code: str
    status: int
    meaning: str
    is_worth_repeating: bool = False

    @property
    def title(self) -> str:
        """Return the code in words."""
        return title_of(self.code)


# What is refused before, beside or below the domain. Codes of uploads are at the end.
_OF_HTTP = (
    ProblemCode("bad_request", 400, "The request is not understood."),
    ProblemCode("parse_error", 400, "The body is no JSON that can be stored, or no JSON at all."),
    ProblemCode("bad_address", 400, "The address holds a character that is not allowed."),
    ProblemCode("not_authenticated", 401, "There is no credential: sign in, or send a token."),
    ProblemCode("authentication_failed", 401, "The credential is unknown, expired or revoked."),
    ProblemCode("method_not_allowed", 405, "The address does not know this method."),
    ProblemCode("too_slow", 408, "The body came too slowly; of an upload the bytes that came are kept.", True),
    ProblemCode("length_required", 411, "A body comes with its Content-Length."),
    ProblemCode("too_large", 413, "The body is larger than what the address takes."),
    ProblemCode("unsupported_media_type", 415, "The address takes another Content-Type."),
    ProblemCode("throttled", 429, "Too many requests; Retry-After says when to come back.", True),
    ProblemCode("internal_server_error", 500, "An unexpected error; the request id finds it in the log.", True),
    ProblemCode("service_unavailable", 503, "The database or the broker cannot be reached.", True),
    ProblemCode("upload_length", 400, "The length of the upload is missing or no number."),
    ProblemCode("upload_metadata", 400, "Upload-Metadata cannot be read."),
    ProblemCode("upload_offset", 400, "Upload-Offset is missing or no number."),
    ProblemCode("upload_concat", 400, "Upload-Concat is neither of a part nor of parts."),
    ProblemCode("checksum_algorithm", 400, "Upload-Checksum names an algorithm that is not known."),
    ProblemCode("checksum_malformed", 400, "Upload-Checksum holds no digest in base64."),
    ProblemCode("idle", 408, "Nothing arrived for a while; the bytes that came are kept.", True),
    ProblemCode("offset_mismatch", 409, "The upload stands at another offset; ask with HEAD.", True),
    ProblemCode("upload_in_parts", 409, "The bytes of this upload go to the object store, in parts."),
    ProblemCode("gone", 410, "The upload has ended; start a new one."),
    ProblemCode("upload_is_joined", 403, "The upload was made out of parts; nothing is added to it."),
    ProblemCode("tus_version", 412, "The server speaks tus 1.0.0."),
    ProblemCode("content_type", 415, "A chunk has Content-Type application/offset+octet-stream."),
    ProblemCode("locked", 423, "Another request writes to this upload.", True),
    ProblemCode("checksum_mismatch", 460, "The chunk arrived damaged; send it again.", True),
    ProblemCode("disconnected", 499, "The client left; nobody reads this answer."),
    ProblemCode("storage_full", 507, "The server's disk is full.", True),
)

_REPEATED = frozenset({errors.StaleWrite.code, errors.IssuerUnavailable.code, errors.KeyInUse.code})

# For errors without a code of their own.
_CODE_BY_STATUS = {
    400: "bad_request",
    401: "not_authenticated",
    403: errors.PermissionDenied.code,
    404: errors.NotFound.code,
    405: "method_not_allowed",
    429: "throttled",
    500: "internal_server_error",
    503: "service_unavailable",
}
# Names of the REST framework for what has one here.
_SAME_AS = {"invalid": "validation_failed", "error": "internal_server_error", "not_acceptable": "bad_request"}


def title_of(code: str) -> str:
    """Return a code in words: ``stale_write`` is “Stale write”."""
    return code.replace("_", " ").capitalize()


def code_of(status: int, code: str = "") -> str:
    """Return the catalogue's code for an error that names a status and perhaps a code."""
    return _SAME_AS.get(code, code) or _CODE_BY_STATUS.get(status, "bad_request" if status < 500 else "service_error")


def catalogue() -> dict[str, ProblemCode]:
    """Return all codes, by status and name."""
    rows = [*_OF_HTTP, *_of_domain(errors.RegistryError)]
    return {row.code: row for row in sorted(rows, key=lambda row: (row.status, row.code))}


def _of_domain(base: type[errors.RegistryError]) -> Iterator[ProblemCode]:
    for kind in base.__subclasses__():
        if kind.__module__ != errors.__name__:
            continue
        meaning = (kind.__doc__ or "").strip().partition("\n")[0]
        yield ProblemCode(kind.code, STATUS_BY_CODE[kind.code], meaning, kind.code in _REPEATED)
        yield from _of_domain(kind)
