"""Addresses below /api/v1/. Nouns end with a slash, verbs do not."""

from __future__ import annotations

from django.urls import URLPattern, path

from console.api.exceptions import unknown_address
from console.api.v1 import (
    accounts,
    aliases,
    approvals,
    audit,
    blobs,
    cards,
    configs,
    deployments,
    environments,
    fleet,
    login_requests,
    logs,
    measurements,
    metrics,
    models,
    openapi,
    operations,
    projects,
    quotas,
    service_accounts,
    tokens,
    trust,
    versions,
    webhooks,
)

_MODEL = "projects/<slug:project>/models/<str:model>/"
_VERSION = f"{_MODEL}versions/<str:version>/"
_CONFIGS = f"{_MODEL}configs/"
_DEPLOYMENTS = "projects/<slug:project>/deployments/"
_DEPLOYMENT = f"{_DEPLOYMENTS}<uuid:deployment>/"
_WEBHOOK = "webhooks/<uuid:webhook>/"

urlpatterns: list[URLPattern] = [
    path("projects/", projects.ProjectList.as_view()),
    path("projects/<slug:project>/", projects.ProjectItem.as_view()),
    path("projects/<slug:project>/members/", projects.MemberList.as_view()),
    path("projects/<slug:project>/members/<str:username>/", projects.MemberItem.as_view()),
    path("projects/<slug:project>/quotas/", quotas.ProjectQuotas.as_view()),
    path("projects/<slug:project>/models/", models.ModelList.as_view()),
    path(_MODEL, models.ModelItem.as_view()),
    *(path(f"{_MODEL}{verb}", models.ModelMove.as_view(verb=verb)) for verb in ("archive", "restore")),
    path(f"{_MODEL}impact", models.ModelImpact.as_view()),
    path(f"{_MODEL}card/", cards.CardItem.as_view()),
    path(f"{_MODEL}card/revisions/", cards.CardRevisionList.as_view()),
    path(f"{_MODEL}card/revisions/<int:number>/", cards.CardRevisionItem.as_view()),
    path(f"{_MODEL}card/revisions/<int:number>/diff", cards.CardDiff.as_view()),
    path(f"{_MODEL}aliases/", aliases.AliasList.as_view()),
    path(f"{_MODEL}aliases/<str:alias>/", aliases.AliasItem.as_view()),
    path(f"{_MODEL}versions/", versions.VersionList.as_view()),
    path(_VERSION, versions.VersionItem.as_view()),
    path(f"{_VERSION}files/", versions.VersionFiles.as_view()),
    path(f"{_VERSION}checks/", versions.VersionChecks.as_view()),
    path(f"{_VERSION}checks/<slug:kind>/rerun", versions.VersionCheckRerun.as_view()),
    path(f"{_VERSION}measurements/", measurements.MeasurementList.as_view()),
    path(f"{_VERSION}measurements/<uuid:measurement>/", measurements.MeasurementItem.as_view()),
    path(f"{_VERSION}conversion", versions.VersionConversion.as_view()),
    path(f"{_VERSION}download", versions.VersionDownload.as_view()),
    path(f"{_VERSION}submit", versions.VersionSubmit.as_view()),
    *(
        path(f"{_VERSION}{verb}", versions.VersionMove.as_view(verb=verb))
        for verb in ("archive", "restore", "quarantine", "abandon")
    ),
    path(_CONFIGS, configs.ConfigList.as_view()),
    path(f"{_CONFIGS}validate", configs.ConfigValidate.as_view()),
    path(f"{_CONFIGS}<int:number>/", configs.ConfigItem.as_view()),
    path(f"{_CONFIGS}<int:number>/diff", configs.ConfigDiff.as_view()),
    path("environments/", environments.EnvironmentList.as_view()),
    path("environments/<slug:slug>/", environments.EnvironmentItem.as_view()),
    path("environments/<slug:slug>/windows", environments.EnvironmentWindows.as_view()),
    path("fleets/", environments.FleetList.as_view()),
    path("fleets/<slug:slug>/", environments.FleetItem.as_view()),
    path("nodes/", fleet.NodeList.as_view()),
    path("nodes/join/", fleet.NodeJoin.as_view()),
    path("nodes/<uuid:node>/", fleet.NodeItem.as_view()),
    path("nodes/<uuid:node>/hello/", fleet.NodeHello.as_view()),
    *(
        path(f"nodes/<uuid:node>/{verb}", fleet.NodeMove.as_view(verb=verb))
        for verb in ("cordon", "uncordon", "drain", "retire")
    ),
    path("nodes/<uuid:node>/logs", logs.NodeLogs.as_view()),
    path("join-tokens/", fleet.JoinTokenList.as_view()),
    path("blobs/<str:sha256>", blobs.BlobItem.as_view()),
    path(_DEPLOYMENTS, deployments.DeploymentList.as_view()),
    path(f"{_DEPLOYMENTS}plan", deployments.DeploymentPlan.as_view()),
    path(_DEPLOYMENT, deployments.DeploymentItem.as_view()),
    path(f"{_DEPLOYMENT}plan", deployments.DeploymentItemPlan.as_view()),
    path(f"{_DEPLOYMENT}routes", deployments.DeploymentRoutes.as_view()),
    path(f"{_DEPLOYMENT}rollback", deployments.DeploymentRollback.as_view()),
    path(f"{_DEPLOYMENT}infer", deployments.DeploymentInfer.as_view()),
    path(f"{_DEPLOYMENT}logs", logs.DeploymentLogs.as_view()),
    path(f"{_DEPLOYMENT}rollouts/", deployments.RolloutList.as_view()),
    path("approvals/", approvals.ApprovalList.as_view()),
    path("approvals/<uuid:approval>/", approvals.ApprovalItem.as_view()),
    path("approvals/<uuid:approval>/reviews/", approvals.ReviewList.as_view()),
    path("approvals/<uuid:approval>/bypass", approvals.ApprovalBypass.as_view()),
    path("approvals/<uuid:approval>/withdraw", approvals.ApprovalWithdraw.as_view()),
    path("operations/", operations.OperationList.as_view()),
    path("operations/<uuid:operation>/", operations.OperationItem.as_view()),
    path("operations/<uuid:operation>/cancel", operations.OperationCancel.as_view()),
    path("metrics/query", metrics.MetricsView.as_view()),
    path("audit/", audit.AuditList.as_view()),
    path("audit/export", audit.AuditExport.as_view()),
    path("webhooks/", webhooks.WebhookList.as_view()),
    path(_WEBHOOK, webhooks.WebhookItem.as_view()),
    path(f"{_WEBHOOK}rotate-secret", webhooks.WebhookRotate.as_view()),
    path(f"{_WEBHOOK}test", webhooks.WebhookTest.as_view()),
    path(f"{_WEBHOOK}deliveries/", webhooks.DeliveryList.as_view()),
    path(f"{_WEBHOOK}deliveries/<uuid:delivery>/", webhooks.DeliveryItem.as_view()),
    path(f"{_WEBHOOK}deliveries/<uuid:delivery>/replay", webhooks.DeliveryReplay.as_view()),
    path("users/", accounts.UserList.as_view()),
    path("api-keys/", tokens.TokenList.as_view()),
    path("api-keys/<uuid:token>/", tokens.TokenItem.as_view()),
    path("api-keys/<uuid:token>/rotate", tokens.TokenRotate.as_view()),
    path("service-accounts/", service_accounts.ServiceAccountList.as_view()),
    path("service-accounts/<str:username>/", service_accounts.ServiceAccountItem.as_view()),
    *(
        path(f"service-accounts/<str:username>/{verb}", service_accounts.ServiceAccountMove.as_view(verb=verb))
        for verb in ("disable", "enable")
    ),
    path("issuers/", trust.IssuerList.as_view()),
    path("issuers/<slug:slug>/", trust.IssuerItem.as_view()),
    path("issuers/<slug:slug>/read-keys", trust.IssuerReadKeys.as_view()),
    path("projects/<slug:project>/trust-rules/", trust.TrustRuleList.as_view()),
    path("projects/<slug:project>/trust-rules/<uuid:rule>/", trust.TrustRuleItem.as_view()),
    path("oidc/exchange", trust.OidcExchange.as_view()),
    path("login-requests/", login_requests.LoginRequestList.as_view()),
    path("login-requests/claim", login_requests.LoginRequestClaim.as_view()),
    path("me/", accounts.MeView.as_view()),
    path("me/revoke-token", tokens.OwnToken.as_view()),
    path("openapi.json", openapi.SchemaView.as_view()),
    path("", unknown_address),
    path("<path:rest>", unknown_address),
]
