"""What every address of the API does alike: who calls, what the token allows, replays, pages, sparse fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import DatabaseError, transaction
from django.db.models import QuerySet
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from console.api.dry_run import is_dry_run, undone
from console.api.etag import require_precondition, tagged
from console.api.idempotency import HEADER as IDEMPOTENCY_KEY
from console.api.idempotency import Replay
from console.api.json_types import validated
from console.api.pagination import Listing, chosen_fields, narrowed, paginate, refuse_unknown
from console.identity.actors import actor_of
from console.identity.rates import CallerThrottle, Rate
from console.identity.reauthentication import is_recent
from registry.domain.actors import Actor
from registry.errors import PermissionDenied, ReauthenticationRequired
from registry.models import Project, RegisteredModel
from registry.selectors import accounts, models

SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


class _Replayed(Exception):
    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class AlwaysJson(BaseContentNegotiation):
    """Answers JSON whatever the Accept header says: a node that asks for octets still understands a problem."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """Return the parser for the body's content type, None (415) when there is none."""
        return DefaultContentNegotiation().select_parser(request, parsers)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        """Return the first renderer."""
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """Base of all views: signed-in people and tokens with the scope; nodes are refused.

    ``write_scope`` is what a token needs for unsafe methods; ``keeps_answers`` False keeps answers with secrets out
    of the store of idempotent answers; ``needs_match`` False lets changes pass without If-Match. ``asks_again``: the
    session of a browser must have shown a short while ago who is there; tokens are made for just that.

    ``listing`` is what GET of a list takes, ``queries`` what GET of anything else takes; other parameters are refused.
    ``checks_match`` tells the description that POST looks at If-Match. ``rate`` is the kind of call that is counted
    (console.identity.rates), else ``read`` or ``write``.
    """

    write_scope: ClassVar[str] = "write"
    keeps_answers: ClassVar[bool] = True
    needs_match: ClassVar[bool] = True
    asks_again: ClassVar[bool] = False
    checks_match: ClassVar[bool] = False
    listing: ClassVar[Listing | None] = None
    queries: ClassVar[tuple[str, ...]] = ()
    rate: ClassVar[str] = ""
    throttle_classes = [CallerThrottle]
    content_negotiation_class = AlwaysJson
    _held: ExitStack | None = None
    _replay: Replay | None = None

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer; with the header ``Flotilla-Dry-Run: true`` undo every write before the answer leaves."""
        if request.method in SAFE_METHODS:
            return super().dispatch(request, *args, **kwargs)
        if is_dry_run(request):
            return undone(lambda: super(ApiView, self).dispatch(request, *args, **kwargs))
        if self.keeps_answers and IDEMPOTENCY_KEY in request.headers:
            return self._once(lambda: super(ApiView, self).dispatch(request, *args, **kwargs))
        return super().dispatch(request, *args, **kwargs)

    def _once(self, answer: Callable[[], Any]) -> Any:
        """Return the answer; what was done and that it was answered so are committed together, at the end."""
        try:
            with ExitStack() as self._held:
                return answer()
        except DatabaseError as error:  # found only when it was committed
            return super().finalize_response(self.request, self.handle_exception(error))

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse callers without identity or scope, then answer repeated writes from the store."""
        super().initial(request, *args, **kwargs)
        if int(request.META.get("CONTENT_LENGTH") or 0) > (settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0):
            raise RequestDataTooBig
        scope = "read" if request.method in SAFE_METHODS else self.write_scope
        if not self.actor.has_scope(scope):
            raise PermissionDenied(_("The token needs the scope %(scope)s for this.") % {"scope": scope})
        if self.asks_again and request.auth is None and scope != "read" and not is_recent(request._request):
            raise ReauthenticationRequired(_("Confirm in the console who you are, then try again."))
        if request.method == "GET":
            refuse_unknown(request, self.queries if self.listing is None else self.listing.names())
        if self.needs_match:
            require_precondition(request)
        if self._held is not None:
            # Not before: who calls is noted by itself, and nobody should wait for that until the write is done.
            self._held.enter_context(transaction.atomic())
            self._replay = Replay(request, str(self.actor.token_id or self.actor.user_id))
            if self._replay.earlier is not None:
                raise _Replayed(self._replay.earlier)

    def handle_exception(self, exc: Exception) -> Response:
        """Return the stored answer of a replay, else the problem document."""
        if isinstance(exc, _Replayed):
            return exc.response
        return super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Give what is read its ETag; keep the answer for a repeated request; never let intermediaries keep it."""
        is_document = request.method == "GET" and isinstance(response, Response) and response.status_code == 200
        if is_document and "ETag" not in response.headers:
            response = tagged(request, response.data)
        if self._replay is not None:
            self._replay.keep(response)
            if response.status_code >= 500:
                transaction.set_rollback(True)
        response.headers.setdefault("Cache-Control", "no-store")
        rate: Rate | None = getattr(request._request, "rate", None)
        for name, value in rate.headers().items() if rate is not None else ():
            response.headers[name] = value
        return super().finalize_response(request, response, *args, **kwargs)

    @cached_property
    def actor(self) -> Actor:
        """Return who calls. Raises NotAuthenticated for nobody and for nodes."""
        return actor_of(self.request)

    @cached_property
    def project(self) -> Project:
        """Return the project of the address. Raises NotFound for those who are not members."""
        return accounts.project_get(self.actor, self.kwargs["project"])

    @cached_property
    def model(self) -> RegisteredModel:
        """Return the registered model of the address. Raises NotFound for those who are not members."""
        return models.model_get(self.actor, self.kwargs["project"], self.kwargs["model"])

    def read(self, serializer: type[BaseSerializer[Any]]) -> dict[str, Any]:
        """Return the validated body. Raises ValidationError with the fields, those that nobody knows too."""
        given = serializer(data=self.request.data)
        if isinstance(self.request.data, dict):
            unknown = sorted(set(self.request.data) - set(getattr(given, "fields", self.request.data)))
            if unknown:
                raise ValidationError({name[:100]: [_("There is no such field.")] for name in unknown})
        return validated(given)

    def narrowed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows that the filters of the address keep. Raises ValidationFailed for a bad value."""
        return narrowed(self.request, rows, self.listing or Listing())

    def page(
        self,
        rows: QuerySet[Any],
        serializer: type[BaseSerializer[Any]],
        shown: Callable[[list[Any]], Sequence[Any]] = list,
    ) -> Response:
        """Return one page of what ``listing`` allows; ``shown`` makes of its rows what the serializer takes.

        ``?<filter>=a,b`` keeps rows with one of the values, ``?<time>__gte=`` and ``__lt=`` those of a range,
        ``?ordering=-created_at,name`` orders, ``?fields=a,b`` keeps only those fields. Raises ValidationFailed for
        what is none of these.
        """
        wanted = chosen_fields(self.request, lambda: getattr(serializer(), "fields", ()))
        found = paginate(self.request, self.narrowed(rows), self.listing or Listing())
        documents = serializer(shown(found.rows), many=True, context={"request": self.request}).data
        if wanted is not None:
            documents = [{key: value for key, value in row.items() if key in wanted} for row in documents]
        return Response({"next": found.next, "previous": found.previous, "results": documents})


def accepted(operation_id: Any, document: dict[str, Any]) -> Response:
    """Return 202 with the address of the operation to follow."""
    return Response(document, status=202, headers={"Location": f"/api/v1/operations/{operation_id}/"})
