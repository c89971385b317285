"""People, service accounts, projects and tokens."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils.translation import gettext_lazy as _

from registry.models.base import Row, new_id


class SiteRole(models.TextChoices):
    """Rights on what is not in a project: environments, fleets, nodes."""

    NONE = "none", _("None")
    OPERATOR = "operator", _("Operator")
    ADMIN = "admin", _("Administrator")


class Role(models.TextChoices):
    """Rights in a project, each including those before it."""

    VIEWER = "viewer", _("Viewer")
    PUBLISHER = "publisher", _("Publisher")
    APPROVER = "approver", _("Approver")
    OPERATOR = "operator", _("Operator")
    ADMIN = "admin", _("Administrator")


ROLE_RANK: dict[str, int] = {role.value: rank for rank, role in enumerate(Role, start=1)}


class User(AbstractUser):
    """A person, or a service account (``is_service``), which never approves and cannot sign in.

    ``deleted_at``: the account is gone; its name stays for the history that it is in, and is not given again.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    site_role = models.CharField(max_length=16, choices=SiteRole, default=SiteRole.NONE)
    is_service = models.BooleanField(default=False)
    deleted_at = models.DateTimeField(null=True, blank=True)
    # The provider whose groups gave the site role; None when a person did.
    site_role_mapped_by = models.ForeignKey(
        "registry.SsoProvider", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    # What the provider that provisions the account calls it (SCIM); it signs in there as that subject.
    external_id = models.CharField(max_length=200, blank=True, default="")
    provisioned_by = models.ForeignKey(
        "registry.SsoProvider", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        db_table = "registry_user"


class CodeFormats(models.TextChoices):
    """Whether versions of a project may bring code that nodes run."""

    ALLOW = "allow", _("Allowed")
    APPROVE = "approve", _("Allowed with approval")
    FORBID = "forbid", _("Forbidden")


class SigningPolicy(models.TextChoices):
    """Whether versions of a project must be signed by somebody it trusts."""

    OFF = "off", _("Not looked at")
    OPTIONAL = "optional", _("Verified where there is one")
    REQUIRED = "required", _("Required")


class Project(Row):
    """Tenancy: models, deployments, members and quotas.

    Quotas: bytes of the files of its versions, versions that were not given up or refused, and nodes of the fleets
    that it deploys on. ``pickles_known_only``: pickles may import nothing but what is known to be harmless.
    ``size_limits`` and ``licence_policy`` are documents of registry.domain.sizes and registry.domain.licences; what is
    not in them is as usual.
    """

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=200)
    description = models.TextField(blank=True)
    quota_bytes = models.BigIntegerField(default=100 * 1024**3)
    quota_versions = models.PositiveIntegerField(default=100_000)
    quota_nodes = models.PositiveIntegerField(default=1000)
    code_formats = models.CharField(max_length=16, choices=CodeFormats, default=CodeFormats.ALLOW)
    pickles_known_only = models.BooleanField(default=False)
    signing_policy = models.CharField(max_length=16, choices=SigningPolicy, default=SigningPolicy.OFF)
    size_limits = models.JSONField(default=dict, blank=True)
    licence_policy = models.JSONField(default=dict, blank=True)
    members = models.ManyToManyField(User, through="Membership", related_name="projects")

    def __str__(self) -> str:
        return self.slug


class Membership(Row):
    """A user's role in a project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role, default=Role.VIEWER)
    # The provider whose groups gave the role; None when a person did.
    mapped_by = models.ForeignKey(
        "registry.SsoProvider", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "user"], name="membership_once")]

    def __str__(self) -> str:
        return f"{self.user.username} in {self.project.slug}"


class ApiToken(Row):
    """A bearer token ``flo_<public_id>_<secret>``; only the SHA-256 of the secret is kept.

    ``scopes``: any of ``read``, ``write``, ``admin``. ``project`` narrows the token to one project,
    ``allowed_networks`` (CIDR) to callers from there. ``created_by`` is the person who saw the secret; for a service
    account's token that is not the owner. After a rotation the secret before it works until ``previous_until``.
    ``trust_rule`` and ``actor_name`` are of tokens that a CI job got for its own: audit rows show that name.
    """

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="tokens")
    name = models.CharField(max_length=200)
    public_id = models.CharField(max_length=16, unique=True)
    secret_sha256 = models.CharField(max_length=64)
    previous_public_id = models.CharField(max_length=16, null=True, blank=True, unique=True)
    previous_secret_sha256 = models.CharField(max_length=64, blank=True)
    previous_until = models.DateTimeField(null=True, blank=True)
    previous_used_at = models.DateTimeField(null=True, blank=True)
    scopes = models.JSONField(default=list)
    allowed_networks = models.JSONField(default=list, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    expiry_told_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_used_ip = models.GenericIPAddressField(null=True, blank=True)
    rotated_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    trust_rule = models.ForeignKey(
        "registry.TrustRule", on_delete=models.SET_NULL, null=True, blank=True, related_name="tokens"
    )
    actor_name = models.CharField(max_length=200, blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["expires_at"],
                name="token_ends",
                condition=models.Q(revoked_at=None, expires_at__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.public_id})"
