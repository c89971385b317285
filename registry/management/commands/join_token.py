"""``manage.py join_token``: a one-time token for a node of this machine's operator."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import RegistryError
from registry.services.fleet import join_token_create


class Command(BaseCommand):
    """Print a join token and nothing else."""

    help = "Print a one-time token with which a node joins."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--labels", default="", help="development=yes,zone=a")
        parser.add_argument("--valid-hours", type=int, default=24)

    def handle(self, *args: Any, **options: Any) -> None:
        labels = {}
        for pair in filter(None, options["labels"].split(",")):
            key, equals, value = pair.partition("=")
            if not equals:
                raise CommandError(_("--labels takes pairs like development=yes, not “%(pair)s”.") % {"pair": pair})
            labels[key.strip()] = value.strip()
        try:
            _token, text = join_token_create(
                labels=labels, valid_hours=options["valid_hours"], actor=Actor.system("command line")
            )
        except RegistryError as error:
            raise CommandError(error.message) from None
        self.stdout.write(text)
