"""A node's membership of a control plane: joining once, saying hello after each start.

``identity.json`` in the state folder (mode 0600) holds the node's id, its token, the secret of its admin port and
the control plane's URL. Nothing here is waited for by serving: a node whose control plane is down still serves.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import structlog

from serving_node.contract.control import CONTRACT_VERSION
from serving_node.repository.state_files import read_json, write_json

log = structlog.get_logger(__name__)

_FILE = "identity.json"
_TIMEOUT_SECONDS = 10.0
_PAUSE_FIRST_SECONDS = 0.5
_PAUSE_LIMIT_SECONDS = 30.0
_TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


class MembershipError(Exception):
    """The control plane does not take this node, and asking again cannot help. One sentence, without secrets."""


class _NotNowError(Exception):
    """The control plane cannot be asked right now."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this node is. ``node`` and ``node_token`` are empty before it has joined."""

    url: str
    admin_secret: str = field(repr=False)
    node: str = ""
    node_token: str = field(default="", repr=False)


class Membership:
    """Joins the control plane or says hello to it, in the background.

    ``describe`` returns name, endpoints and inventory once the ports are known.
    """

    def __init__(
        self, state_dir: Path, *, url: str, token_file: Path | None, describe: Callable[[], dict[str, Any]]
    ) -> None:
        self._path = state_dir / _FILE
        self._token_file = token_file
        self._describe = describe
        self._identity = self._load(url)

    @property
    def admin_secret(self) -> str:
        """The bearer secret of the admin port; made here before the node has ever joined."""
        return self._identity.admin_secret

    def node(self) -> str:
        """Return the node's id at the control plane, empty before it has joined."""
        return self._identity.node

    def url(self) -> str:
        """Return the control plane's URL."""
        return self._identity.url

    def token(self) -> str:
        """Return the node's token, empty before it has joined."""
        return self._identity.node_token

    async def run(self) -> None:
        """Return when the control plane knows this node and its endpoints; tries for as long as it takes.

        Raises:
            MembershipError: the control plane refuses the node, or the join token cannot be read.
        """
        pause = _PAUSE_FIRST_SECONDS
        async with self._client() as client:
            while True:
                try:
                    if self._identity.node:
                        await self._hello(client)
                    else:
                        await self._join(client)
                    return
                except _NotNowError as error:
                    log.warning(
                        "membership.waiting", url=self._identity.url, reason=str(error), seconds=round(pause, 1)
                    )
                # A little chance, so that a fleet does not come back in step.
                await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311
                pause = min(pause * 2, _PAUSE_LIMIT_SECONDS)

    async def _join(self, client: httpx2.AsyncClient) -> None:
        body = {**self._description(), "token": self._join_token()}
        answer = await self._post(client, f"{self._identity.url}/api/v1/nodes/join/", body, {})
        if answer.status_code >= 300:
            raise MembershipError(f"the control plane refused to let this node join: {_problem(answer)}")
        try:
            document = answer.json()
            node, node_token = str(document["node"]), str(document["node_token"])
        except (ValueError, KeyError, TypeError) as error:
            raise MembershipError("the control plane's answer to joining makes no sense") from error
        self._identity = replace(self._identity, node=node, node_token=node_token)
        await asyncio.to_thread(self._save)
        log.info("membership.joined", node=node, url=self._identity.url)

    async def _hello(self, client: httpx2.AsyncClient) -> None:
        identity = self._identity
        headers = {"Authorization": f"Bearer {identity.node_token}"}
        url = f"{identity.url}/api/v1/nodes/{identity.node}/hello/"
        answer = await self._post(client, url, self._description(), headers)
        if answer.status_code >= 300:
            raise MembershipError(f"the control plane does not know this node any more: {_problem(answer)}")
        log.info("membership.known", node=identity.node, url=identity.url)

    async def _post(
        self, client: httpx2.AsyncClient, url: str, body: dict[str, Any], headers: dict[str, str]
    ) -> httpx2.Response:
        try:
            answer = await client.post(url, json=body, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _NotNowError(f"cannot be reached: {error or type(error).__name__}") from error
        if answer.status_code in _TRANSIENT_STATUS:
            raise _NotNowError(f"answered {answer.status_code}")
        return answer

    def _client(self) -> httpx2.AsyncClient:
        # Loading the certificate bundle takes tens of milliseconds; plain http needs none.
        verify = self._identity.url.startswith("https:")
        return httpx2.AsyncClient(verify=verify, timeout=_TIMEOUT_SECONDS, trust_env=False, follow_redirects=False)

    def _description(self) -> dict[str, Any]:
        return {
            **self._describe(),
            "admin_secret": self._identity.admin_secret,
            "contract_version": CONTRACT_VERSION,
        }

    def _join_token(self) -> str:
        if self._token_file is None:
            raise MembershipError("this node has not joined yet: give --join-token-file")
        try:
            return self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise MembershipError(f"cannot read the join token from {self._token_file}: {error}") from error

    def _load(self, url: str) -> Identity:
        document = read_json(self._path)
        known = document if isinstance(document, dict) and document.get("admin_secret") else {}
        identity = Identity(
            url=(url or str(known.get("url", ""))).rstrip("/"),
            admin_secret=str(known.get("admin_secret") or secrets.token_urlsafe(32)),
            node=str(known.get("node", "")),
            node_token=str(known.get("node_token", "")),
        )
        if not identity.url:
            raise MembershipError("this node has not joined yet: give --join URL and --join-token-file")
        self._identity = identity
        self._save()
        return identity

    def _save(self) -> None:
        identity = self._identity
        document = {
            "node": identity.node,
            "node_token": identity.node_token,
            "admin_secret": identity.admin_secret,
            "url": identity.url,
        }
        write_json(self._path, document)


def _problem(answer: httpx2.Response) -> str:
    """Return what a refusal says, as one short line."""
    try:
        document = answer.json()
        text = str(document.get("detail") or document.get("title") or document)
    except (ValueError, AttributeError):
        text = answer.text
    return f"{answer.status_code} {' '.join(text.split())[:300]}"
