"""How the text of a flag becomes a value. Each raises ValueError with a part of a sentence."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from serving_node.frontends.compression_level import CompressionLevel
from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.repository.remote_location import RemoteLocation, is_remote, parse_location
from serving_node.repository.repository import ControlMode
from serving_node.scheduling.host_policies import SETTINGS
from serving_node.scheduling.rate_limit import Limit

TRUE = ("true", "on", "1")
FALSE = ("false", "off", "0")


def boolean(text: str) -> bool:
    """Read true, on, 1, false, off, 0 in any case."""
    lowered = text.lower()
    if lowered in TRUE:
        return True
    if lowered in FALSE:
        return False
    raise ValueError(f"'{text}' is neither true nor false")


def compression_level(text: str) -> CompressionLevel:
    """Read a level of compression, in upper or lower case."""
    try:
        return CompressionLevel(text.lower())
    except ValueError:
        raise ValueError(f"'{text}' is not one of {', '.join(CompressionLevel)}") from None


def header_pattern(text: str) -> str:
    """Read a regular expression for names of headers."""
    HeaderForwarding(text)
    return text


def integer(text: str) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a whole number") from None


def level(text: str) -> int:
    """Read a whole number; true is 1 and false is 0."""
    return int(boolean(text)) if text.lower() in ("true", "false", "on", "off") else integer(text)


def number(text: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a number") from None


def one_of(allowed: Collection[str]) -> Callable[[str], str]:
    """Return a reader that takes these words in any case and gives them as they are written here."""

    def read(text: str) -> str:
        for word in allowed:
            if word.lower() == text.lower():
                return word
        raise ValueError(f"'{text}' is not one of {', '.join(allowed)}")

    return read


def control_mode(text: str) -> ControlMode:
    """Read none, poll or explicit."""
    return ControlMode(one_of(list(ControlMode))(text))


def repository(text: str) -> Path | RemoteLocation:
    """Read a folder or the URL of one in an object store."""
    return parse_location(text) if is_remote(text) else Path(text)


def config_name(text: str) -> str:
    """Read the name of a custom configuration, which becomes part of a path."""
    if not text or "/" in text or any(character.isspace() for character in text):
        raise ValueError(f"'{text}' is not a name without spaces and slashes")
    return text


def label(text: str) -> tuple[str, str]:
    """Read ``key=value``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"'{text}' is not of the form key=value")
    return key, value


def backend_config(text: str) -> tuple[str, str, str]:
    """Read ``backend,key=value``; the backend is empty in ``key=value``, which is for all."""
    backend, comma, setting = text.partition(",")
    key, equals, value = setting.partition("=")
    if not comma:
        backend, (key, equals, value) = "", text.partition("=")
    if not key or not equals:
        raise ValueError(f"'{text}' is not of the form backend,key=value")
    return backend, key, value


def named_setting(text: str) -> tuple[str, str, str]:
    """Read ``name,key=value``."""
    name, comma, setting = text.partition(",")
    key, equals, value = setting.partition("=")
    if not name or not comma or not key or not equals:
        raise ValueError(f"'{text}' is not of the form name,key=value")
    return name, key, value


def host_policy(text: str) -> tuple[str, str, str]:
    """Read ``name,setting=value``. Values are read when a model uses them, as in Triton."""
    try:
        name, setting, value = named_setting(text)
    except ValueError:
        raise ValueError(f"option format is '<policy name>,<setting>=<value>'. Got {text}") from None
    if setting not in SETTINGS:
        known = ", ".join(f"'{one}'" for one in SETTINGS)
        raise ValueError(f"Unsupported host policy setting '{setting}' is specified, supported settings are {known}")
    return name, setting, value


def resource_limit(text: str) -> Limit:
    """Read ``name:count`` or ``name:count:device``."""
    name, *texts = text.split(":")
    if not 1 <= len(texts) <= 2:
        raise ValueError(
            f"option format is '<resource_name>:<count>:<device>' or '<resource_name>:<count>'. Got {text}"
        )
    numbers: list[int] = []
    for number_text in texts:
        try:
            numbers.append(int(number_text))
        except ValueError:
            raise ValueError(f"Invalid option value. Got {number_text}") from None
    return Limit(name, *numbers)


def device_amount(text: str) -> tuple[int, float]:
    """Read ``device:amount``."""
    device, colon, amount = text.partition(":")
    if not colon:
        raise ValueError(f"'{text}' is not of the form device:amount")
    return integer(device), number(amount)


def port_range(text: str) -> tuple[int, int]:
    """Read ``first-last``."""
    first, dash, last = text.partition("-")
    if not dash:
        raise ValueError(f"'{text}' is not of the form first-last")
    return integer(first), integer(last)
