"""Accounts, groups and the service itself as SCIM 2.0 shows them. Source: RFC 7643 sections 4.1, 4.2, 5 to 7."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from registry.domain.scim import USER
from registry.domain.scim_groups import GROUP
from registry.models import ScimGroup, User

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


def group_document(group: ScimGroup, *, has_members: bool = True) -> dict[str, Any]:
    """Return a group, with its members unless ``has_members`` is false."""
    document: dict[str, Any] = {
        "schemas": [GROUP],
        "id": str(group.pk),
        "displayName": group.display_name,
        "meta": {
            "resourceType": "Group",
            "created": group.created_at.isoformat(),
            "location": f"{root()}/Groups/{group.pk}",
        },
    }
    if group.external_id:
        document["externalId"] = group.external_id
    if has_members:
        document["members"] = [
            {"value": str(user.pk), "display": user.username, "type": "User", "$ref": f"{root()}/Users/{user.pk}"}
            for user in group.members.all()
        ]
    return document


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


def resource_types() -> list[dict[str, Any]]:
    """Return the types of resources."""
    return [
        {
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ResourceType"],
            "id": name,
            "name": name,
            "endpoint": f"/{name}s",
            "schema": schema,
            "meta": {"resourceType": "ResourceType", "location": f"{root()}/ResourceTypes/{name}"},
        }
        for name, schema in (("User", USER), ("Group", GROUP))
    ]


def schema_documents() -> list[dict[str, Any]]:
    """Return the attributes that are kept of users and of groups."""
    parts = [_attribute("givenName"), _attribute("familyName")]
    email = [_attribute("value"), _attribute("type"), _attribute("primary", "boolean")]
    member = [_attribute("value", caseExact=True, mutability="immutable"), _attribute("display", mutability="readOnly")]
    user = [
        _attribute("userName", required=True, uniqueness="server"),
        _attribute("externalId", caseExact=True),
        _attribute("name", "complex", subAttributes=parts),
        _attribute("emails", "complex", multiValued=True, subAttributes=email),
        _attribute("active", "boolean"),
    ]
    group = [
        _attribute("displayName", required=True, uniqueness="server"),
        _attribute("externalId", caseExact=True),
        _attribute("members", "complex", multiValued=True, subAttributes=member),
    ]
    return [_schema(USER, "User", user), _schema(GROUP, "Group", group)]


def _schema(urn: str, name: str, attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:Schema"],
        "id": urn,
        "name": name,
        "attributes": attributes,
        "meta": {"resourceType": "Schema", "location": f"{root()}/Schemas/{urn}"},
    }


def _attribute(name: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    plain = {"multiValued": False, "required": False, "caseExact": False, "mutability": "readWrite"}
    return {"name": name, "type": kind, **plain, "returned": "default", "uniqueness": "none", **more}
