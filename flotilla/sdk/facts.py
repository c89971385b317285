"""What is known of versions: where they come from, how good they are, and how two of them differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from flotilla.sdk.transport import Transport

Json = dict[str, Any]


class Facts:
    """Facts about the versions of a project's models; a version is a number, an alias or an id."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._models = f"projects/{project}/models/"

    def annotate(
        self,
        model: str,
        version: int | str,
        *,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
        without_metrics: Collection[str] = (),
        without_metadata: Collection[str] = (),
    ) -> Json:
        """Set metrics and metadata by name, take others away, and return the version; what is not named stays.

        Of two who do so at once one is refused (412), so that no figure is lost.
        """
        address = self._address(model, version)
        answer = self._transport.send("GET", address)
        now, body = dict(answer.json()), Json()
        for name, given, without in (
            ("metrics", metrics or {}, without_metrics),
            ("metadata", metadata or {}, without_metadata),
        ):
            if given or without:
                kept = {key: value for key, value in now[name].items() if key not in without}
                body[name] = {**kept, **given}
        if not body:
            return now
        headers = {"If-Match": answer.headers["ETag"]}
        return dict(self._transport.send("PATCH", address, json=body, headers=headers).json())

    def ranking(self, model: str, metric: str, *, lowest_first: bool = False) -> list[Json]:
        """Return the versions that have the metric, best first, with its ``value``; at most 100."""
        params = {"metric": metric, "order": "lowest" if lowest_first else "highest"}
        found = self._transport.send("GET", f"{self._models}{model}/ranking", params=params).json()
        return list(found["results"])

    def lineage(self, model: str, version: int | str) -> Json:
        """Return ``ancestors``, nearest first, and ``children``, newest first."""
        return dict(self._transport.send("GET", f"{self._address(model, version)}lineage").json())

    def compare(self, model: str, before: int | str, after: int | str) -> Json:
        """Return what differs between two versions of a model: metrics, signature, files, source, checks..."""
        path = f"{self._address(model, after)}compare"
        return dict(self._transport.send("GET", path, params={"against": str(before)}).json())

    def move(self, model: str, version: int | str, verb: str, *, reason: str = "") -> Json:
        """Move a version to another state (``archive``, ``restore``, ``quarantine``, ``abandon``) and return it."""
        address = self._address(model, version)
        seen = self._transport.send("GET", address).headers["ETag"]
        body = {"reason": reason}
        return dict(self._transport.send("POST", f"{address}{verb}", json=body, headers={"If-Match": seen}).json())

    def _address(self, model: str, version: int | str) -> str:
        return f"{self._models}{model}/versions/{version}/"
