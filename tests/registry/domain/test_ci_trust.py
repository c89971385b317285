from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain import ci_trust as domain
from tests.registry.issuer import GITHUB, GITLAB


@dataclasses.dataclass(frozen=True)
class Rule:
    repository_id: str = "4711"
    owner_id: str = "99"
    protected_ref: bool = True
    ref: str = ""
    environment: str = ""
    workflow: str = ""
    events: tuple[str, ...] = ("push",)


CLAIMS: dict[str, dict[str, Any]] = {"github": GITHUB, "gitlab": GITLAB}


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_claims_of_both_kinds_say_the_same(kind: str) -> None:
    job = domain.job_of(kind, CLAIMS[kind])
    assert (job.repository_id, job.owner_id, job.ref, job.is_ref_protected) == ("4711", "99", "refs/heads/main", True)
    assert domain.failures(Rule(), job) == []
    assert domain.failures(Rule(ref="refs/heads/main", workflow=job.workflow), job) == []
    named = domain.actor_name(job, "ci-swift")
    assert named == f"ci: {job.path}@refs/heads/main run 123 via ci-swift"


def test_a_tag_of_gitlab_is_no_branch() -> None:
    job = domain.job_of("gitlab", {**GITLAB, "ref_type": "tag"})
    assert job.ref == "refs/tags/main"


@pytest.mark.parametrize(
    ("rule", "change", "word"),
    [
        (Rule(), {"repository_id": "1"}, "another repository"),
        (Rule(), {"repository_owner_id": "1"}, "another repository"),
        (Rule(), {"ref_protected": "false", "ref": "refs/heads/try"}, "refs/heads/try"),
        (Rule(), {"ref_protected": None}, "not protected"),
        (Rule(ref="refs/heads/main"), {"ref": "refs/heads/main2"}, "refs/heads/main2"),
        (Rule(environment="production"), {"environment": "staging"}, "staging"),
        (Rule(environment="production"), {"environment": None}, "environment (none)"),
        (Rule(workflow=GITHUB["workflow_ref"]), {"workflow_ref": "octo/swift/x.yml@refs/heads/main"}, "x.yml"),
        (Rule(), {"event_name": "pull_request_target"}, "pull_request_target"),
    ],
)
def test_each_binding_that_fails_is_named(rule: Rule, change: dict[str, Any], word: str) -> None:
    claims = {name: value for name, value in {**GITHUB, **change}.items() if value is not None}
    failed = domain.failures(rule, domain.job_of("github", claims))
    assert len(failed) == 1 and word in failed[0]


def test_an_environment_alone_must_be_protected_where_the_issuer_says_so() -> None:
    rule = Rule(protected_ref=False, environment="production")
    claims = {**GITLAB, "ref_protected": "false", "environment": "production"}
    assert domain.failures(rule, domain.job_of("gitlab", claims)) == ["its environment (production) is not protected"]
    assert domain.failures(rule, domain.job_of("gitlab", {**claims, "environment_protected": "true"})) == []


@pytest.mark.parametrize("value", ["", "abc", "1 or 1=1", None, 1.5, True, ["4711"], {"a": 1}, "1" * 40])
def test_a_repository_has_a_number(value: Any) -> None:
    with pytest.raises(ValueError, match="repository_id"):
        domain.job_of("github", {**GITHUB, "repository_id": value})
    assert domain.job_of("github", {**GITHUB, "repository_id": 4711}).repository_id == "4711"


LEAVES = st.none() | st.booleans() | st.integers() | st.text()
JUNK = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(st.sampled_from(["github", "gitlab"]), st.dictionaries(st.sampled_from(sorted({*GITHUB, *GITLAB})), JUNK))
def test_only_a_job_of_the_rule_ever_passes(kind: str, change: dict[str, Any]) -> None:
    claims = {**CLAIMS[kind], **change}
    try:
        job = domain.job_of(kind, claims)
    except ValueError:
        return
    if not domain.failures(Rule(), job):
        assert (job.repository_id, job.owner_id, job.event) == ("4711", "99", "push")
        assert claims["ref_protected"] in (True, "true")


GOOD: dict[str, Any] = {
    "repository_id": "4711",
    "owner_id": "99",
    "protected_ref": True,
    "ref": "",
    "environment": "",
    "workflow": "",
    "events": ["push"],
    "scopes": ["write"],
    "lifetime_minutes": 15,
}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"repository_id": "octo/swift"}, "repository_id"),
        ({"owner_id": ""}, "owner_id"),
        ({"protected_ref": False}, "protected_ref"),
        ({"ref": "main"}, "ref"),
        ({"ref": "refs/heads/*"}, "ref"),
        ({"environment": " production"}, "environment"),
        ({"workflow": "a\nb"}, "workflow"),
        ({"events": []}, "events"),
        ({"events": ["Push!"]}, "events"),
        ({"scopes": ["admin"]}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"lifetime_minutes": 16}, "lifetime_minutes"),
        ({"lifetime_minutes": 0}, "lifetime_minutes"),
    ],
)
def test_a_rule_that_binds_too_little_is_refused(change: dict[str, Any], field: str) -> None:
    assert domain.rule_problems(**GOOD) == []
    assert [name for name, _sentence in domain.rule_problems(**{**GOOD, **change})] == [field]
