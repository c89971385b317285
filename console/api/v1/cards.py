"""Model cards: the newest revision, and those before it."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.cards import (
    CardDiffSerializer,
    CardRevisionSerializer,
    CardSerializer,
    CardWrite,
    DiffLineSerializer,
)
from console.api.views import ApiView
from registry.domain.text_diff import text_diff
from registry.errors import ValidationFailed
from registry.models import ModelCard, RegisteredModel
from registry.selectors import cards as selectors
from registry.selectors.aliases import version_named
from registry.services import cards as services


class CardItem(ApiView):
    """The card of a model, as Markdown and as safe HTML."""

    @extend_schema(summary="Read a model's card", responses=CardSerializer)
    def get(self, request: Request, project: str, model: str) -> Response:
        return tagged(request, _document(selectors.card_get(self.model)))

    @extend_schema(
        summary="Store a model's card",
        description="A new revision; the same text again changes nothing. The first one comes with If-None-Match: *.",
        request=CardWrite,
        responses={200: CardSerializer, 201: CardSerializer},
    )
    def put(self, request: Request, project: str, model: str) -> Response:
        given = self.read(CardWrite)
        named = given.pop("version")
        version = version_named(self.model, named) if named is not None else None
        with matched(request, self.model, _newest) as row:
            before = selectors.card_latest(row)
            card = services.card_save(model=row, **given, version=version, actor=self.actor)
        answer = tagged(request, _document(selectors.card_get(self.model, card.number)))
        answer.status_code = 201 if before is None else 200
        return answer


class CardRevisionList(ApiView):
    """All revisions of a card."""

    listing = Listing(("number",), orderings=("number", "created_at"))

    @extend_schema(summary="List revisions of a card", responses=paged(CardRevisionSerializer))
    def get(self, request: Request, project: str, model: str) -> Response:
        return self.page(selectors.cards_of(self.model), CardRevisionSerializer)


class CardRevisionItem(ApiView):
    """One revision of a card."""

    @extend_schema(summary="Read a revision of a card", responses=CardSerializer)
    def get(self, request: Request, project: str, model: str, number: int) -> Response:
        return tagged(request, _document(selectors.card_get(self.model, number)))


class CardDiff(ApiView):
    """What differs between two revisions of a card."""

    queries = ("against",)

    @extend_schema(
        summary="Compare revisions of a card",
        parameters=[OpenApiParameter("against", int, required=True)],
        responses=CardDiffSerializer,
    )
    def get(self, request: Request, project: str, model: str, number: int) -> Response:
        against = request.query_params.get("against", "")
        if not against.isascii() or not against.isdigit() or len(against) > 9:
            message = _("Name the other revision by its number.")
            raise ValidationFailed(message, errors=[{"field": "against", "message": message}])
        before, after = selectors.card_get(self.model, int(against)), selectors.card_get(self.model, number)
        lines = DiffLineSerializer(text_diff(before.text, after.text), many=True).data
        return Response({"before": before.number, "after": after.number, "lines": lines})


def _document(card: ModelCard) -> dict[str, Any]:
    return dict(CardSerializer(card).data)


def _newest(model: RegisteredModel) -> dict[str, Any] | None:
    card = selectors.card_latest(model)
    return _document(card) if card is not None else None
