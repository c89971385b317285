"""Sample inputs: what versions are tried with."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import Transport

Json = dict[str, Any]


class Samples:
    """The samples of a project's models; with a ``version`` those of that one alone."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._models = f"projects/{project}/models/"

    def get(self, model: str, version: int | str | None = None) -> Json:
        """Return ``samples`` and who stored them; an empty list while there are none."""
        return dict(self._transport.send("GET", self._address(model, version)).json())

    def save(
        self, model: str, samples: list[Json], version: int | str | None = None, *, if_match: str | None = None
    ) -> Json:
        """Replace them; an empty list takes them away.

        ``if_match``: the ETag of what was read; without it what is there now is replaced.

        Raises:
            ApiError: 400 when one is not as it must be, 412 when they were changed meanwhile.
        """
        address = self._address(model, version)
        tag = self._transport.send("GET", address).headers["ETag"] if if_match is None else if_match
        body = {"samples": samples}
        return dict(self._transport.send("PUT", address, json=body, headers={"If-Match": tag}).json())

    def _address(self, model: str, version: int | str | None) -> str:
        return f"{self._models}{model}/" + (f"versions/{version}/samples/" if version is not None else "samples/")
