"""All cases, by the file that their recorded answers are in."""

from __future__ import annotations

from tests.differential.cases import (
    backend,
    bad_requests,
    cached,
    calls,
    ensembles,
    infer,
    limited,
    metadata,
    observing,
    other_servers,
    python_contract,
    repository_life,
    scheduling,
    sequences,
    shared_memory,
    transport,
)
from tests.differential.differences import with_differences
from tests.differential.steps import Case

_CASES: dict[str, tuple[Case, ...]] = {
    "infer": infer.CASES,
    "bad_requests": bad_requests.CASES,
    "http": transport.CASES_HTTP,
    "grpc": transport.CASES_GRPC,
    "seen": transport.CASES_SEEN,
    "backend": backend.CASES,
    "streams": backend.CASES_STREAMS,
    "generate": backend.CASES_GENERATE,
    "metadata": metadata.CASES,
    "repository": repository_life.CASES,
    "refused": repository_life.CASES_REFUSED,
    "statistics": observing.CASES_STATISTICS,
    "settings": observing.CASES_SETTINGS,
    "shared_memory": shared_memory.CASES,
    "queues": scheduling.CASES_QUEUES,
    "ensembles": ensembles.CASES,
    "ensembles_life": ensembles.CASES_LIFE,
    "sequences": sequences.CASES,
    "calls": calls.CASES,
    "python_contract": python_contract.CASES,
    "cached": cached.CASES,
    "later": scheduling.CASES_LATER,
    "other_servers": other_servers.CASES,
    "limited": limited.CASES,
}
GROUPS = {group: with_differences(cases) for group, cases in _CASES.items()}
ALL = tuple(case for cases in GROUPS.values() for case in cases)
