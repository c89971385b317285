"""One attempt: resolve, look at the address, connect to that very address, send, read a little of the answer."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

import httpx2
from django.utils.translation import gettext as _

from registry.domain.addresses import Network
from registry.outgoing import Refused, Resolve, checked, resolve
from registry.services.webhook_deliveries import Outcome

# From the look-up of the name to the last byte that is read; shorter than the lease.
ATTEMPT_SECONDS = 15.0
CONNECT_SECONDS = 5.0
MAX_ANSWER_BYTES = 16 * 1024


def send(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    allowed: Sequence[Network] = (),
    resolve: Resolve = resolve,
    trust: ssl.SSLContext | None = None,
) -> Outcome:
    """POST the body and return how it ended; never raises for what a receiver or a network does.

    The name is resolved once, every address that it has is checked, and the connection goes to a checked address: a
    name that points elsewhere a moment later changes nothing. Redirects and proxies are not followed. ``trust`` None:
    what the system trusts.
    """
    begun = time.monotonic()
    try:
        status, answer, retry_after = asyncio.run(_attempt(url, headers, body, allowed, resolve, trust))
    except Refused as error:
        return Outcome(None, time.monotonic() - begun, error=str(error))
    except (TimeoutError, httpx2.TimeoutException):
        text = _("No answer within %(seconds)d s.") % {"seconds": ATTEMPT_SECONDS}
        return Outcome(None, time.monotonic() - begun, error=text)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as error:
        text = _("It cannot be reached: %(reason)s") % {"reason": str(error) or type(error).__name__}
        return Outcome(None, time.monotonic() - begun, error=text)
    seconds = time.monotonic() - begun
    error_text = "" if 200 <= status < 300 else _("It answered %(status)d.") % {"status": status}
    return Outcome(status, seconds, error=error_text, answer=answer, retry_after=_retry_after(retry_after))


async def _attempt(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    allowed: Sequence[Network],
    resolve: Resolve,
    trust: ssl.SSLContext | None,
) -> tuple[int, str, str]:
    async with asyncio.timeout(ATTEMPT_SECONDS):
        address, target = await checked(url, allowed, resolve)
        named = {**headers, "Host": target.netloc.decode()}
        # The connection goes to the address, the certificate is checked against the name.
        extensions = {"sni_hostname": target.raw_host.decode()}
        timeout = httpx2.Timeout(ATTEMPT_SECONDS, connect=CONNECT_SECONDS)
        verify = trust or ssl.create_default_context()
        async with (
            httpx2.AsyncClient(trust_env=False, timeout=timeout, verify=verify) as client,
            client.stream(
                "POST", target.copy_with(host=address), headers=named, content=body, extensions=extensions
            ) as response,
        ):
            answer = await _beginning(response)
            return response.status_code, answer, response.headers.get("retry-after", "")


async def _beginning(response: httpx2.Response) -> str:
    """Return the beginning of the answer as text. A compressed one is not unpacked."""
    parts = bytearray()
    async for part in response.aiter_raw():
        parts += part
        if len(parts) >= MAX_ANSWER_BYTES:
            break
    return bytes(parts[:MAX_ANSWER_BYTES]).decode("utf-8", "replace")


def _retry_after(text: str) -> timedelta | None:
    """Return the wait that a receiver asks for in seconds; dates are not read. Source: RFC 9110 section 10.2.3."""
    return timedelta(seconds=int(text)) if text.isascii() and text.isdigit() and len(text) < 8 else None
