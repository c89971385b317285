"""The rules by which sequences get slots and batches, read once from a model's config. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving_node.scheduling.policy import BatchPolicy

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

_NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class SequencePolicy:
    """The rules of a model with sequences. ``slots`` of each instance.

    Direct: ``rows`` is the largest batch; with a delay a batch waits until the oldest request in it has waited that
    long, or until the share ``minimum_utilization`` of the rows is filled. Oldest: ``batching`` is how the requests of
    different sequences are batched, None for each alone. Iterative: a request is a sequence of passes of its own, until
    the model does not ask for another one.
    """

    slots: int
    max_idle_ns: int
    is_direct: bool
    rows: int = 1
    delay_ns: int = 0
    minimum_utilization: float = 0.0
    batching: BatchPolicy | None = None
    is_iterative: bool = False


def sequence_policy(config: ModelConfig) -> SequencePolicy | None:
    """Return the policy of a normalised config, None when the model has no sequences. Neither strategy means direct."""
    if not config.HasField("sequence_batching"):
        return None
    batching = config.sequence_batching
    rows = max(1, config.max_batch_size)
    if not batching.HasField("oldest"):
        return SequencePolicy(
            slots=rows,
            max_idle_ns=batching.max_sequence_idle_microseconds * _NS_PER_US,
            is_direct=True,
            rows=rows,
            delay_ns=batching.direct.max_queue_delay_microseconds * _NS_PER_US,
            minimum_utilization=batching.direct.minimum_slot_utilization,
            is_iterative=batching.iterative_sequence,
        )
    oldest = batching.oldest
    return SequencePolicy(
        slots=max(1, oldest.max_candidate_sequences),
        max_idle_ns=batching.max_sequence_idle_microseconds * _NS_PER_US,
        is_direct=False,
        rows=rows,
        batching=BatchPolicy(
            max_batch_size=config.max_batch_size,
            preferred_sizes=frozenset(oldest.preferred_batch_size) or frozenset((config.max_batch_size,)),
            max_queue_delay_ns=oldest.max_queue_delay_microseconds * _NS_PER_US,
        )
        if config.max_batch_size > 0
        else None,
        is_iterative=batching.iterative_sequence,
    )
