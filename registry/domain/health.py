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


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the worst of some health verdicts, the first among equals; ``missing`` for an empty list."""
    raise NotImplementedError


def unit_health(node: NodeFacts, wanted: WantedUnit) -> Verdict:
    """Return the health of one wanted unit on one node."""
    raise NotImplementedError


def node_health(node: NodeFacts, units: tuple[WantedUnit, ...]) -> Verdict:
    """Return the health of a deployment on one node: its worst unit, or that the node is unreachable."""
    raise NotImplementedError


def deployment_health(facts: DeploymentFacts) -> Verdict:
    """Return the health of a deployment: its worst node."""
    raise NotImplementedError


def deployment_sync(facts: DeploymentFacts) -> Verdict:
    """Return whether what runs equals what is wanted: synced, progressing, out_of_sync or unknown."""
    raise NotImplementedError


def why_not_serving(facts: DeploymentFacts) -> str:
    """Return one sentence with cause and node when requests cannot be answered as wanted; empty when they can."""
    raise NotImplementedError
