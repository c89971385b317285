"""Accounts and the service itself as SCIM 2.0 shows them. Source: RFC 7643 sections 4.1, 5 to 7."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from registry.domain.scim import USER
from registry.models import User

LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
MOST_ROWS = 200


def root() -> str:
    """Return the address of the service."""
    return f"{settings.PUBLIC_URL}/scim/v2"


def user_document(user: User) -> dict[str, Any]:
    """Return an account as a SCIM user."""
    document: dict[str, Any] = {
        "schemas": [USER],
        "id": str(user.pk),
        "userName": user.username,
        "name": {"givenName": user.first_name, "familyName": user.last_name},
        "displayName": user.get_full_name() or user.username,
        "active": user.is_active,
        "emails": [{"value": user.email, "type": "work", "primary": True}] if user.email else [],
        "meta": {
            "resourceType": "User",
            "created": user.date_joined.isoformat(),
            "location": f"{root()}/Users/{user.pk}",
        },
    }
    return {**document, "externalId": user.external_id} if user.external_id else document


def list_document(rows: list[dict[str, Any]], *, total: int, start: int) -> dict[str, Any]:
    """Return one page of documents; ``start`` counts from 1."""
    return {"schemas": [LIST], "totalResults": total, "startIndex": start, "itemsPerPage": len(rows), "Resources": rows}


def error_document(status: int, sentence: str, kind: str = "") -> dict[str, Any]:
    """Return an error; ``kind`` is the standard's word for it."""
    document = {"schemas": [ERROR], "status": str(status), "detail": sentence}
    return {**document, "scimType": kind} if kind else document


def service_document() -> dict[str, Any]:
    """Return what the service can do."""
    scheme = {
        "type": "oauthbearertoken",
        "name": "Bearer token",
        "description": "A token that a site administrator makes under Settings > Single sign-on > SCIM tokens.",
        "primary": True,
    }
    return {
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"],
        "patch": {"supported": True},
        "bulk": {"supported": False, "maxOperations": 0, "maxPayloadSize": 0},
        "filter": {"supported": True, "maxResults": MOST_ROWS},
        "changePassword": {"supported": False},
        "sort": {"supported": False},
        "etag": {"supported": False},
        "authenticationSchemes": [scheme],
        "meta": {"resourceType": "ServiceProviderConfig", "location": f"{root()}/ServiceProviderConfig"},
    }


def resource_type() -> dict[str, Any]:
    """Return the one type of resource."""
    return {
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ResourceType"],
        "id": "User",
        "name": "User",
        "endpoint": "/Users",
        "schema": USER,
        "meta": {"resourceType": "ResourceType", "location": f"{root()}/ResourceTypes/User"},
    }


def schema_document() -> dict[str, Any]:
    """Return the attributes of a user that are kept."""

    def attribute(name: str, kind: str = "string", **more: Any) -> dict[str, Any]:
        plain = {"multiValued": False, "required": False, "caseExact": False, "mutability": "readWrite"}
        return {"name": name, "type": kind, **plain, "returned": "default", "uniqueness": "none", **more}

    parts = [attribute("givenName"), attribute("familyName")]
    email = [attribute("value"), attribute("type"), attribute("primary", "boolean")]
    return {
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:Schema"],
        "id": USER,
        "name": "User",
        "attributes": [
            attribute("userName", required=True, uniqueness="server"),
            attribute("externalId", caseExact=True),
            attribute("name", "complex", subAttributes=parts),
            attribute("emails", "complex", multiValued=True, subAttributes=email),
            attribute("active", "boolean"),
        ],
        "meta": {"resourceType": "Schema", "location": f"{root()}/Schemas/{USER}"},
    }
