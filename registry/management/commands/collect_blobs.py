"""``manage.py collect_blobs``: delete content that nobody holds, in the database's rows and in the store itself."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db.models import Count, Sum
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.services import blobs
from registry.storage import PARTS


class Command(BaseCommand):
    """Print how many were deleted, or would be. What is younger than FLOTILLA_BLOB_GRACE_HOURS stays."""

    help = "Delete content that no version holds, and objects of the store that no row knows."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count, with bytes")

    def handle(self, *args: Any, **options: Any) -> None:
        now = timezone.now()
        if options["dry_run"]:
            due = blobs.blobs_due(now).aggregate(count=Count("pk"), size=Sum("size", default=0))
            orphans = [orphan.size for part in range(PARTS) for orphan in blobs.orphans_find(now, part)]
            facts = {"blobs": due["count"], "size": due["size"], "orphans": len(orphans), "more": sum(orphans)}
            text = _("%(blobs)s blobs (%(size)s bytes) and %(orphans)s orphans (%(more)s bytes) would be deleted")
            self.stdout.write(text % facts)
            return
        collected = sum(iter(lambda: blobs.blobs_collect(now), 0))
        swept = 0
        for part in range(PARTS):
            while found := blobs.orphans_collect(now, part):
                swept += found
        facts = {"blobs": collected, "orphans": swept}
        self.stdout.write(_("%(blobs)s blobs and %(orphans)s orphans deleted") % facts)
