"""What a response cache counts, and its metric families. Source: Triton's local cache; ``flotilla_*`` are ours."""

from __future__ import annotations

from dataclasses import dataclass

from serving_node.observability.families import Family, MetricKind


@dataclass(slots=True)
class CacheCounters:
    """Written on the event loop only. Times are nanoseconds.

    ``unfit`` are answers that were not kept although the cache works, because they are too large or have no form that
    can be kept; ``failures`` are calls of a remote cache that did not work.
    """

    hits: int = 0
    misses: int = 0
    lookup_ns: int = 0
    insertion_ns: int = 0
    unfit: int = 0
    failures: int = 0

    def families(self) -> list[Family]:
        """Return what any cache counts."""
        return [
            _single("nv_cache_num_hits", "Number of cache hits in response cache", self.hits),
            _single("nv_cache_num_misses", "Number of cache misses in response cache", self.misses),
            _single("nv_cache_num_lookups", "Number of cache lookups in response cache", self.hits + self.misses),
            _single(
                "nv_cache_lookup_duration",
                "Total cache lookup duration (hit and miss), in microseconds",
                self.lookup_ns // 1000,
            ),
            _single(
                "nv_cache_insertion_duration",
                "Total cache insertion duration, in microseconds",
                self.insertion_ns // 1000,
            ),
            _single(
                "flotilla_cache_unfit_total",
                "Number of responses that were too large to be kept, or have no form that can be",
                self.unfit,
                MetricKind.COUNTER,
            ),
        ]

    def remote_families(self) -> list[Family]:
        """Return what a cache on another server counts besides."""
        return [
            _single(
                "flotilla_cache_failures_total",
                "Number of calls of the remote cache that failed or took too long",
                self.failures,
                MetricKind.COUNTER,
            )
        ]

    @staticmethod
    def local_families(used: int, capacity: int, entries: int, evictions: int) -> list[Family]:
        """Return what a cache in memory counts besides. ``used`` and ``capacity`` are bytes."""
        return [
            _single("nv_cache_util", "Cache utilization [0.0 - 1.0]", used / capacity),
            _single("nv_cache_num_entries", "Number of responses stored in response cache", entries),
            _single("nv_cache_num_evictions", "Number of cache evictions in response cache", evictions),
            _single("flotilla_cache_bytes", "Bytes that the responses in the cache take", used),
        ]


def _single(name: str, text: str, value: float, kind: MetricKind = MetricKind.GAUGE) -> Family:
    family = Family(name, text, kind)
    family.add((), value)
    return family
