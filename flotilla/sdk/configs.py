"""Serving configs of models: one method for each thing one does with them."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import Transport

Json = dict[str, Any]


class Configs:
    """The config revisions of a project's models. Number 0 is the newest."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._models = f"projects/{project}/models/"

    def all(self, model: str) -> list[Json]:
        """Return the revisions, newest first."""
        return [*self._transport.pages(f"{self._models}{model}/configs/")]

    def get(self, model: str, number: int = 0) -> Json:
        """Return one, with its text as ``pbtxt``."""
        return self.get_tagged(model, number)[0]

    def get_tagged(self, model: str, number: int = 0) -> tuple[Json, str]:
        """Return one and its ETag, which ``create`` takes as ``if_match``."""
        answer = self._transport.send("GET", f"{self._models}{model}/configs/{number}/")
        return dict(answer.json()), answer.headers["ETag"]

    def create(
        self,
        model: str,
        text: str,
        *,
        kind: str = "pbtxt",
        comment: str = "",
        parent: int | None = None,
        if_match: str = "",
    ) -> Json:
        """Store a text as a revision; the newest one again when nothing changed.

        ``if_match``: the tag of the newest revision as it was read.

        Raises:
            ApiError: 412 when another was stored since, 400 with the fields that the contract refuses.
        """
        body: Json = {"text": text, "format": kind, "comment": comment, "parent": parent}
        headers = {"If-Match": if_match} if if_match else {}
        path = f"{self._models}{model}/configs/"
        return dict(self._transport.send("POST", path, json=body, headers=headers, once=True).json())

    def diff(self, model: str, before: int, after: int = 0) -> str:
        """Return the unified diff of two revisions as config.pbtxt; empty when they are equal."""
        path = f"{self._models}{model}/configs/{after}/diff"
        return str(self._transport.send("GET", path, params={"against": str(before), "as": "text"}).json()["diff"])

    def revert(self, model: str, number: int, *, comment: str = "") -> Json:
        """Store the content of an earlier revision as the next one; the newest again when it has it already."""
        path = f"{self._models}{model}/configs/{number}/revert"
        return dict(self._transport.send("POST", path, json={"comment": comment}, once=True).json())

    def copy(self, source: str, target: str, *, number: int = 0, project: str = "", comment: str = "") -> Json:
        """Store a revision of model ``source`` (of ``project``, if given) as the next revision of model ``target``."""
        body: Json = {"project": project, "model": source, "number": number, "comment": comment}
        path = f"{self._models}{target}/configs/copy"
        return dict(self._transport.send("POST", path, json=body, once=True).json())
