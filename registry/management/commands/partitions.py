"""``manage.py partitions``: make and drop the partitions of the time series."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from registry.services.partitions import partitions_drop, partitions_ensure


class Command(BaseCommand):
    """Print how many partitions were made and dropped."""

    help = "Make the partitions of the coming days and drop what is not kept any more."

    def handle(self, *args: Any, **options: Any) -> None:
        now = timezone.now()
        made, dropped = partitions_ensure(now), partitions_drop(now)
        self.stdout.write(f"{made} made, {dropped} dropped")
