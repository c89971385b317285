"""Calls to addresses that somebody chose: the name is resolved once, looked at, and only what was looked at is called.

A name that points elsewhere a moment later changes nothing. Redirects and proxies are not followed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx2
import orjson
from django.utils.translation import gettext as _

from registry.domain.addresses import Network, is_in, is_public, parse_address, private_sentence, url_problem

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class Refused(Exception):
    """The address may not be called, or its answer is not acceptable; the message says why."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, the preferred one first. Raises OSError when it has none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for _family, _type, _protocol, _name, address in found))


async def checked(url: str, allowed: Sequence[Network], resolve: Resolve = resolve) -> tuple[str, httpx2.URL]:
    """Return an address that may be called, and the parsed URL.

    Raises:
        Refused: the URL or one of the addresses of its host is not acceptable.
    """
    problem = url_problem(url, allowed)
    if problem:
        raise Refused(problem)
    target = httpx2.URL(url)
    host = target.raw_host.decode()
    addresses = await resolve(host, target.port or (443 if target.scheme == "https" else 80))
    if not addresses:
        raise Refused(_("%(host)s has no address.") % {"host": host})
    for text in addresses:
        address = parse_address(text)
        private = address is not None and is_in(address, allowed)
        # Of a name with a public and a private address the caller would not decide which one is called.
        if address is None or not (private or is_public(address)):
            raise Refused(private_sentence(host))
        if target.scheme == "http" and not private:
            raise Refused(_("Only https: what is sent would be readable on its way."))
    return addresses[0], target


def get_json(
    url: str,
    *,
    allowed: Sequence[Network],
    seconds: float,
    max_bytes: int,
    resolve: Resolve = resolve,
    trust: ssl.SSLContext | None = None,
) -> Any:
    """GET a JSON document of bounded size within a deadline. ``trust`` None: what the system trusts.

    Raises:
        Refused: it may not be called, cannot be reached in time, or answers something else.
    """
    try:
        return asyncio.run(_get_json(url, allowed, seconds, max_bytes, resolve, trust))
    except (TimeoutError, httpx2.TimeoutException):
        raise Refused(_("%(url)s gave no answer within %(seconds)d s.") % {"url": url, "seconds": seconds}) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as error:
        reason = str(error) or type(error).__name__
        raise Refused(_("%(url)s cannot be reached: %(reason)s") % {"url": url, "reason": reason}) from None
    except orjson.JSONDecodeError:
        raise Refused(_("%(url)s does not answer JSON.") % {"url": url}) from None


async def _get_json(
    url: str,
    allowed: Sequence[Network],
    seconds: float,
    max_bytes: int,
    resolve: Resolve,
    trust: ssl.SSLContext | None,
) -> Any:
    async with asyncio.timeout(seconds):
        address, target = await checked(url, allowed, resolve)
        headers = {"Host": target.netloc.decode(), "Accept": "application/json", "Accept-Encoding": "identity"}
        # The connection goes to the address, the certificate is checked against the name.
        extensions = {"sni_hostname": target.raw_host.decode()}
        verify = trust or ssl.create_default_context()
        async with (
            httpx2.AsyncClient(trust_env=False, timeout=seconds, verify=verify) as client,
            client.stream("GET", target.copy_with(host=address), headers=headers, extensions=extensions) as response,
        ):
            if response.status_code != 200:
                raise Refused(_("%(url)s answered %(status)d.") % {"url": url, "status": response.status_code})
            body = bytearray()
            async for part in response.aiter_raw():
                body += part
                if len(body) > max_bytes:
                    limit = {"url": url, "limit": max_bytes}
                    raise Refused(_("%(url)s answers more than %(limit)d bytes.") % limit)
            return orjson.loads(body)
