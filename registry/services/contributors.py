"""Who added content to a version: whoever did does not approve it (``registry.selectors.approvals``)."""

from __future__ import annotations

from registry.domain.actors import Actor
from registry.models import ModelVersion


def contribution_note(version: ModelVersion, actor: Actor) -> None:
    """Note that somebody adds content to a version; nothing for its author with the token that made it.

    Concurrency: in a transaction that holds the version's row.
    """
    if actor.user_id is None or (actor.user_id, actor.token_id) == (version.author_id, version.author_token_id):
        return
    rows = ModelVersion.objects.filter(pk=version.pk)
    known = rows.values_list("contributors", flat=True).get()
    one = [str(actor.user_id), str(actor.token_id) if actor.token_id is not None else None]
    if one not in known:
        rows.update(contributors=[*known, one])
