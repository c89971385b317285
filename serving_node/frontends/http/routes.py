"""Which handler serves a path, and which part of the protocol it belongs to.

Source: the regular expressions of Triton's http_server.cc.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from serving_node.frontends.restricted_access import ApiCategory
from serving_node.wire.exchange import HttpExchange

# handler(exchange, model or region name, version)
RouteHandler = Callable[[HttpExchange, str, str], None]

_MEMO_ENTRIES = 1024
_MEMO_PATH_BYTES = 512
# What the placeholders of patterns match.
_PLACEHOLDERS = {
    "{m}": "(?P<name>[^/]+)",
    "{v}": "(?:/versions/(?P<version>[0-9]+))?",
    "{repo}": "(?:/[^/]+)?",
    "{region}": "(?:/region/(?P<name>[^/]+))?",
}


@dataclass(frozen=True, slots=True)
class Match:
    """The handlers of a path by method, its part of the protocol, and what its placeholders stand for."""

    handlers: dict[str, RouteHandler]
    category: ApiCategory | None
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Route:
    """One pattern with its handlers by method."""

    pattern: str
    expression: re.Pattern[str]
    category: ApiCategory | None
    handlers: dict[str, RouteHandler]


class RouteTable:
    """Patterns with handlers, searched in the order in which they were added.

    Placeholders: ``{m}`` a model name, ``{v}`` an optional version, ``{repo}`` an optional repository,
    ``{region}`` an optional shared memory region. What is served by GET is served by HEAD too.
    """

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self._memo: dict[bytes, Match | None] = {}

    def add(self, pattern: str, category: ApiCategory | None = None, **handlers: RouteHandler) -> None:
        """Add a route; earlier ones win. Keywords are methods. Without a category it can not be restricted."""
        expression = pattern
        for placeholder, meaning in _PLACEHOLDERS.items():
            expression = expression.replace(placeholder, meaning)
        if "GET" in handlers:
            handlers = {**handlers, "HEAD": handlers["GET"]}
        self.routes.append(Route(pattern, re.compile(expression + r"\Z", re.DOTALL), category, handlers))

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
        for route in self.routes:
            found = route.expression.match(text)
            if found is not None:
                groups = found.groupdict()
                name = unquote_to_bytes((groups.get("name") or "").encode("latin-1")).decode("utf-8", "replace")
                return Match(route.handlers, route.category, name, groups.get("version") or "")
        return None
