"""Which parts of the protocol ask for a header that only some clients know.

Source: Triton's --http-restricted-api and --grpc-restricted-protocol, command_line_parser.cc, restricted_features.h.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# gRPC clients send the key with this before it.
GRPC_PREFIX = "triton-grpc-protocol-"


class ApiCategory(StrEnum):
    """The parts of the protocol that can be restricted."""

    HEALTH = "health"
    METADATA = "metadata"
    INFERENCE = "inference"
    SHARED_MEMORY = "shared-memory"
    MODEL_CONFIG = "model-config"
    MODEL_REPOSITORY = "model-repository"
    STATISTICS = "statistics"
    TRACE = "trace"
    LOGGING = "logging"


@dataclass(frozen=True, slots=True)
class RestrictedGroup:
    """What one flag says: these parts want ``header`` with ``value``. The value is a secret and is never shown."""

    features: tuple[str, ...]
    header: str
    value: str = field(repr=False)


def parse_group(text: str) -> RestrictedGroup:
    """Return the meaning of ``<api,api>:<header>=<value>``.

    Raises:
        ValueError: it is not of that form. The sentence does not repeat the text, which has a secret in it.
    """
    features, colon, rest = text.partition(":")
    header, equals, value = rest.partition("=")
    if not (colon and equals and features and header and value):
        raise ValueError("option format is '<config name>:<setting>=<value>'")
    if not (text.isascii() and text.isprintable()):
        raise ValueError("header names and values are printable ASCII")
    return RestrictedGroup(tuple(features.split(",")), header, value)


class RestrictedAccess:
    """The restrictions of one protocol. False when there are none, so that callers can skip the check.

    ``noun`` is what its error texts call a part: "API" (HTTP) or "protocol" (gRPC).
    """

    __slots__ = ("_noun", "_wanted")

    def __init__(self, groups: Iterable[RestrictedGroup] = (), *, noun: str = "API", prefix: str = "") -> None:
        """Combine the groups of all flags.

        Raises:
            ValueError: a part is unknown, or in two groups. Triton's sentences.
        """
        self._noun = noun
        # category: header as shown, header in lower case, value
        self._wanted: dict[ApiCategory, tuple[str, bytes, bytes]] = {}
        for group in groups:
            header = prefix + group.header
            for feature in group.features:
                try:
                    category = ApiCategory(feature)
                except ValueError:
                    raise ValueError(f"unknown restricted {noun.lower()} '{feature}'") from None
                if category in self._wanted:
                    sentence = "can not be specified in multiple config groups"
                    raise ValueError(f"restricted {noun.lower()} '{feature}' {sentence}")
                self._wanted[category] = (header, header.lower().encode(), group.value.encode())

    @classmethod
    def for_http(cls, groups: Iterable[RestrictedGroup]) -> RestrictedAccess:
        """Return the restrictions of the HTTP port. Raises ValueError."""
        return cls(groups, noun="API")

    @classmethod
    def for_grpc(cls, groups: Iterable[RestrictedGroup]) -> RestrictedAccess:
        """Return the restrictions of the gRPC port. Raises ValueError."""
        return cls(groups, noun="protocol", prefix=GRPC_PREFIX)

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def is_restricted(self, category: ApiCategory) -> bool:
        """Return whether a part asks for a header."""
        return category in self._wanted

    def header_of(self, category: ApiCategory) -> str:
        """Return the name of the header that a restricted part asks for."""
        return self._wanted[category][0]

    def check(self, category: ApiCategory, headers: Mapping[bytes, bytes]) -> str | None:
        """Return None when a request with these headers (lower-case names) may use the part, otherwise the sentence.

        The time it takes does not tell how much of the value was right.
        """
        wanted = self._wanted.get(category)
        if wanted is None:
            return None
        shown, header, value = wanted
        given = headers.get(header)
        if given is not None and hmac.compare_digest(given, value):
            return None
        return f"This {self._noun} is restricted, expecting header '{shown}'"
