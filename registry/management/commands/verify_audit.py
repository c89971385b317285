"""``manage.py verify_audit``: recompute the hash chains of the audit log."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import gettext as _

from registry.services.audit import chains, verify_chain


class Command(BaseCommand):
    """Print one line a chain; exit with 1 when one does not hold."""

    help = "Verify the audit log's hash chains."

    def handle(self, *args: Any, **options: Any) -> None:
        broken = []
        for chain in chains():
            report = verify_chain(chain)
            verdict = _("ok")
            if not report.ok:
                facts = {"sequence": report.bad_sequence, "problem": report.problem}
                verdict = _("BROKEN at %(sequence)s: %(problem)s") % facts
            line = {"chain": chain, "count": report.checked, "verdict": verdict}
            self.stdout.write(_("%(chain)s: %(count)s events, %(verdict)s") % line)
            if not report.ok:
                broken.append(chain)
        if broken:
            raise CommandError(_("%(count)s of the chains do not hold.") % {"count": len(broken)})
