"""Does it run as wanted (sync), does it work (health), and in one sentence: why not."""

from __future__ import annotations

from dataclasses import dataclass

from registry.domain.facts import DeploymentFacts, NodeFacts, WantedUnit


@dataclass(frozen=True, slots=True)
class Verdict:
    """A status with its reason. ``child`` names the worst node or unit, empty when all are fine."""

    status: str
    reason: str = ""
    child: str = ""


# From best to worst: a parent shows its worst child.
HEALTH_ORDER = ("healthy", "suspended", "progressing", "unknown", "missing", "degraded")
_STARTING = {
    "fetching": "is fetching its files",
    "verifying": "is verifying its files",
    "staged": "is waiting to load",
    "loading": "is loading",
    "warming": "is warming up",
    "unloading": "is unloading",
}


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the worst of some health verdicts, the first among equals; ``missing`` for an empty list."""
    if not verdicts:
        return Verdict("missing")
    return max(verdicts, key=lambda verdict: HEALTH_ORDER.index(verdict.status))


def unit_health(node: NodeFacts, wanted: WantedUnit) -> Verdict:
    """Return the health of one wanted unit on one node."""
    label = f"v{wanted.version}"
    seen = node.units.get(wanted.unit)
    if seen is None or seen.state == "absent":
        return Verdict("progressing", f"{label} is not on node {node.name} yet.", wanted.unit)
    if seen.state == "ready":
        return Verdict("healthy")
    if seen.state == "failed":
        reason = seen.reason_text or seen.reason_code or "no reason given"
        return Verdict("degraded", f"{label} failed on node {node.name}: {_sentence(reason)}", wanted.unit)
    return Verdict("progressing", f"{label} {_STARTING.get(seen.state, seen.state)} on node {node.name}.", wanted.unit)


def node_health(node: NodeFacts, units: tuple[WantedUnit, ...]) -> Verdict:
    """Return the health of a deployment on one node: its worst unit, or that the node is unreachable."""
    if node.age_seconds is None:
        why = f" ({node.error})" if node.error else ""
        return Verdict("unknown", f"Node {node.name} has not been seen yet{why}.", node.name)
    if not node.is_reachable:
        why = f": {_sentence(node.error)}" if node.error else "."
        return Verdict(
            "unknown", f"Node {node.name} has not answered for {_duration(node.age_seconds)}{why}", node.name
        )
    if node.state in ("draining", "drained"):
        return Verdict("suspended", f"Node {node.name} is {node.state}.", node.name)
    verdict = worst([unit_health(node, unit) for unit in units])
    if verdict.status == "healthy" and not node.is_current:
        return Verdict("progressing", f"Node {node.name} is applying the newest change.", node.name)
    return Verdict(verdict.status, verdict.reason, node.name if verdict.status != "healthy" else "")


def deployment_health(facts: DeploymentFacts) -> Verdict:
    """Return the health of a deployment: its worst node."""
    if not facts.units:
        return Verdict("missing", "Nothing is deployed yet.")
    if not facts.nodes:
        return Verdict("missing", f"No node belongs to fleet {facts.fleet}.")
    return worst([node_health(node, facts.units) for node in facts.nodes])


def deployment_sync(facts: DeploymentFacts) -> Verdict:
    """Return whether what runs equals what is wanted: synced, progressing, out_of_sync or unknown."""
    if not facts.nodes:
        if not facts.units:
            return Verdict("synced")
        return Verdict("out_of_sync", f"No node belongs to fleet {facts.fleet}.")
    reachable = [node for node in facts.nodes if node.is_reachable]
    if not reachable:
        return Verdict("unknown", f"No node has answered for {_duration(_youngest(facts.nodes))}.")
    failed = [unit_health(node, unit) for node in reachable for unit in facts.units if _serves(node)]
    for verdict in failed:
        if verdict.status == "degraded":
            return Verdict("out_of_sync", verdict.reason, verdict.child)
    behind = [node for node in reachable if not node.is_current]
    if behind:
        return Verdict("progressing", f"Node {behind[0].name} is applying the newest change.", behind[0].name)
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


def _youngest(nodes: tuple[NodeFacts, ...]) -> float | None:
    ages = [node.age_seconds for node in nodes if node.age_seconds is not None]
    return min(ages) if ages else None


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "ever"
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole // 3600} h"


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
