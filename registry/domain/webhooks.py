"""Outgoing webhooks: which events there are, what is sent, how it is signed, when it is tried again. Pure.

Source of ids, headers and signatures: Standard Webhooks 1.0.0 (standardwebhooks.com).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from registry.domain.texts import gettext as _

TEST_EVENT = "webhook.test"
SECRET_PREFIX = "whsec_"  # noqa: S105
SECRET_BYTES = 32
MAX_DETAILS_BYTES = 16 * 1024
# Failing for this long, a webhook is switched off.
DISABLE_AFTER = timedelta(days=5)
# How long the secret before a rotation still signs beside the new one.
SECRET_OVERLAP = timedelta(hours=24)
# The pause after each failed attempt; after the last one the delivery has failed. About three days in all.
PAUSES = tuple(timedelta(seconds=seconds) for seconds in (5, 60, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400))
MAX_ATTEMPTS = len(PAUSES) + 1
# A receiver that failed a few times is left alone for a while, whatever else waits for it.
_REST = tuple(timedelta(seconds=seconds) for seconds in (5, 15, 60, 300))


@dataclass(frozen=True, slots=True)
class EventType:
    """One type of event. ``sentence`` takes ``%(actor)s`` and ``%(label)s``; ``when`` is for the documentation.

    Both are in English: what is sent must not depend on the language of who caused it.
    """

    name: str
    when: str
    sentence: str


def _events(*rows: tuple[str, str, str]) -> dict[str, EventType]:
    return {name: EventType(name, when, sentence) for name, when, sentence in rows}


# The names are those of the audit log; the ends of rollouts are added to them.
PROJECT_EVENTS = _events(
    ("model.create", "a model is made", "%(actor)s made the model %(label)s."),
    ("model.update", "a model's description, tags, task, links or owner change", "%(actor)s changed %(label)s."),
    ("model.archived", "a model is archived", "%(actor)s archived the model %(label)s."),
    ("model.active", "a model is restored", "%(actor)s restored the model %(label)s."),
    ("model.delete", "a model is deleted with its versions", "%(actor)s deleted the model %(label)s."),
    ("card.save", "a model's card is changed", "%(actor)s stored %(label)s."),
    ("samples.save", "sample inputs of a model or version change", "%(actor)s stored %(label)s."),
    ("alias.set", "an alias is made, moved, protected or freed", "%(actor)s set the alias %(label)s."),
    ("alias.delete", "an alias is deleted", "%(actor)s deleted the alias %(label)s."),
    ("version.submit", "a version is submitted for its checks", "%(actor)s submitted %(label)s."),
    ("version.ready", "a version passed its checks, or is restored", "%(label)s is ready."),
    ("version.reject", "a check refused a version", "%(label)s is rejected."),
    ("version.annotate", "metrics or metadata of a version change", "%(actor)s annotated %(label)s."),
    ("version.archived", "a version is archived", "%(actor)s archived %(label)s."),
    ("version.quarantined", "a version must not be deployed any more", "%(actor)s quarantined %(label)s."),
    ("version.recheck", "somebody asks for a check once more", "%(actor)s checks %(label)s again."),
    ("version.abandon", "an upload is given up", "%(actor)s abandoned %(label)s."),
    ("version.fetch", "the files of a version are fetched from an address", "%(actor)s fetches files of %(label)s."),
    ("version.rearrange", "an archive or folder was unpacked into a version", "%(label)s was unpacked."),
    ("version.divide", "an upload was taken apart into other versions", "%(label)s was taken apart."),
    ("version.permit_code", "somebody lets nodes run a version's code", "%(actor)s permitted the code in %(label)s."),
    ("version.withdraw_code", "nodes may run a version's code no more", "%(actor)s withdrew the code of %(label)s."),
    ("config.create", "a serving config is stored", "%(actor)s stored the config %(label)s."),
    ("deployment.create", "a model is first deployed on a fleet", "%(actor)s made the deployment %(label)s."),
    ("deployment.deploy", "a change of a deployment is put in force", "%(actor)s deployed %(label)s."),
    ("deployment.traffic", "traffic is moved between versions", "%(actor)s moved traffic of %(label)s."),
    ("deployment.rollback", "a deployment goes back to what it was", "%(actor)s rolled back %(label)s."),
    ("rollout.succeeded", "a change serves on all nodes", "The rollout of %(label)s succeeded."),
    ("rollout.pause", "a rollout is held where it is", "%(actor)s paused the rollout of %(label)s."),
    ("rollout.resume", "a paused rollout goes on", "%(actor)s resumed the rollout of %(label)s."),
    ("rollout.abort", "a rollout is stopped and goes back", "The rollout of %(label)s is aborted."),
    ("rollout.rolled_back", "a stopped rollout has gone back", "The rollout of %(label)s is rolled back."),
    ("rollout.failed", "a rollout ended without success", "The rollout of %(label)s failed."),
    ("approval.request", "a change needs approval", "%(actor)s asks for approval: %(label)s."),
    ("approval.approve", "a reviewer approves", "%(actor)s approved: %(label)s."),
    ("approval.request_changes", "a reviewer asks for changes", "%(actor)s asks for changes: %(label)s."),
    ("approval.reject", "a reviewer rejects", "%(actor)s rejected: %(label)s."),
    ("approval.comment", "somebody comments on a request", "%(actor)s commented: %(label)s."),
    ("approval.wait", "an approved change waits for its time", "An approved change waits: %(label)s."),
    ("approval.bypass", "somebody starts a change past the rules", "%(actor)s bypassed the rules: %(label)s."),
    ("approval.withdraw", "a request is withdrawn", "%(actor)s withdrew: %(label)s."),
    ("approval.void", "what a request is bound to has changed", "The request is void: %(label)s."),
    ("approval.expire", "nobody decided in time", "The request has expired: %(label)s."),
    ("membership.set", "an account gets a role", "%(actor)s set a role: %(label)s."),
    ("membership.remove", "an account is taken out of the project", "%(actor)s removed a member: %(label)s."),
    ("project_token.expires_soon", "an API key of the project ends within a week", "The API key %(label)s ends soon."),
    ("project.size_limits", "the limits for the size of versions change", "%(actor)s changed size limits: %(label)s."),
    ("project.licence_policy", "the policy for licences changes", "%(actor)s changed the licence policy: %(label)s."),
    (
        "signing_identity.add",
        "a signing identity is trusted",
        "%(actor)s trusts the signing identity %(label)s.",
    ),
    (
        "signing_identity.remove",
        "a signing identity is trusted no longer",
        "%(actor)s removed the signing identity %(label)s.",
    ),
    ("signing_key.add", "a signing key is trusted", "%(actor)s trusts the signing key %(label)s."),
    ("signing_key.remove", "a signing key is trusted no longer", "%(actor)s removed the signing key %(label)s."),
    ("trust_rule.create", "CI jobs of a repository are trusted", "%(actor)s made the trust rule %(label)s."),
    ("trust_rule.update", "a trust rule changes", "%(actor)s changed the trust rule %(label)s."),
    ("trust_rule.delete", "a trust rule is deleted", "%(actor)s deleted the trust rule %(label)s."),
)  # fmt: skip
SITE_EVENTS = _events(
    ("node.join", "a node joins", "Node %(label)s joined."),
    ("node.cordon", "a node takes nothing new", "%(actor)s cordoned node %(label)s."),
    ("node.uncordon", "a node takes work again", "%(actor)s uncordoned node %(label)s."),
    ("node.drain", "a node is drained", "%(actor)s drains node %(label)s."),
    ("node.retire", "a node leaves for good", "%(actor)s retired node %(label)s."),
    ("fleet.create", "a fleet is made", "%(actor)s made the fleet %(label)s."),
    ("fleet.update", "a fleet's name or selector changes", "%(actor)s changed the fleet %(label)s."),
    ("fleet.delete", "a fleet is deleted", "%(actor)s deleted the fleet %(label)s."),
    ("environment.create", "an environment is made", "%(actor)s made the environment %(label)s."),
    ("environment.update", "the protection of an environment changes", "%(actor)s changed the environment %(label)s."),
    ("environment.delete", "an environment is deleted", "%(actor)s deleted the environment %(label)s."),
    ("user.create", "an account is made", "%(actor)s made the account %(label)s."),
    ("user.update", "an account's role, name or address changes", "%(actor)s changed the account %(label)s."),
    ("user.sign_in", "somebody signs in", "%(label)s signed in."),
    ("user.sign_in_failed", "a sign-in fails", "A sign-in failed: %(label)s."),
    ("user.second_factor_added", "somebody adds a second factor", "%(label)s added a second factor."),
    ("user.second_factor_removed", "somebody removes a second factor", "%(label)s removed a second factor."),
    ("user.second_factor_reset", "lost second factors are taken away", "%(actor)s took the factors of %(label)s away."),
    ("session.end", "a session is ended from afar", "%(actor)s ended a session of %(label)s."),
    ("sso_provider.create", "a provider of single sign-on is added", "%(actor)s added the provider %(label)s."),
    ("sso_provider.update", "a provider of single sign-on changes", "%(actor)s changed the provider %(label)s."),
    ("sso_provider.delete", "a provider of single sign-on is deleted", "%(actor)s deleted the provider %(label)s."),
    ("scim_token.create", "a token for provisioning is made", "%(actor)s made the SCIM token %(label)s."),
    ("scim_token.revoke", "a token for provisioning is revoked", "%(actor)s revoked the SCIM token %(label)s."),
    ("scim_group.create", "a provider makes a group", "%(actor)s made the group %(label)s."),
    ("scim_group.update", "a provider changes a group or its members", "%(actor)s changed the group %(label)s."),
    ("scim_group.delete", "a provider deletes a group", "%(actor)s deleted the group %(label)s."),
    ("user.set_active", "an account is blocked or let in again", "%(actor)s blocked or let in %(label)s."),
    ("service_account.delete", "a service account is deleted", "%(actor)s deleted the service account %(label)s."),
    ("token.expires_soon", "an API key of no project ends within a week", "The API key %(label)s ends soon."),
    ("issuer.create", "an issuer of CI tokens is put on the list", "%(actor)s put the issuer %(label)s on the list."),
    ("issuer.update", "an issuer is changed or disabled", "%(actor)s changed the issuer %(label)s."),
    ("issuer.delete", "an issuer is taken from the list", "%(actor)s took the issuer %(label)s from the list."),
)  # fmt: skip
TEST = EventType(TEST_EVENT, "somebody asks for a test", "%(actor)s tests the webhook %(label)s.")


def event_type(name: str, *, of_project: bool) -> EventType | None:
    """Return the type of that name, None when it is none that webhooks get."""
    return (PROJECT_EVENTS if of_project else SITE_EVENTS).get(name)


def pattern_problem(pattern: str, *, of_project: bool) -> str:
    """Return why a pattern names no event, empty when it does: ``*``, ``version.*`` or ``version.ready``."""
    known = PROJECT_EVENTS if of_project else SITE_EVENTS
    if pattern == "*" or pattern in known:
        return ""
    noun, _dot, rest = pattern.partition(".")
    if rest == "*" and any(name.startswith(f"{noun}.") for name in known):
        return ""
    return _("There is no event “%(pattern)s”.") % {"pattern": pattern[:100]}


def is_wanted(name: str, patterns: Iterable[str]) -> bool:
    """Say whether one of the patterns covers the event."""
    noun = name.partition(".")[0]
    return any(pattern in ("*", name, f"{noun}.*") for pattern in patterns)


def origin_of(url: str) -> str:
    """Return scheme, host and port: what is shown of an address, whose path may be a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def message_id(event_id: uuid.UUID) -> str:
    """Return the ``webhook-id`` of an event: the same for every attempt, replay and receiver."""
    return f"msg_{event_id.hex}"


def payload(
    kind: EventType,
    *,
    at: datetime,
    project: str,
    actor: str,
    subject: Mapping[str, str],
    details: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the body of an event. ``subject`` has type, id, label and url; details over 16 KiB are left out."""
    words = {"actor": actor, "label": subject["label"]}
    kept = dict(details or {})
    if len(json.dumps(kept, default=str)) > MAX_DETAILS_BYTES:
        kept = {"left_out": True}
    return {
        "type": kind.name,
        "timestamp": at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "data": {
            "project": project or None,
            "actor": actor,
            "text": kind.sentence % words,
            "object": dict(subject),
            "details": kept,
        },
    }


def body_bytes(document: Mapping[str, Any], *, slack: bool) -> bytes:
    """Return what is sent for a payload: itself, or a message that Slack's incoming webhooks take.

    The same payload always gives the same bytes.
    """
    content = {"text": slack_text(document)} if slack else document
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def slack_text(document: Mapping[str, Any]) -> str:
    """Return one line in Slack's markup, with a link to the page and the reason or comment where there is one."""
    data = document["data"]
    text = _escaped(str(data["text"]))
    if data["object"].get("url"):
        text = f"<{_escaped(data['object']['url'])}|{text.replace('|', '¦')}>"
    why = data["details"].get("reason") or data["details"].get("comment") or ""
    project = f"*{_escaped(data['project'])}*: " if data["project"] else ""
    quote = _escaped(str(why)).replace("\n", "\n> ")
    return project + text + (f"\n> {quote}" if why else "")


def _escaped(text: str) -> str:
    # Otherwise a label like <!channel> would call everybody.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def new_secret(random: bytes) -> str:
    """Return a signing secret made of random bytes."""
    return SECRET_PREFIX + base64.b64encode(random).decode()


def sign(secret: str, message: str, timestamp: int, body: bytes) -> str:
    """Return ``v1,<base64 of HMAC-SHA256>`` over id, timestamp (seconds) and body."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("a signing secret is base64 after whsec_") from error
    signed = f"{message}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def headers(secrets: Sequence[str], message: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of one attempt, with a signature of each secret."""
    return {
        "Content-Type": "application/json",
        "User-Agent": "Flotilla-Webhooks/1",
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(secret, message, timestamp, body) for secret in secrets),
    }


def pause_after(attempts: int, spread: float, asked: timedelta | None = None) -> timedelta | None:
    """Return how long to wait after so many failed attempts; None: that was the last one.

    ``spread`` in 0..1 adds up to a tenth, so that what failed together is not tried together.
    ``asked`` is the receiver's Retry-After; it makes the pause longer, up to the longest one.
    """
    if attempts > len(PAUSES):
        return None
    pause = PAUSES[attempts - 1] * (1 + 0.1 * spread)
    return max(pause, min(asked or timedelta(), PAUSES[-1]))


def rest_after(failures: int) -> timedelta:
    """Return how long a receiver is left alone after so many failed attempts in a row."""
    return _REST[min(failures, len(_REST)) - 1]


def is_success(status: int) -> bool:
    """Say whether an HTTP status means that the receiver has taken the event."""
    return 200 <= status < 300
