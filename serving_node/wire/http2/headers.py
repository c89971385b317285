"""HTTP/2 header blocks: decoding with a memo, validation, and stateless encoding.

Decoding a block costs tens of microseconds in Python, and a client sends the same few bytes for every request once
its dynamic table has settled. A block decodes to the same list as long as the dynamic table has not changed, so the
result is kept until then. Sending uses literals that touch no dynamic table: blocks are constants.

Source: RFC 7541, RFC 9113 section 8.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpack import Decoder, HPACKError
from hpack.table import HeaderTable

# Bounds on what one connection may keep: blocks, bytes of a block, bytes of its headers.
_MEMO_ENTRIES = 64
_MEMO_BLOCK_BYTES = 1024
_MEMO_LIST_BYTES = 4096
# A list larger than announced is decoded up to this many times its size: refusing one request must not end the others.
_BEARABLE = 8
# what each field counts for beside its bytes, RFC 9113 section 6.5.2
_FIELD_BYTES = 32
_STATIC_NAMES = {name: index for index, (name, _) in reversed(list(enumerate(HeaderTable.STATIC_TABLE, 1)))}
_STATIC_FIELDS = {pair: index for index, pair in enumerate(HeaderTable.STATIC_TABLE, 1) if pair[1]}
_PSEUDO = frozenset({b":method", b":scheme", b":authority", b":path"})
_CONNECTION_SPECIFIC = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
_UPPER = frozenset(range(ord("A"), ord("Z") + 1))


_NONE: dict[bytes, bytes] = {}


class HeadersError(Exception):
    """A block cannot be decoded: the compression state is lost and the connection with it."""


class RequestHeaders:
    """The validated headers of a request. Shared by all requests with the same block: never changed.

    ``fields`` has the regular headers, repeated ones joined by ``","``; ``last_values`` the last value of those.
    ``annotation`` is for whoever serves the
    request: what it computes from the headers may be kept here and is then computed once for all such requests.
    ``list_bytes`` is the size of the list as RFC 9113 counts it.
    """

    __slots__ = ("annotation", "authority", "fields", "last_values", "list_bytes", "method", "path", "scheme")

    def __init__(self, method: bytes, scheme: bytes, path: bytes, authority: bytes, fields: dict[bytes, bytes]) -> None:
        self.method = method
        self.scheme = scheme
        self.path = path
        self.authority = authority
        self.fields = fields
        self.annotation: object = None
        self.list_bytes = 0
        self.last_values: dict[bytes, bytes] = _NONE


class _WatchedTable(HeaderTable):
    """A dynamic table that tells whether it has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.additions = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.additions += 1
        super().add(name, value)

    def state(self) -> tuple[int, int, int]:
        """Return something that differs whenever the content or the size of the table does."""
        return self.additions, len(self.dynamic_entries), self.maxsize


class HeaderDecoder:
    """Decodes the header blocks of one connection, in order."""

    def __init__(self, max_list_bytes: int) -> None:
        self._decoder = Decoder(max_header_list_size=_BEARABLE * max_list_bytes)
        self._table = _WatchedTable()
        self._decoder.header_table = self._table
        self._memo: dict[bytes, RequestHeaders | None] = {}

    def decode(self, block: bytes) -> RequestHeaders | None:
        """Return the headers of a request, or None when the request is malformed (a stream error).

        Raises:
            HeadersError: not HPACK, or larger than allowed.
        """
        try:
            return self._memo[block]
        except KeyError:
            pass
        before = self._table.state()
        pairs = self._decode(block)
        headers = validate_request(pairs)
        if headers is not None:
            headers.list_bytes = sum(len(name) + len(value) + _FIELD_BYTES for name, value in pairs)
        if self._table.state() != before:
            self._memo.clear()
        elif len(block) <= _MEMO_BLOCK_BYTES and sum(len(n) + len(v) for n, v in pairs) <= _MEMO_LIST_BYTES:
            if len(self._memo) >= _MEMO_ENTRIES:
                self._memo.clear()
            self._memo[block] = headers
        return headers

    def decode_trailers(self, block: bytes) -> None:
        """Decode a block only to keep the compression state. Raises HeadersError."""
        before = self._table.state()
        self._decode(block)
        if self._table.state() != before:
            self._memo.clear()

    def _decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        try:
            return list(self._decoder.decode(block, raw=True))
        except (HPACKError, IndexError, ValueError) as error:
            raise HeadersError(str(error)) from error


def validate_request(pairs: list[tuple[bytes, bytes]]) -> RequestHeaders | None:
    """Return the headers if they make a well-formed request, otherwise None."""
    pseudo: dict[bytes, bytes] = {}
    fields: dict[bytes, bytes] = {}
    last_values: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name.startswith(b":"):
            if fields or name not in _PSEUDO or name in pseudo:
                return None
            pseudo[name] = value
        elif not _field_is_valid(name, value):
            return None
        elif name in fields:
            fields[name] += b"," + value
            last_values[name] = value
        else:
            fields[name] = value
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not method or not path or b":scheme" not in pseudo:
        return None
    headers = RequestHeaders(method, pseudo[b":scheme"], path, pseudo.get(b":authority", b""), fields)
    if last_values:
        headers.last_values = last_values
    return headers


def _field_is_valid(name: bytes, value: bytes) -> bool:
    if not name or not _UPPER.isdisjoint(name) or name in _CONNECTION_SPECIFIC:
        return False
    if name == b"te" and value != b"trailers":
        return False
    return b"\r" not in value and b"\n" not in value and b"\0" not in value


def encode_headers(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a header block that neither uses nor changes the dynamic table."""
    out = bytearray()
    for pair in pairs:
        name, value = pair
        if pair in _STATIC_FIELDS:
            out.append(0x80 | _STATIC_FIELDS[pair])
            continue
        index = _STATIC_NAMES.get(name)
        if index is None:
            out.append(0)
            _append_string(out, name)
        else:
            _append_integer(out, index, 4, 0)
        _append_string(out, value)
    return bytes(out)


def _append_string(out: bytearray, text: bytes) -> None:
    _append_integer(out, len(text), 7, 0)
    out += text


def _append_integer(out: bytearray, number: int, prefix_bits: int, flags: int) -> None:
    limit = (1 << prefix_bits) - 1
    if number < limit:
        out.append(flags | number)
        return
    out.append(flags | limit)
    number -= limit
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
