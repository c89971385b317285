"""From a node's row to the address and client that reach it."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import gettext as _

from registry.errors import RegistryError
from registry.models import NodeKind, ServingNode
from registry.services.fleet import node_admin_secret
from workers.node_client import flotilla
from workers.node_client.client import NodeAddress, NodeClient
from workers.node_client.errors import NodeClientError, NodeErrorCode


def address_of(node: ServingNode) -> NodeAddress:
    """Return where a node listens, with its secret opened.

    Raises:
        NodeClientError: the row has no admin endpoint, the secret cannot be opened, or nothing here drives its kind.
    """
    if node.kind != NodeKind.FLOTILLA:
        raise NodeClientError(
            NodeErrorCode.INVALID, _("Nodes of kind %(kind)s cannot be driven yet.") % {"kind": node.kind}
        )
    admin_url = str(node.endpoints.get("admin", ""))
    if not admin_url:
        raise NodeClientError(NodeErrorCode.INVALID, _("%(node)s gave no admin endpoint.") % {"node": node.name})
    try:
        secret = node_admin_secret(node)
    except RegistryError as error:
        raise NodeClientError(NodeErrorCode.UNAUTHORIZED, error.message) from error
    return NodeAddress(
        name=node.name,
        admin_url=admin_url,
        metrics_url=str(node.endpoints.get("metrics", "")),
        admin_secret=secret,
        ca_file=settings.NODE_CA_FILE,
    )


def connect(address: NodeAddress) -> NodeClient:
    """Return the client of a node; the default ``Connect`` of everything that talks to nodes."""
    return flotilla.connect(address)
