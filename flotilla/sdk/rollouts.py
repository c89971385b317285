"""Changes of deployments while they are under way, and after."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import Transport

Json = dict[str, Any]


class Rollouts:
    """Rollouts by id. Each verb acts on the rollout as it is now: of two that do so at once, one is refused (412)."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._deployments = f"projects/{project}/deployments/"

    def all(self, deployment_id: str) -> list[Json]:
        """Return the rollouts of a deployment, newest first."""
        return [*self._transport.pages(f"{self._deployments}{deployment_id}/rollouts/")]

    def get(self, rollout_id: str) -> Json:
        """Return one."""
        return dict(self._transport.send("GET", f"rollouts/{rollout_id}/").json())

    def stages(self, rollout_id: str) -> Json:
        """Return ``stages``, what each waits for and how long it took, and ``moves``, every change of its phase."""
        return dict(self._transport.send("GET", f"rollouts/{rollout_id}/stages").json())

    def pause(self, rollout_id: str, reason: str = "") -> Json:
        """Hold it: until it is resumed it neither succeeds nor goes back by itself. Returns it."""
        return self._verb(rollout_id, "pause", {"reason": reason})

    def resume(self, rollout_id: str, reason: str = "") -> Json:
        """Let a paused one go on and return it."""
        return self._verb(rollout_id, "resume", {"reason": reason})

    def abort(self, rollout_id: str, reason: str = "") -> Json:
        """Stop it, put back what was there before, and return it.

        Raises:
            ApiError: 409 when there was nothing before.
        """
        return self._verb(rollout_id, "abort", {"reason": reason})

    def retry(self, rollout_id: str) -> Json:
        """Ask once more for what one wanted that failed; returns what ``Flotilla.deploy`` does."""
        return self._verb(rollout_id, "retry", {})

    def _verb(self, rollout_id: str, verb: str, body: Json) -> Json:
        address = f"rollouts/{rollout_id}/"
        seen = self._transport.send("GET", address).headers["ETag"]
        headers = {"If-Match": seen}
        return dict(self._transport.send("POST", address + verb, json=body, headers=headers, once=True).json())
