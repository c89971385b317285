"""JSON as Triton accepts it for a config: besides strict JSON also what protobuf's older parser let through.

That is: names without quotes, strings in single quotes, a comma before a closing bracket. Clients and examples in the
field rely on it (``{"parameters": {"config": "{max_batch_size: 8, ...}"}}``).
"""

from __future__ import annotations

import json
import re
from typing import Any

from serving_node.contract.errors import ContractError

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<single>'(?:[^'\\]|\\.)*')
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<other>[-+.\w]+|[][{}:,])""",
    re.VERBOSE,
)
_LITERALS = ("true", "false", "null")
_OPENING, _CLOSING = ("", "{", "["), ("}", "]")


def loads(text: str) -> Any:
    """Return the value that ``text`` describes.

    Raises:
        ContractError: not even lenient JSON, a name twice in one object, or nested too deeply.
    """
    try:
        try:
            return _strict(text)
        except json.JSONDecodeError:
            return _strict(_to_strict(text))
    except json.JSONDecodeError as error:
        message = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise ContractError(f"not valid JSON: {message}") from None
    except RecursionError:
        raise ContractError("not valid JSON: nested too deeply") from None
    except ContractError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise ContractError(f"not valid JSON: {error}") from None


def _strict(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if any(not _is_unicode(name) for name in result):
        raise ContractError("a field name is not valid Unicode")
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ContractError(f"field '{twice}' is given more than once", field=twice)
    return result


def _is_unicode(text: str) -> bool:
    """Return whether the text is without lone surrogates, which JSON can write but UTF-8 cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _refuse_constant(name: str) -> Any:
    raise ContractError(f"{name} is not a JSON number")


def _to_strict(text: str) -> str:
    """Return ``text`` with each lenient token replaced by its strict form; lines and columns may move within a line."""
    parts: list[str] = []
    position = 0
    previous = comma = ""  # the token before; a comma that is not written yet, because a bracket may follow
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise json.JSONDecodeError("Unexpected character", text, position)
        token, kind = match.group(), match.lastgroup
        position = match.end()
        if kind == "space":
            parts.append(token)
            continue
        if token not in _CLOSING or previous in _OPENING:
            parts.append(comma)
        comma = ""
        if token == ",":  # noqa: S105
            comma = ","
        else:
            parts.append(_strict_token(token, kind))
            previous = token
    return "".join([*parts, comma])


def _strict_token(token: str, kind: str | None) -> str:
    if kind == "single":
        body = re.sub(
            r"\\(.)|(\")", lambda m: '\\"' if m.group(2) else "'" if m.group(1) == "'" else m.group(), token[1:-1]
        )
        return f'"{body}"'
    if kind == "word" and token not in _LITERALS:
        return f'"{token}"'
    return token
