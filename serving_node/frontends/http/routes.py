"""Which handler serves a path. Source: the regular expressions of Triton's http_server.cc."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from serving_node.wire.exchange import HttpExchange

# handler(exchange, model or region name, version)
RouteHandler = Callable[[HttpExchange, str, str], None]

_MEMO_ENTRIES = 1024
_MEMO_PATH_BYTES = 512


@dataclass(frozen=True, slots=True)
class Match:
    """The handlers of a path by method, and what its placeholders stand for."""

    handlers: dict[str, RouteHandler]
    name: str
    version: str


class RouteTable:
    """Patterns with handlers. ``{m}`` matches a name without slashes, ``{v}`` an optional version."""

    def __init__(self) -> None:
        self._routes: list[tuple[re.Pattern[str], dict[str, RouteHandler]]] = []
        self._memo: dict[bytes, Match | None] = {}

    def add(self, pattern: str, **handlers: RouteHandler) -> None:
        """Add a route; earlier ones win. Keywords are methods."""
        expression = pattern.replace("{m}", "(?P<name>[^/]+)").replace("{v}", "(?:/versions/(?P<version>[0-9]+))?")
        if "GET" in handlers:
            handlers = {**handlers, "HEAD": handlers["GET"]}
        self._routes.append((re.compile(expression + r"\Z", re.DOTALL), handlers))

    def match(self, path: bytes) -> Match | None:
        """Return the match of a raw path, or None."""
        try:
            return self._memo[path]
        except KeyError:
            pass
        found = self._search(path)
        if len(path) <= _MEMO_PATH_BYTES:
            if len(self._memo) >= _MEMO_ENTRIES:
                self._memo.clear()
            self._memo[path] = found
        return found

    def _search(self, path: bytes) -> Match | None:
        # names may contain an encoded slash, so matching comes before decoding
        text = path.decode("latin-1")
        for pattern, handlers in self._routes:
            found = pattern.match(text)
            if found is not None:
                groups = found.groupdict()
                name = unquote_to_bytes((groups.get("name") or "").encode("latin-1")).decode("utf-8", "replace")
                return Match(handlers, name, groups.get("version") or "")
        return None
