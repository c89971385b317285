"""The public keys of issuers: read from the issuer, kept in its row, read again when they are old or one is new."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.addresses import parse_networks
from registry.domain.ci_trust import ALGORITHMS
from registry.errors import IssuerUnavailable
from registry.models import Issuer
from registry.outgoing import Refused, get_json
from registry.services import audit
from registry.services.permissions import require

FETCH_SECONDS = 5.0
MAX_DOCUMENT_BYTES = 64 * 1024
MAX_KEYS = 50
# Issuers change keys rarely, and publish new ones before they use them.
_FRESH = timedelta(hours=1)
# So long keys are believed while the issuer cannot be reached.
_STALE = timedelta(hours=24)
# Whoever sends tokens with invented key names makes us ask no more often than this.
_PAUSE = timedelta(seconds=30)
_KINDS = {"RSA": ("kty", "n", "e", "kid", "alg"), "EC": ("kty", "crv", "x", "y", "kid", "alg")}


def key_of(issuer: Issuer, kid: str, *, now: datetime) -> Mapping[str, Any] | None:
    """Return the issuer's public key of that name as a JWK, None when it has none.

    Asks the issuer when what is kept is an hour old or the name is unknown, at most every 30 seconds.

    Raises:
        IssuerUnavailable: it cannot be asked, and what is kept is too old to be believed.
    """
    found = _find(issuer, kid)
    fetched = issuer.keys_fetched_at
    if found is not None and fetched is not None and now - fetched <= _FRESH:
        return found
    due = Q(keys_tried_at=None) | Q(keys_tried_at__lte=now - _PAUSE)
    if Issuer.objects.filter(due, pk=issuer.pk).update(keys_tried_at=now):
        _refresh(issuer, now)
    else:
        issuer.refresh_from_db()
    if issuer.keys_fetched_at is None or now - issuer.keys_fetched_at > _STALE:
        reason = issuer.keys_problem or _("somebody else asks it just now")
        raise IssuerUnavailable(
            _("The keys of issuer “%(issuer)s” cannot be read: %(reason)s") % {"issuer": issuer.slug, "reason": reason}
        )
    return _find(issuer, kid)


def issuer_read_keys(*, issuer: Issuer, actor: Actor) -> Issuer:
    """Ask the issuer for its keys now; ``keys_problem`` says why there are none. Site administrators only."""
    require(actor, "site.issuers")
    now = timezone.now()
    Issuer.objects.filter(pk=issuer.pk).update(keys_tried_at=now)
    _refresh(issuer, now)
    after = {"keys": len(issuer.keys), "problem": issuer.keys_problem}
    audit.record(actor=actor, action="issuer.read_keys", obj=issuer, after=after)
    return issuer


def fetch_keys(url: str) -> list[dict[str, Any]]:
    """Return the public signing keys of the issuer at ``url``.

    Raises:
        Refused: it cannot be reached, or what it answers is not what an issuer answers.
    """
    described = _get(f"{url}/.well-known/openid-configuration")
    if described.get("issuer") != url:
        raise Refused(_("It calls itself by another name than %(url)s.") % {"url": url})
    where = described.get("jwks_uri")
    if not isinstance(where, str) or urlsplit(where)[:2] != urlsplit(url)[:2]:
        raise Refused(_("Its keys are not at its own address."))
    listed = _get(where).get("keys")
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise Refused(_("Its list of keys is none, or has more than %(limit)d.") % {"limit": MAX_KEYS})
    keys = [{name: key[name] for name in _KINDS[key["kty"]] if name in key} for key in listed if _is_usable(key)]
    if not keys:
        raise Refused(_("It has no key for RS256 or ES256."))
    return keys


def _refresh(issuer: Issuer, now: datetime) -> None:
    """Ask, and note the keys or why there are none; what was kept stays then."""
    try:
        issuer.keys, issuer.keys_fetched_at, issuer.keys_problem = fetch_keys(issuer.url), now, ""
    except Refused as error:
        issuer.keys_problem = str(error)[:500]
    newer = Q(keys_fetched_at=None) | Q(keys_fetched_at__lte=F("keys_tried_at"))
    Issuer.objects.filter(newer, pk=issuer.pk).update(
        keys=issuer.keys, keys_fetched_at=issuer.keys_fetched_at, keys_problem=issuer.keys_problem
    )


def _get(url: str) -> dict[str, Any]:
    document = get_json(
        url,
        allowed=parse_networks(settings.ISSUER_ALLOWED_NETWORKS),
        seconds=FETCH_SECONDS,
        max_bytes=MAX_DOCUMENT_BYTES,
    )
    if not isinstance(document, dict):
        raise Refused(_("%(url)s does not answer an object.") % {"url": url})
    return document


def _is_usable(key: Any) -> bool:
    return (
        isinstance(key, dict)
        and key.get("kty") in _KINDS
        and isinstance(key.get("kid"), str)
        and key.get("use", "sig") == "sig"
        and key.get("alg", ALGORITHMS[0]) in ALGORITHMS
        and all(isinstance(value, str) for name, value in key.items() if name in _KINDS[key["kty"]])
    )


def _find(issuer: Issuer, kid: str) -> Mapping[str, Any] | None:
    return next((key for key in issuer.keys if key.get("kid") == kid), None)
