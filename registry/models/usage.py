"""What projects use of their quotas, as a ledger."""

from __future__ import annotations

from django.db import models

from registry.models.accounts import Project


class ProjectUse(models.Model):
    """A change of what a project uses: bytes of files, versions that were neither given up nor refused.

    The sum over a project is what it uses. Triggers on the tables of versions and of their files write the rows in the
    transaction that changes those (migration 0031), so that no writer waits for another one's row. The sweep makes one
    row of many (registry.services.usage).
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    bytes = models.BigIntegerField(default=0)
    versions = models.IntegerField(default=0)
