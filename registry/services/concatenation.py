"""One upload out of several that were sent beside each other (tus concatenation)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db import transaction
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import Conflict, NotFound, ValidationFailed
from registry.models import ModelVersion, Upload, UploadState
from registry.services.digests import Digests
from registry.services.uploads import (
    hold_uploading,
    require_size,
    require_uploader,
    upload_begin,
    upload_received,
)

MAX_PARTS = 1000
_RUNNING = (UploadState.RECEIVING, UploadState.RECEIVED)


def upload_concatenate(
    *, version: ModelVersion, path: str, parts: Sequence[uuid.UUID], promised: Digests, actor: Actor
) -> Upload:
    """Make one received upload out of received parts of the actor's own, in this order. A worker joins the bytes.

    Doing it again with the same parts returns the same upload. ``promised`` is what all bytes hash to; a worker that
    finds something else lets the version fail.

    Raises:
        ValidationFailed: no parts, too many, or one twice.
        NotFound: one is not there, somebody else's, or of another version or path.
        Conflict: one is not received, or belongs to another upload; the path is taken.
        Immutable: the version is not uploading.
        QuotaExceeded: together they are too large.
    """
    if not 1 <= len(parts) <= MAX_PARTS or len(set(parts)) != len(parts):
        message = _("An upload has 1 to %(most)d parts, each once.") % {"most": MAX_PARTS}
        raise ValidationFailed(message, errors=[{"field": "parts", "message": message}])
    owner_id = require_uploader(version, path, actor)
    own = Upload.objects.filter(version=version, path=path, owner_id=owner_id, is_part=True)
    with transaction.atomic():
        hold_uploading(version)
        found = {part.pk: part for part in own.select_for_update().filter(pk__in=parts)}
        if len(found) != len(parts):
            raise NotFound(_("One of the parts does not exist."))
        ordered = [found[one] for one in parts]
        again = ordered[0].whole
        if again is not None and list(again.parts.order_by("position").values_list("pk", flat=True)) == list(parts):
            return again
        if any(part.whole_id is not None for part in ordered):
            raise Conflict(_("One of the parts belongs to another upload."))
        if any(part.state != UploadState.RECEIVED for part in ordered):
            raise Conflict(_("One of the parts is not complete."))
        if own.filter(whole=None, state__in=_RUNNING).exclude(pk__in=parts).exists():
            raise Conflict(_("There are other parts of “%(path)s”; name them too, or end them.") % {"path": path})
        length = sum(part.length for part in ordered)
        require_size(length)  # The project has room: the parts are counted.
        whole = upload_begin(
            version=version, path=path, length=length, promised=promised, actor=actor, owner_id=owner_id
        )
        for position, part in enumerate(ordered):
            part.whole, part.position = whole, position
            part.save(update_fields=["whole", "position"])
        return upload_received(upload_id=whole.pk, from_offset=0)
