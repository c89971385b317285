"""Request headers that become parameters of the inference request.

Source: Triton's --http-header-forward-pattern and --grpc-header-forward-pattern; http_server.cc, infer_handler.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import Parameter

RESERVED_NAMES = frozenset(
    {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"}
)
# The pattern is matched by backtracking: the length of what a client chooses must be bounded.
_MAX_NAME_BYTES = 256
_MEMO_ENTRIES = 1024

# Character classes of POSIX, which RE2 knows and Python does not. Header names are ASCII.
_POSIX_CLASSES = {
    "[:alnum:]": "0-9A-Za-z",
    "[:alpha:]": "A-Za-z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
    "[:word:]": "0-9A-Za-z_",
    "[:xdigit:]": "0-9A-Fa-f",
}
# What Python knows and RE2 does not: lookaround, atomic groups, conditions, back references.
_NOT_RE2 = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!>(]|<[=!]|P=)|\\[1-9])")

# Python knows no (?-i) for the whole pattern.
_CASE = re.compile(r"\(\?(-?)i\)")


class HeaderForwarding:
    """Chooses headers by a pattern. False when there is no pattern, so that callers can skip it.

    A header is chosen when the pattern matches any part of its name. Upper and lower case do not count, unless the
    pattern begins with ``(?-i)``; names are as the client sent them over HTTP, and always in lower case over gRPC.
    Names of more than 256 bytes are never chosen.
    """

    __slots__ = ("_memo", "_pattern")

    def __init__(self, pattern: str = "") -> None:
        """Read a pattern in RE2's syntax.

        Raises:
            ValueError: not a regular expression, or one that RE2 does not know.
        """
        self._pattern = _compile(pattern) if pattern else None
        self._memo: dict[bytes, str | None] = {}

    def __bool__(self) -> bool:
        return self._pattern is not None

    def collect(self, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Parameter]:
        """Return the chosen headers as parameters. Of a repeated header the last one counts.

        Raises:
            InferenceError: INVALID_ARG, a chosen header has the name of a parameter with a meaning of its own.
        """
        chosen: dict[str, Parameter] = {}
        for raw, value in headers:
            try:
                name = self._memo[raw]
            except KeyError:
                name = self._match(raw)
            if name is None:
                continue
            if name in RESERVED_NAMES or name.startswith("triton_"):
                sentence = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
            chosen[name] = value.decode("utf-8", "replace")
        return chosen

    def _match(self, raw: bytes) -> str | None:
        if self._pattern is None or len(raw) > _MAX_NAME_BYTES:
            return None
        name = raw.decode("latin-1")
        found = name if self._pattern.search(name) else None
        if len(self._memo) >= _MEMO_ENTRIES:
            self._memo.clear()
        self._memo[raw] = found
        return found


def _compile(pattern: str) -> re.Pattern[str]:
    if _NOT_RE2.search(pattern):
        raise ValueError(f"'{pattern}' uses lookaround or back references, which are not allowed in header patterns")
    flags, text = re.ASCII | re.IGNORECASE, pattern.replace(r"\z", r"\Z")
    while (found := _CASE.match(text)) is not None:
        flags = re.ASCII if found[1] else re.ASCII | re.IGNORECASE
        text = text[found.end() :]
    for name, ranges in _POSIX_CLASSES.items():
        text = text.replace(name, ranges)
    if "[:" in text:
        raise ValueError(f"'{pattern}' has a character class that is not known")
    try:
        return re.compile(text, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"'{pattern}' is not a regular expression: {error}") from None
