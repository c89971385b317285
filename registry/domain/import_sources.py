"""Which addresses files may be fetched from. Pure: the operator's list of beginnings decides, and nothing else.

A beginning is an address up to and with a ``/``: ``https://models.example.com/public/``, ``s3://bucket/released/``,
``file:///srv/models/``. Whoever names it there trusts what answers there, so private hosts are no matter here.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from registry.domain.texts import gettext as _

WEB_SCHEMES = frozenset({"http", "https"})
"""One file at an address. Of the other schemes everything below a prefix is fetched."""
STORE_SCHEMES = frozenset({"s3", "gs", "az", "file"})
MAX_ADDRESS = 2000


def source_problem(address: str, sources: Sequence[str]) -> str:
    """Return why ``address`` may not be fetched from, empty when it may."""
    if not address.isascii() or not address.isprintable() or " " in address or len(address) > MAX_ADDRESS:
        return _("An address has at most %(limit)d characters, all of them visible ASCII.") % {"limit": MAX_ADDRESS}
    try:
        parts = urlsplit(address)
        _port = parts.port
    except ValueError:
        return _("This is no address.")
    if parts.scheme not in WEB_SCHEMES | STORE_SCHEMES:
        return _("Files are fetched from addresses that begin with %(schemes)s.") % {
            "schemes": ", ".join(f"{scheme}://" for scheme in sorted(WEB_SCHEMES | STORE_SCHEMES))
        }
    if parts.username is not None or parts.password is not None or parts.fragment or "\\" in address:
        return _("An address holds no user, no password, no fragment and no backslash.")
    # As often as anybody might decode it, so that no spelling of ".." leads out of a beginning.
    path = unquote(unquote(parts.path))
    if ".." in path.split("/") or "%" in path:
        return _("The path of an address holds no “..” and no doubly encoded signs.")
    if parts.scheme in WEB_SCHEMES and not path.rpartition("/")[2]:
        return _("The address must end with the name of a file.")
    if not any(_begins(address, source) for source in sources):
        if not sources:
            return _("This server fetches from nowhere; its operator can allow addresses (FLOTILLA_IMPORT_SOURCES).")
        return _("This server fetches only from %(sources)s.") % {"sources": ", ".join(sources)}
    return ""


def _begins(address: str, source: str) -> bool:
    whole, beginning = urlsplit(address), urlsplit(source)
    path = beginning.path if beginning.path.endswith("/") else f"{beginning.path}/"
    return (
        whole.scheme == beginning.scheme
        and whole.netloc.lower() == beginning.netloc.lower()
        and f"{whole.path}/".startswith(path)
    )
