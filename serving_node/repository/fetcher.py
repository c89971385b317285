"""Blobs from the control plane: ranged, resumable, bounded in time, verified by the blob store.

Blocking on purpose: one fetch runs in one worker thread, so that neither sockets nor hashing touch the loop.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx2

from serving_node.repository.blob_store import BlobError, BlobStore

_MAX_REDIRECTS = 5
_LOOK_SECONDS = 0.2
_REDIRECTS = (301, 302, 303, 307, 308)
# The control plane answers these when trying again later may help.
_TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

# Other transient errors (a full disk) do not pass within seconds: those wait for the next round of convergence.
_WORTH_ANOTHER_ATTEMPT = frozenset({"unreachable", "digest_mismatch"})

Progress = Callable[[int], None]


class FetchError(Exception):
    """A blob could not be fetched. ``transient`` tells whether trying again later may help."""

    def __init__(self, code: str, message: str, *, transient: bool) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.transient = transient


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """How patient one fetch is. Units: seconds. A deadline of a blob grows with its size by ``bytes_per_second``."""

    attempts: int = 4
    backoff_seconds: float = 0.25
    backoff_limit_seconds: float = 5.0
    connect_timeout_seconds: float = 5.0
    stall_timeout_seconds: float = 10.0
    deadline_seconds: float = 120.0
    bytes_per_second: int = 1 << 20


class BlobFetcher:
    """Fetches blobs of one control plane into a store.

    ``base_url`` and ``token`` are functions, since both are known only after the node has joined.
    """

    def __init__(
        self,
        store: BlobStore,
        *,
        base_url: Callable[[], str],
        token: Callable[[], str],
        policy: FetchPolicy | None = None,
    ) -> None:
        self._store = store
        self._base_url = base_url
        self._token = token
        self._policy = policy or FetchPolicy()
        timeouts = httpx2.Timeout(self._policy.stall_timeout_seconds, connect=self._policy.connect_timeout_seconds)
        # One for each blob ever fetched by this process: small, and few compared with the blobs themselves.
        self._locks: dict[str, threading.Lock] = {}
        self._client = httpx2.Client(timeout=timeouts, follow_redirects=False, trust_env=False)

    def close(self) -> None:
        """Close kept connections. Fetches that still run fail."""
        self._client.close()

    def fetch(self, sha256: str, size: int, *, progress: Progress, cancelled: threading.Event) -> None:
        """Return when the blob is in the store and verified. ``progress`` gets the bytes of this blob that are here.

        Raises:
            FetchError: with a code of ours: unreachable, refused, not_found, digest_mismatch, disk_full, disk_quota,
                cancelled, deadline.
        """
        # Two units may share a file: only one fetch may write it, the other finds it there.
        lock = self._locks.setdefault(sha256, threading.Lock())
        while not lock.acquire(timeout=_LOOK_SECONDS):
            if cancelled.is_set():
                raise FetchError("cancelled", "no longer wanted", transient=True)
        try:
            if self._store.has(sha256):
                progress(size)
            else:
                self._fetch(sha256, size, progress, cancelled)
        finally:
            lock.release()

    def _fetch(self, sha256: str, size: int, progress: Progress, cancelled: threading.Event) -> None:
        policy = self._policy
        deadline = time.monotonic() + policy.deadline_seconds + size / policy.bytes_per_second
        pause = policy.backoff_seconds
        for attempt in range(1, policy.attempts + 1):
            try:
                self._attempt(sha256, size, progress, cancelled, deadline)
                return
            except FetchError as error:
                if error.code == "digest_mismatch" and attempt == policy.attempts:
                    raise FetchError(error.code, error.message, transient=False) from error
                hopeless = not error.transient or error.code not in _WORTH_ANOTHER_ATTEMPT
                if hopeless or attempt == policy.attempts or time.monotonic() + pause > deadline:
                    raise
            if cancelled.wait(pause):
                raise FetchError("cancelled", "no longer wanted", transient=True)
            pause = min(pause * 2, policy.backoff_limit_seconds)

    def _attempt(self, sha256: str, size: int, progress: Progress, cancelled: threading.Event, deadline: float) -> None:
        part = self._store.partial_path(sha256)
        try:
            have = part.stat().st_size if part.exists() else 0
            if have > size:
                part.unlink()
                have = 0
            self._store.reserve(sha256, size)
            if have < size or not part.exists():
                self._download(sha256, size, part, have, progress, cancelled, deadline)
            self._store.commit(sha256, size)
        except BlobError as error:
            # A wrong body may be a proxy's fault of the moment; the download starts from nothing the next time.
            raise FetchError(error.code, error.message, transient=True) from error
        except FetchError as error:
            if error.code == "digest_mismatch":
                part.unlink(missing_ok=True)
            raise
        except httpx2.TransportError as error:
            text = f"cannot fetch blob {sha256[:12]} from {self._base_url()}: {error or type(error).__name__}"
            raise FetchError("unreachable", text, transient=True) from error
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if full:
                part.unlink(missing_ok=True)
            code, what = ("disk_full", "the disk is full") if full else ("disk_error", error.strerror or str(error))
            raise FetchError(code, f"cannot store blob {sha256[:12]}: {what}", transient=True) from error
        finally:
            self._store.release(sha256)
        progress(size)

    def _download(
        self,
        sha256: str,
        size: int,
        part: Path,
        have: int,
        progress: Progress,
        cancelled: threading.Event,
        deadline: float,
    ) -> None:
        """Append to ``part`` what is missing of it."""
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self._open(f"{self._base_url().rstrip('/')}/api/v1/blobs/{sha256}", headers) as response:
            self._check(response, sha256)
            resumed = response.status_code == 206 and _range_start(response) == have
            if not resumed:
                have = 0
            with part.open("ab" if resumed else "wb") as target:
                # Pieces as they come: gathering them to a fixed size would lose the last ones when a connection breaks.
                for chunk in response.iter_raw():
                    have += len(chunk)
                    if have > size:
                        part.unlink(missing_ok=True)
                        raise FetchError(
                            "digest_mismatch", f"blob {sha256} is longer than {size} bytes", transient=True
                        )
                    target.write(chunk)
                    target.flush()  # a killed node goes on from here
                    progress(have)
                    if cancelled.is_set():
                        raise FetchError("cancelled", "no longer wanted", transient=True)
                    if time.monotonic() > deadline:
                        raise FetchError("deadline", f"blob {sha256[:12]} did not arrive in time", transient=True)
        if have < size:
            raise FetchError("unreachable", f"blob {sha256[:12]} ended after {have} of {size} bytes", transient=True)

    def _open(self, url: str, headers: dict[str, str]) -> _Stream:
        return _Stream(self._client, url, headers, self._token())

    @staticmethod
    def _check(response: httpx2.Response, sha256: str) -> None:
        status = response.status_code
        if status in (200, 206):
            return
        if status == 416:
            # What is here does not fit the blob: only a fresh start can help.
            raise FetchError("digest_mismatch", f"blob {sha256} cannot be resumed", transient=True)
        code = {404: "not_found", 401: "refused", 403: "refused"}.get(status, "unreachable")
        text = f"the control plane answered {status} for blob {sha256[:12]}"
        raise FetchError(code, text, transient=status in _TRANSIENT_STATUS)


class _Stream:
    """An open GET that has followed redirects; the identity never travels to another origin."""

    def __init__(self, client: httpx2.Client, url: str, headers: dict[str, str], token: str) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._token = token
        self._response: httpx2.Response | None = None

    def __enter__(self) -> httpx2.Response:
        home = _origin(self._url)
        url = self._url
        for _ in range(_MAX_REDIRECTS + 1):
            headers = dict(self._headers, **{"Accept-Encoding": "identity"})
            if _origin(url) == home:
                headers["Authorization"] = f"Bearer {self._token}"
            request = self._client.build_request("GET", url, headers=headers)
            response = self._client.send(request, stream=True)
            if response.status_code not in _REDIRECTS or "location" not in response.headers:
                self._response = response
                return response
            response.close()
            url = urljoin(url, response.headers["location"])
            if urlsplit(url).scheme not in ("http", "https"):
                break
        raise FetchError("refused", "too many or unusable redirects from the control plane", transient=False)

    def __exit__(self, *_: object) -> None:
        if self._response is not None:
            self._response.close()


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or default


def _range_start(response: httpx2.Response) -> int:
    """Return the first byte that a 206 carries, -1 when it does not say."""
    value = response.headers.get("content-range", "")
    start = value.removeprefix("bytes ").split("-", 1)[0]
    return int(start) if start.isascii() and start.isdigit() else -1
