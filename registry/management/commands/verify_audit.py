"""``manage.py verify_audit``: recompute the hash chains of the audit log."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from registry.services.audit import chains, verify_chain


class Command(BaseCommand):
    """Print one line a chain; exit with 1 when one does not hold."""

    help = "Verify the audit log's hash chains."

    def handle(self, *args: Any, **options: Any) -> None:
        broken = []
        for chain in chains():
            report = verify_chain(chain)
            verdict = "ok" if report.ok else f"BROKEN at {report.bad_sequence}: {report.problem}"
            self.stdout.write(f"{chain}: {report.checked} events, {verdict}")
            if not report.ok:
                broken.append(chain)
        if broken:
            raise CommandError(f"{len(broken)} of the chains do not hold.")
