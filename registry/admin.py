"""The plain Django admin, for staff in an emergency: everything is read-only except accounts.

Changes belong in the console, where services check permissions and write the audit log.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.db.models import Model

from registry import models


class ReadOnly(admin.ModelAdmin[Model]):
    """Shows rows and changes nothing."""

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False


class AccountAdmin(UserAdmin[models.User]):
    """Accounts with their site role."""

    list_display = ("username", "site_role", "is_service", "is_active", "is_superuser")
    fieldsets = (*(UserAdmin.fieldsets or ()), ("Flotilla", {"fields": ("site_role", "is_service")}))


class SecretTokenAdmin(ReadOnly):
    """Tokens without the digests of their secrets."""

    exclude = ("secret_sha256", "token_sha256", "admin_secret_sealed")


admin.site.register(models.User, AccountAdmin)
for _model in (models.ApiToken, models.JoinToken, models.ServingNode):
    admin.site.register(_model, SecretTokenAdmin)
for _other in (
    models.ApprovalRequest,
    models.AuditEvent,
    models.Blob,
    models.Check,
    models.ConfigRevision,
    models.Deployment,
    models.Environment,
    models.Fleet,
    models.Membership,
    models.ModelVersion,
    models.NodeObservation,
    models.Operation,
    models.Project,
    models.RegisteredModel,
    models.Review,
    models.Rollout,
    models.Route,
    models.Transition,
    models.Upload,
    models.VersionFile,
):
    admin.site.register(_other, ReadOnly)
