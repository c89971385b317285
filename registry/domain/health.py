"""Does it run as wanted (sync), does it work (health), and in one sentence: why not."""

from __future__ import annotations

from dataclasses import dataclass

from registry.domain.facts import DeploymentFacts, NodeFacts, WantedUnit
from registry.domain.texts import gettext as _


@dataclass(frozen=True, slots=True)
class Verdict:
    """A status with its reason. ``child`` names the worst node or unit, empty when all are fine."""

    status: str
    reason: str = ""
    child: str = ""


# From best to worst: a parent shows its worst child.
HEALTH_ORDER = ("healthy", "suspended", "progressing", "unknown", "missing", "degraded")


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the worst of some health verdicts, the first among equals; ``missing`` for an empty list."""
    if not verdicts:
        return Verdict("missing")
    return max(verdicts, key=lambda verdict: HEALTH_ORDER.index(verdict.status))


def unit_health(node: NodeFacts, wanted: WantedUnit) -> Verdict:
    """Return the health of one wanted unit on one node."""
    seen = node.units.get(wanted.unit)
    state = "absent" if seen is None else seen.state
    if state == "ready":
        return Verdict("healthy")
    names = {"version": wanted.version, "node": node.name}
    if seen is not None and state == "failed":
        why = _sentence(seen.reason_text or seen.reason_code or _("no reason given"))
        return Verdict(
            "degraded", _("v%(version)s failed on node %(node)s: %(why)s") % {**names, "why": why}, wanted.unit
        )
    return Verdict("progressing", _on_the_way(state) % names, wanted.unit)


def node_health(node: NodeFacts, units: tuple[WantedUnit, ...]) -> Verdict:
    """Return the health of a deployment on one node: its worst unit, or that the node is unreachable."""
    if node.age_seconds is None:
        return Verdict(
            "unknown", _with_error(_("Node %(node)s has not been seen yet") % {"node": node.name}, node), node.name
        )
    if not node.is_reachable:
        silent = _("Node %(node)s has not answered for %(duration)s") % {
            "node": node.name,
            "duration": _duration(node.age_seconds),
        }
        return Verdict("unknown", _with_error(silent, node), node.name)
    if node.state == "draining":
        return Verdict("suspended", _("Node %(node)s is draining.") % {"node": node.name}, node.name)
    if node.state == "drained":
        return Verdict("suspended", _("Node %(node)s is drained.") % {"node": node.name}, node.name)
    verdict = worst([unit_health(node, unit) for unit in units])
    if verdict.status == "healthy" and not node.is_current:
        return Verdict("progressing", _applying(node), node.name)
    return Verdict(verdict.status, verdict.reason, node.name if verdict.status != "healthy" else "")


def deployment_health(facts: DeploymentFacts) -> Verdict:
    """Return the health of a deployment: its worst node."""
    if not facts.units:
        return Verdict("missing", _("Nothing is deployed yet."))
    if not facts.nodes:
        return Verdict("missing", _no_node(facts))
    return worst([node_health(node, facts.units) for node in facts.nodes])


def deployment_sync(facts: DeploymentFacts) -> Verdict:
    """Return whether what runs equals what is wanted: synced, progressing, out_of_sync or unknown."""
    if not facts.nodes:
        if not facts.units:
            return Verdict("synced")
        return Verdict("out_of_sync", _no_node(facts))
    reachable = [node for node in facts.nodes if node.is_reachable]
    if not reachable:
        return Verdict("unknown", _nobody_answers(facts))
    failed = [unit_health(node, unit) for node in reachable for unit in facts.units if _serves(node)]
    for verdict in failed:
        if verdict.status == "degraded":
            return Verdict("out_of_sync", verdict.reason, verdict.child)
    behind = [node for node in reachable if not node.is_current]
    if behind:
        return Verdict("progressing", _applying(behind[0]), behind[0].name)
    waiting = [verdict for verdict in failed if verdict.status != "healthy"]
    if waiting:
        return Verdict("progressing", waiting[0].reason, waiting[0].child)
    lost = [node for node in facts.nodes if not node.is_reachable]
    if lost:
        return Verdict("unknown", node_health(lost[0], facts.units).reason, lost[0].name)
    return Verdict("synced")


def why_not_serving(facts: DeploymentFacts) -> str:
    """Return one sentence with cause and node when requests cannot be answered as wanted; empty when they can."""
    if not facts.units:
        return ""
    verdict = deployment_health(facts)
    if verdict.status == "healthy":
        return ""
    return verdict.reason


def ready_percent(facts: DeploymentFacts) -> int:
    """Return how much of the wanted units on reachable nodes is there, in percent; fetched bytes count halfway."""
    total = done = 0.0
    for node in facts.nodes:
        if not (node.is_reachable and _serves(node)):
            continue
        for unit in facts.units:
            total += 1
            seen = node.units.get(unit.unit)
            if seen is None:
                continue
            if seen.state == "ready":
                done += 1
            elif seen.state in ("staged", "loading", "warming"):
                done += 0.6
            elif seen.bytes_total:
                done += 0.5 * seen.bytes_done / seen.bytes_total
    return int(100 * done / total) if total else 0


def _serves(node: NodeFacts) -> bool:
    return node.state not in ("draining", "drained")


def _on_the_way(state: str) -> str:
    """Return the sentence about a unit that is not ready yet, with places for ``version`` and ``node``."""
    match state:
        case "fetching":
            return _("v%(version)s is fetching its files on node %(node)s.")
        case "verifying":
            return _("v%(version)s is verifying its files on node %(node)s.")
        case "staged":
            return _("v%(version)s is waiting to load on node %(node)s.")
        case "loading":
            return _("v%(version)s is loading on node %(node)s.")
        case "warming":
            return _("v%(version)s is warming up on node %(node)s.")
        case "unloading":
            return _("v%(version)s is unloading on node %(node)s.")
        case _other:
            return _("v%(version)s is not on node %(node)s yet.")


def _applying(node: NodeFacts) -> str:
    return _("Node %(node)s is applying the newest change.") % {"node": node.name}


def _no_node(facts: DeploymentFacts) -> str:
    return _("No node belongs to fleet %(fleet)s.") % {"fleet": facts.fleet}


def _nobody_answers(facts: DeploymentFacts) -> str:
    ages = [node.age_seconds for node in facts.nodes if node.age_seconds is not None]
    if not ages:
        return _("No node has answered yet.")
    return _("No node has answered for %(duration)s.") % {"duration": _duration(min(ages))}


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 120:
        return _("%(count)d s") % {"count": whole}
    if whole < 7200:
        return _("%(count)d min") % {"count": whole // 60}
    return _("%(count)d h") % {"count": whole // 3600}


def _with_error(text: str, node: NodeFacts) -> str:
    """Return the text as a sentence, with the last error of the node when there is one."""
    if not node.error:
        return _sentence(text)
    return _("%(what)s: %(error)s") % {"what": text, "error": _sentence(node.error)}


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
