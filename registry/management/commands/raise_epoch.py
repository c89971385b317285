"""``manage.py raise_epoch``: make nodes accept the generations of a database that was restored."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from registry.domain.actors import Actor
from registry.models import NodeState, ServingNode
from registry.services.node_life import node_epoch_raise


class Command(BaseCommand):
    """Raise the epoch of the named nodes, or of all that are not retired."""

    help = "After restoring an older database: restart the count of generations on nodes."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", help="Nodes; all when none is named.")

    def handle(self, *args: Any, **options: Any) -> None:
        nodes = ServingNode.objects.exclude(state=NodeState.RETIRED).order_by("name")
        if options["names"]:
            nodes = nodes.filter(name__in=options["names"])
        for node in nodes:
            node_epoch_raise(node=node, actor=Actor.system("command line"))
            self.stdout.write(f"{node.name}: epoch {node.epoch}")
