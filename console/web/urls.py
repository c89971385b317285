"""Addresses of the pages."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from console.web.views import (
    aliases,
    approvals,
    audit,
    cards,
    configs,
    connect,
    deploy,
    deployments,
    fleet,
    home,
    logs,
    measurements,
    models,
    operations,
    quotas,
    security,
    service_accounts,
    session,
    settings,
    tokens,
    trust,
    try_it,
    upload,
    versions,
    webhooks,
)

app_name = "web"

_MODEL = "p/<slug:project>/models/<slug:model>/"
_DEPLOYMENT = "p/<slug:project>/deployments/<uuid:deployment_id>/"

urlpatterns: list[URLPattern | URLResolver] = [
    path("", home.home, name="home"),
    path("jump/", home.jump, name="jump"),
    # Models
    path("p/<slug:project>/models/", models.model_list, name="models"),
    path("p/<slug:project>/models/new/", models.model_new, name="model-new"),
    path(_MODEL, models.overview, name="model"),
    path(_MODEL + "versions/", models.versions, name="model-versions"),
    path(_MODEL + "edit/", models.edit, name="model-edit"),
    path(_MODEL + "act/", models.act, name="model-act"),
    path(_MODEL + "card/", cards.card, name="model-card"),
    path(_MODEL + "card/edit/", cards.edit, name="model-card-edit"),
    path(_MODEL + "card/preview/", cards.preview, name="model-card-preview"),
    path(_MODEL + "card/<int:number>/", cards.card, name="model-card-revision"),
    path(_MODEL + "aliases/", aliases.aliases, name="model-aliases"),
    path(_MODEL + "aliases/preview/", aliases.preview, name="alias-preview"),
    path(_MODEL + "aliases/delete/", aliases.delete, name="alias-delete"),
    path(_MODEL + "configs/", models.configs, name="model-configs"),
    path(_MODEL + "deployments/", models.deployments, name="model-deployments"),
    path(_MODEL + "metrics/", models.metrics, name="model-metrics"),
    path(_MODEL + "try/", try_it.model_try, name="model-try"),
    path(_MODEL + "activity/", models.activity, name="model-activity"),
    # Upload and versions
    path("p/<slug:project>/upload/", upload.upload, name="upload"),
    path("p/<slug:project>/upload/start/", upload.start, name="upload-start"),
    path("p/<slug:project>/upload/<uuid:version_id>/submit/", upload.submit, name="upload-submit"),
    path("p/<slug:project>/upload/<uuid:version_id>/progress/", upload.progress, name="upload-progress"),
    path(_MODEL + "versions/<int:number>/", versions.version, name="version"),
    path(_MODEL + "versions/<uuid:version_id>/", versions.version, name="version-by-id"),
    path(_MODEL + "versions/<uuid:version_id>/act/", versions.act, name="version-act"),
    path(_MODEL + "versions/<int:number>/measurements/", measurements.measurements, name="measurements"),
    # Configs
    path(_MODEL + "configs/new/", configs.new, name="config-new"),
    path(_MODEL + "configs/check/", configs.check, name="config-check"),
    path(_MODEL + "configs/<int:number>/", configs.config, name="config"),
    # Deployments
    path(_MODEL + "deploy/", deploy.deploy, name="deploy"),
    path(_MODEL + "deploy/plan/", deploy.plan, name="deploy-plan"),
    path("p/<slug:project>/deployments/", deployments.deployment_list, name="deployments"),
    path(_DEPLOYMENT, deployments.deployment, name="deployment"),
    path(_DEPLOYMENT + "traffic/plan/", deployments.traffic_plan, name="traffic-plan"),
    path(_DEPLOYMENT + "traffic/", deployments.traffic, name="traffic"),
    path(_DEPLOYMENT + "rollback/", deployments.rollback, name="rollback"),
    path(_DEPLOYMENT + "try/", try_it.run, name="try-run"),
    path(_DEPLOYMENT + "logs/", logs.deployment_logs, name="deployment-logs"),
    path("logs/<uuid:operation_id>/", logs.logs, name="logs"),
    path("try/<uuid:operation_id>/", try_it.result, name="try-result"),
    # Approvals
    path("approvals/", approvals.inbox, name="approvals"),
    path("approvals/<uuid:approval_id>/", approvals.approval, name="approval"),
    path("approvals/<uuid:approval_id>/review/", approvals.review, name="approval-review"),
    path("approvals/<uuid:approval_id>/withdraw/", approvals.withdraw, name="approval-withdraw"),
    # Fleet
    path("fleet/", fleet.fleet, name="fleet"),
    path("fleet/join/", fleet.join, name="fleet-join"),
    path("fleet/nodes/<uuid:node_id>/", fleet.node, name="node"),
    path("fleet/nodes/<uuid:node_id>/logs/", logs.node_logs, name="node-logs"),
    path("fleet/nodes/<uuid:node_id>/act/", fleet.node_act, name="node-act"),
    # Settings
    path("settings/members/", settings.members, name="members"),
    path("settings/members/remove/", settings.member_remove, name="member-remove"),
    path("settings/tokens/", tokens.token_list, name="tokens"),
    path("settings/tokens/<uuid:token_id>/", tokens.token, name="token"),
    path("settings/tokens/<uuid:token_id>/rotate/", tokens.token_rotate, name="token-rotate"),
    path("settings/tokens/<uuid:token_id>/revoke/", tokens.token_revoke, name="token-revoke"),
    path("settings/service-accounts/", service_accounts.account_list, name="service-accounts"),
    path("settings/service-accounts/<str:username>/", service_accounts.account, name="service-account"),
    path("settings/service-accounts/<str:username>/act/", service_accounts.account_act, name="service-account-act"),
    path("settings/ci/", trust.rule_list, name="trust"),
    path("settings/ci/issuers/", trust.issuer_list, name="issuers"),
    path("settings/ci/issuers/<slug:slug>/act/", trust.issuer_act, name="issuer-act"),
    path("p/<slug:project>/settings/ci/<uuid:rule_id>/", trust.rule, name="trust-rule"),
    path("p/<slug:project>/settings/ci/<uuid:rule_id>/delete/", trust.rule_delete, name="trust-rule-delete"),
    path("connect/", connect.connect, name="connect"),
    path("settings/environments/", settings.environments, name="environments"),
    path("settings/environments/<slug:slug>/", settings.environment, name="environment"),
    path("settings/projects/", settings.projects, name="projects"),
    path("settings/projects/<slug:project>/", quotas.project, name="project"),
    path("settings/webhooks/", webhooks.webhook_list, name="webhooks"),
    path("settings/webhooks/<uuid:webhook_id>/", webhooks.webhook, name="webhook"),
    path(
        "settings/webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/", webhooks.delivery, name="webhook-delivery"
    ),
    path("settings/webhooks/<uuid:webhook_id>/act/", webhooks.webhook_act, name="webhook-act"),
    path("settings/password/", session.password, name="password"),
    path("settings/security/sessions/", security.session_end, name="session-end"),
    # History
    path("audit/", audit.audit, name="audit"),
    path("operations/", operations.operation_list, name="operations"),
    path("operations/<uuid:operation_id>/", operations.operation, name="operation"),
    path("operations/<uuid:operation_id>/cancel/", operations.cancel, name="operation-cancel"),
]
