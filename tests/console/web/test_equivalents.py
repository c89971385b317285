"""Each form shows its call, and each call that a page shows works when it is pasted into a shell."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urlsplit

from django.db import transaction
from django.test import Client

from tests.console.conftest import Cast
from tests.console.web.conftest import Browse, Served

# A form about the person at the browser alone, and two whose call stands in the answer, with what was typed.
WITHOUT_A_CALL = {"password", "deploy", "try"}
# Calls that need what the reader has: a node, a key.
REFUSED = {
    "measurements: POST measurements/": "not_found",
    "signing: POST signing-keys/": "validation_failed",
}


@dataclass(frozen=True)
class Call:
    """A curl command: its method, path with query, headers and body."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: str


class Page(HTMLParser):
    """Texts of ``pre`` elements, and how many forms of the page itself post something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.commands: list[str] = []
        self.forms = 0
        self._is_code = self._is_main = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "main":
            self._is_main = True
        elif tag == "pre":
            self._is_code = True
            self.commands.append("")
        elif tag == "form" and self._is_main and dict(attrs).get("method") == "post":
            self.forms += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "pre":
            self._is_code = False

    def handle_data(self, data: str) -> None:
        if self._is_code:
            self.commands[-1] += data


def _call(command: str) -> Call:
    lexer = shlex.shlex(command.replace("\\\n", " ").split("\n")[0], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    assert not {"&", ";", "|", "<"} & set(words), f"a shell reads this otherwise: {command}"
    method, body, url = "GET", "", ""
    headers: list[tuple[str, str]] = []
    rest = iter(words[1:])
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-H":
            name, _, value = next(rest).partition(": ")
            headers.append((name, value))
        elif word == "-d":
            body = next(rest)
        elif word == ">":
            break
        elif not word.startswith("-"):
            url = word
    parts = urlsplit(url)
    return Call(method, f"{parts.path}?{parts.query}" if parts.query else parts.path, tuple(headers), body)


def _answers(calls: list[Call], token: str) -> dict[str, str]:
    """Make the calls of a page one after the other, take back what they did, and return the codes of refusals."""
    refused = {}
    with transaction.atomic():
        for call in calls:
            headers = {**dict(call.headers), "Authorization": f"Bearer {token}"}
            kind = headers.pop("Content-Type", "application/octet-stream")
            answer = Client().generic(call.method, call.path, call.body, content_type=kind, headers=headers)
            if answer.status_code >= 400:
                refused[f"{call.method} {call.path}".split("?")[0]] = answer.json()["code"]
        transaction.set_rollback(True)
    return refused


def test_each_form_shows_its_call_and_each_call_works(served: Served, browse: Browse, cast: Cast) -> None:
    client, token = browse("alice"), cast.token("alice")
    # The examples of the API's own pages are about things that are not there.
    paths = {name: path for name, path in served.paths().items() if not name.startswith("api-docs")}
    silent: set[str] = set()
    refused: dict[str, str] = {}
    made: set[tuple[str, str]] = set()
    for name, path in paths.items():
        page = Page(client.get(path).text)
        texts = [text for text in page.commands if "/api/v1/" in text]
        if page.forms and not texts:
            silent.add(name)
        calls = [_call(text) for text in texts if text.startswith("curl -sS ") and text.count("curl ") == 1]
        for call, code in _answers(calls, token).items():
            method, address = call.split(" ")
            refused[f"{name}: {method} {address.rstrip('/').rpartition('/')[2]}{'/' * address.endswith('/')}"] = code
        made |= {(call.method, call.path) for call in calls}
    assert silent == WITHOUT_A_CALL
    assert refused == REFUSED
    assert len(made) > 40


def test_a_new_thing_is_made_only_when_it_is_new(served: Served, browse: Browse) -> None:
    client = browse("alice")
    page = client.get("/p/wren/models/finch/aliases/?name=candidate").text
    assert re.search(r"If-None-Match: \*.*aliases/candidate/", page, re.DOTALL)
    page = client.get("/p/wren/models/finch/aliases/?name=champion").text
    assert re.search(r"If-Match: \*.*aliases/champion/", page, re.DOTALL)
