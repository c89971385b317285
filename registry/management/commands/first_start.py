"""``manage.py first_start``: fill an empty database."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from registry.services.accounts import first_start
from registry.services.partitions import partitions_ensure


class Command(BaseCommand):
    """Print ``{"username", "password"}``; the password is null when the database was filled before."""

    help = "Make the first administrator, project, environments and fleets, once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--username", default="admin")

    def handle(self, *args: Any, **options: Any) -> None:
        partitions_ensure(timezone.now())
        password = first_start(options["username"])
        self.stdout.write(json.dumps({"username": options["username"], "password": password}))
