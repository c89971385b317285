"""Registered models, their versions, and the content they are made of."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from registry.models.accounts import ApiToken, Project
from registry.models.base import Row


class ModelState(models.TextChoices):
    """Whether a model takes versions and deployments; the table of moves is in registry.domain.states."""

    ACTIVE = "active", _("Active")
    ARCHIVED = "archived", _("Archived")


class RegisteredModel(Row):
    """A named model in a project. ``next_version`` and ``next_config`` hand out numbers under a row lock.

    ``task`` is what it does, one of registry.domain.model_facts.TASKS or a name of one's own.
    ``links``: ``{"label", "url"}`` each.
    """

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="models")
    slug = models.SlugField(max_length=128)
    description = models.TextField(blank=True)
    tags = models.JSONField(default=dict, blank=True)
    task = models.CharField(max_length=64, blank=True)
    links = models.JSONField(default=list, blank=True)
    state = models.CharField(max_length=16, choices=ModelState, default=ModelState.ACTIVE)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    next_version = models.PositiveIntegerField(default=1)
    next_config = models.PositiveIntegerField(default=1)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "slug"], name="model_slug_once")]

    def __str__(self) -> str:
        return self.slug


class Blob(Row):
    """Content by SHA-256, stored once. References are VersionFile rows."""

    sha256 = models.CharField(max_length=64, unique=True)
    size = models.BigIntegerField()
    storage_key = models.CharField(max_length=200)


class VersionState(models.TextChoices):
    """Life of a version; the table of moves is in registry.domain.states."""

    UPLOADING = "uploading", _("Uploading")
    VALIDATING = "validating", _("Validating")
    READY = "ready", _("Ready")
    REJECTED = "rejected", _("Rejected")
    ARCHIVED = "archived", _("Archived")
    QUARANTINED = "quarantined", _("Quarantined")
    ABANDONED = "abandoned", _("Abandoned")


class ModelVersion(Row):
    """Immutable once ready. ``number`` is given on the move validating -> ready.

    ``signature`` is contract ModelSignature as JSON; ``source`` holds what registry.domain.version_facts knows, and
    ``converted_from`` when a conversion report is attached (registry.services.conversions). ``metrics``: numbers by
    name. ``parent`` is the version that it was made from, of any model of the project. Metrics and metadata may change
    later (version_annotate); what an approval is bound to does not depend on them.
    ``code_files`` are those that are code, ``{"path", "why"}`` each; nodes run them once somebody has permitted it, and
    until somebody withdraws that.
    """

    model = models.ForeignKey(RegisteredModel, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField(null=True, blank=True)
    state = models.CharField(max_length=16, choices=VersionState, default=VersionState.UPLOADING)
    state_reason = models.TextField(blank=True)
    format = models.CharField(max_length=32, blank=True)
    manifest_digest = models.CharField(max_length=64, blank=True)
    size_bytes = models.BigIntegerField(default=0)
    signature = models.JSONField(null=True, blank=True)
    source = models.JSONField(default=dict, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    metrics = models.JSONField(default=dict, blank=True)
    parent = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="children")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    author_token = models.ForeignKey(ApiToken, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    contributors = models.JSONField(default=list, blank=True)
    ready_at = models.DateTimeField(null=True, blank=True)
    code_files = models.JSONField(default=list, blank=True)
    code_permitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    code_permitted_at = models.DateTimeField(null=True, blank=True)
    code_withdrawn_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    code_withdrawn_at = models.DateTimeField(null=True, blank=True)
    code_withdrawn_reason = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="version_number_once")]
        indexes = [
            models.Index(fields=["model", "-created_at"], name="version_by_age"),
            models.Index(
                fields=["-code_permitted_at"],
                name="version_code_permitted",
                condition=models.Q(code_permitted_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model.slug} v{self.number}" if self.number else f"{self.model.slug} (unnumbered)"

    @property
    def all_aliases(self) -> list[Alias]:
        """Aliases that point at it, by name; without a query where they were read with it (``WITH_ALIASES``)."""
        listed: list[Alias] | None = getattr(self, "listed_aliases", None)
        return list(self.aliases.all()) if listed is None else listed

    @property
    def author_name(self) -> str:
        """Name of who made it; without a query where it was read with it (``listed_author_name``)."""
        listed: str | None = getattr(self, "listed_author_name", None)
        return self.author.username if listed is None else listed

    @property
    def alias_names(self) -> list[str]:
        """Names of these; without a query where they were read with it (``listed_alias_names``)."""
        listed: list[str] | None = getattr(self, "listed_alias_names", None)
        return [alias.name for alias in self.all_aliases] if listed is None else listed


class Alias(Row):
    """A name that points at one version, ready when it was set. ``latest`` is computed and has no row.

    ``is_protected``: moving it, deleting it and lifting the protection need ``alias.move_protected``.
    """

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="aliases")
    name = models.CharField(max_length=30)
    version = models.ForeignKey(ModelVersion, on_delete=models.PROTECT, related_name="aliases")
    is_protected = models.BooleanField(default=False)
    moved_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    moved_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "name"], name="alias_once")]
        ordering = ["name"]

    def __str__(self) -> str:
        return f"{self.model.slug} {self.name}"


# Into a list of the row's own: Django builds a query for each row otherwise, which it never asks.
WITH_ALIASES = models.Prefetch("aliases", to_attr="listed_aliases")


class VersionFile(Row):
    """One file of a version: a normalised relative path and its content."""

    version = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, related_name="files")
    path = models.CharField(max_length=500)
    blob = models.ForeignKey(Blob, on_delete=models.PROTECT, related_name="files")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["version", "path"], name="file_path_once")]


class UploadState(models.TextChoices):
    """Life of a resumable upload."""

    RECEIVING = "receiving", _("Receiving")
    RECEIVED = "received", _("Received")
    STORED = "stored", _("Stored")
    FAILED = "failed", _("Failed")
    TERMINATED = "terminated", _("Terminated")


class Upload(Row):
    """A resumable upload. Bytes are in the staging folder under the id until a worker has moved them (tus).

    With ``part_bytes`` they are in the store instead, in parts of that size (registry.services.direct_uploads).

    ``sha256`` is over all bytes, once somebody has read them: the web process while they arrive, or a worker, who
    requires what was promised (``expected_...``). A part was sent beside others, which together became ``whole``, in
    the order of ``position``.
    """

    version = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, related_name="uploads")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    path = models.CharField(max_length=500)
    length = models.BigIntegerField()
    offset = models.BigIntegerField(default=0)
    part_bytes = models.BigIntegerField(default=0)
    expected_sha256 = models.CharField(max_length=64, blank=True)
    expected_xxh3 = models.CharField(max_length=32, blank=True)
    sha256 = models.CharField(max_length=64, blank=True)
    state = models.CharField(max_length=16, choices=UploadState, default=UploadState.RECEIVING)
    error = models.TextField(blank=True)
    is_part = models.BooleanField(default=False)
    whole = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="parts")
    position = models.PositiveSmallIntegerField(null=True, blank=True)
    expires_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["state", "expires_at"], name="upload_expiry")]


class Verdict(models.TextChoices):
    """Outcome of a check. Only PASS and WARN let a version become ready."""

    RUNNING = "running", _("Running")
    PASS = "pass", _("Pass")
    WARN = "warn", _("Warning")
    FAIL = "fail", _("Fail")
    ERROR = "error", _("Error")


class Check(Row):
    """One verdict about a version, with evidence."""

    version = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, related_name="checks")
    kind = models.CharField(max_length=32)
    verdict = models.CharField(max_length=16, choices=Verdict, default=Verdict.RUNNING)
    summary = models.TextField(blank=True)
    evidence = models.JSONField(default=dict, blank=True)
    log = models.TextField(blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["version", "kind"], name="check_kind_once")]
        indexes = [models.Index(fields=["version"], name="check_running", condition=models.Q(verdict="running"))]
