"""Model cards: one method for each thing one does with them."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]


class Cards:
    """The cards of a project's models, in Markdown. Number 0 is the newest revision."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._models = f"projects/{project}/models/"

    def get(self, model: str, number: int = 0) -> Json:
        """Return a revision, with its ``text``.

        Raises:
            ApiError: 404 when the model has no card, or none of that number.
        """
        return dict(self._transport.send("GET", self._address(model, number)).json())

    def get_tagged(self, model: str) -> tuple[Json | None, str]:
        """Return the card and its ETag, which ``save`` takes as ``if_match``; None and "" while there is none.

        Raises:
            ApiError: 404 when there is no such model.
        """
        try:
            answer = self._transport.send("GET", self._address(model))
        except ApiError as error:
            if error.status != 404:
                raise
            self._transport.send("GET", f"{self._models}{model}/")
            return None, ""
        return dict(answer.json()), answer.headers["ETag"]

    def history(self, model: str) -> list[Json]:
        """Return the revisions without their texts, newest first."""
        return [*self._transport.pages(f"{self._models}{model}/card/revisions/")]

    def save(
        self, model: str, text: str, *, comment: str = "", version: int | str | None = None, if_match: str | None = None
    ) -> Json:
        """Store a text as the card; the newest revision again when it is the same.

        ``version`` is the one whose README it is. ``if_match``: the tag of the card as it was read, "" when there was
        none; without it the card as it is now is replaced.

        Raises:
            ApiError: 412 when another text was stored since.
        """
        seen = self.get_tagged(model)[1] if if_match is None else if_match
        headers = {"If-Match": seen} if seen else {"If-None-Match": "*"}
        body: Json = {"text": text, "comment": comment, "version": version}
        return dict(self._transport.send("PUT", self._address(model), json=body, headers=headers).json())

    def diff(self, model: str, before: int, after: int) -> Json:
        """Return what differs between two revisions: ``lines`` with ``kind`` and ``text``."""
        path = f"{self._address(model, after)}diff"
        return dict(self._transport.send("GET", path, params={"against": str(before)}).json())

    def _address(self, model: str, number: int = 0) -> str:
        base = f"{self._models}{model}/card/"
        return f"{base}revisions/{number}/" if number else base
