"""How many event streams a process holds open, and of whom."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator

from django.utils.translation import gettext as _

from registry.domain.actors import Actor

RETRY_SECONDS = 15
# An account with many keys takes no more than this part of a process.
_PART_OF_ONE_ACCOUNT = 4


class NoPlace(Exception):
    """There is no room for one more stream. ``status`` is 429 for a caller who has too many, 503 when all are taken."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = [(b"retry-after", b"%d" % RETRY_SECONDS)]


class Places:
    """Counts open streams: of a caller (a key, or a person's sessions together), of an account, of the process.

    Concurrency: on the event loop.
    """

    def __init__(self, most: int, most_of_caller: int) -> None:
        self._most = most
        self._most_of_caller = most_of_caller
        self._most_of_account = max(most_of_caller, most // _PART_OF_ONE_ACCOUNT)
        self._callers: Counter[uuid.UUID | None] = Counter()
        self._accounts: Counter[uuid.UUID | None] = Counter()

    @contextlib.contextmanager
    def taken(self, actor: Actor) -> Iterator[None]:
        """Hold a place while a stream is open.

        Raises:
            NoPlace: there is none.
        """
        caller = actor.token_id or actor.user_id
        if self._callers[caller] >= self._most_of_caller or self._accounts[actor.user_id] >= self._most_of_account:
            raise NoPlace(429, _("You have too many open event streams; close some, or come back a little later."))
        if self._accounts.total() >= self._most:
            raise NoPlace(503, _("The server has no room for another event stream; come back a little later."))
        self._callers[caller] += 1
        self._accounts[actor.user_id] += 1
        try:
            yield
        finally:
            for counter, key in ((self._callers, caller), (self._accounts, actor.user_id)):
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]
