"""What the charts of a page need to know: which served name, which fleet, which span, and when something changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from registry.models import Deployment, Rollout
from registry.selectors.deployments import rollouts_of

SPANS = {
    "15m": (900, gettext_lazy("Last 15 min")),
    "1h": (3600, gettext_lazy("Last 1 h")),
    "6h": (21600, gettext_lazy("Last 6 h")),
    "24h": (86400, gettext_lazy("Last 24 h")),
    "14d": (1209600, gettext_lazy("Last 14 d")),
}
MOST_MARKERS = 20


def span_of(request: HttpRequest) -> str:
    """Return the span in the address, 15 minutes without one."""
    wanted = request.GET.get("span", "15m")
    return wanted if wanted in SPANS else "15m"


def chart_context(request: HttpRequest, deployments: Sequence[Deployment]) -> dict[str, Any]:
    """Return the charted deployment (``?deployment=`` in the address, else the first) and its deploy markers."""
    wanted = request.GET.get("deployment")
    charted = next((one for one in deployments if str(one.pk) == wanted), deployments[0] if deployments else None)
    span = span_of(request)
    return {
        "charted": charted,
        "chartable": deployments,
        "span": span,
        "span_seconds": SPANS[span][0],
        "spans": [(name, label) for name, (_seconds, label) in SPANS.items()],
        "markers": [marker(rollout) for rollout in rollouts_of(charted)[:MOST_MARKERS]] if charted else [],
    }


def marker(rollout: Rollout) -> dict[str, Any]:
    """Return a deploy marker: seconds since 1970 and one short sentence."""
    words = {"deploy": _("deployed"), "traffic": _("moved traffic"), "rollback": _("rolled back")}
    routes = rollout.spec_to.get("routes", []) if isinstance(rollout.spec_to, dict) else []
    split = ", ".join(f"v{route['version']} {route['weight']} %" for route in routes if route.get("weight"))
    what = words.get(rollout.kind, rollout.kind)
    return {"at": rollout.created_at.timestamp(), "label": f"{rollout.created_by.username} {what}: {split}"}
