"""The rules by which requests wait and form batches, read once from a model's config. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelQueuePolicy

_NS_PER_US = 1000


class TimeoutAction(StrEnum):
    """What happens to a request that waited too long."""

    REJECT = "REJECT"
    DELAY = "DELAY"


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How long, and how many, requests of one priority level may wait. Zero means no limit."""

    timeout_action: TimeoutAction = TimeoutAction.REJECT
    default_timeout_ns: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0

    def timeout_ns(self, requested_us: int) -> int:
        """Return how long a request may wait; a request can only shorten a timeout that the model has.

        Source: Triton's PolicyQueue, which ignores the request's timeout when the default is zero.
        """
        timeout = self.default_timeout_ns
        if self.allow_timeout_override and 0 < requested_us * _NS_PER_US < timeout:
            return requested_us * _NS_PER_US
        return timeout


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """How batches are formed. ``levels`` has one queue policy for each priority level, the most urgent first."""

    max_batch_size: int
    preferred_sizes: frozenset[int] = frozenset()
    max_queue_delay_ns: int = 0
    preserve_ordering: bool = False
    default_level: int = 1
    levels: tuple[QueuePolicy, ...] = field(default=(QueuePolicy(),))

    @property
    def largest_preferred(self) -> int:
        """The size at which waiting for more is pointless."""
        return max(self.preferred_sizes, default=self.max_batch_size)

    @property
    def limits_queue(self) -> bool:
        """Whether any level refuses requests when too many wait."""
        return any(policy.max_queue_size for policy in self.levels)

    def level_index(self, priority: int) -> int:
        """Return the index into ``levels``; 0 and unknown priorities mean the default level."""
        if len(self.levels) == 1:
            return 0
        return (priority if 0 < priority <= len(self.levels) else self.default_level) - 1


def batch_policy(config: ModelConfig) -> BatchPolicy | None:
    """Return the policy of a config with dynamic batching, None when each request runs alone."""
    if not config.HasField("dynamic_batching") or config.max_batch_size < 1:
        return None
    batching = config.dynamic_batching
    default = queue_policy(batching.default_queue_policy)
    levels = tuple(
        queue_policy(batching.priority_queue_policy[level]) if level in batching.priority_queue_policy else default
        for level in range(1, max(1, batching.priority_levels) + 1)
    )
    return BatchPolicy(
        max_batch_size=config.max_batch_size,
        preferred_sizes=frozenset(batching.preferred_batch_size) or frozenset((config.max_batch_size,)),
        max_queue_delay_ns=batching.max_queue_delay_microseconds * _NS_PER_US,
        preserve_ordering=batching.preserve_ordering,
        default_level=batching.default_priority_level or 1,
        levels=levels if batching.priority_levels else (default,),
    )


def queue_policy(message: ModelQueuePolicy) -> QueuePolicy:
    """Return the policy that a config message describes."""
    return QueuePolicy(
        timeout_action=TimeoutAction.DELAY if message.timeout_action == 1 else TimeoutAction.REJECT,
        default_timeout_ns=message.default_timeout_microseconds * _NS_PER_US,
        allow_timeout_override=message.allow_timeout_override,
        max_queue_size=message.max_queue_size,
    )
