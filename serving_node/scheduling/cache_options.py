"""What --cache-config says. Pure. Source: tritonserver's flag and the settings of its local and Redis caches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Where Triton's Redis cache takes credentials from that no setting gives.
USER_VARIABLE = "TRITONCACHE_REDIS_USERNAME"
PASSWORD_VARIABLE = "TRITONCACHE_REDIS_PASSWORD"  # noqa: S105  the name of a variable

_FORM = "--cache-config option format is"


@dataclass(frozen=True, slots=True)
class CacheSetting:
    """One --cache-config. Its text never shows a password."""

    cache: str
    key: str
    value: str

    def __repr__(self) -> str:
        return f"'{self.cache},{self.key}={'***' if self.key == 'password' else self.value}'"


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """A cache in memory of ``size`` bytes. ``unknown`` are settings that nobody reads."""

    size: int
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """A cache on a Redis server. Times are seconds; a ``ttl_seconds`` of 0 keeps answers until Redis drops them.

    ``deadline_seconds`` is how long a request may wait for the cache, whatever happens there.
    """

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    db: int = 0
    connect_seconds: float = 1.0
    deadline_seconds: float = 0.1
    wait_seconds: float = 1.0
    pool_size: int = 8
    ttl_seconds: int = 86_400
    max_entry_bytes: int = 4 * 1024 * 1024
    tls: bool = False
    cert: str = ""
    key: str = ""
    cacert: str = ""
    cacert_dir: str = ""
    sni: str = ""
    unknown: tuple[str, ...] = ()


_REDIS_TEXTS = ("host", "user", "password", "cert", "key", "cacert", "cacert_dir", "sni")
_REDIS_NUMBERS = ("port", "db", "pool_size")
# Ours are the last two. Triton's time-outs are milliseconds, of which 0 is for ever: here it is the default.
_REDIS_MILLISECONDS = {
    "connect_timeout": "connect_seconds",
    "socket_timeout": "deadline_seconds",
    "wait_timeout": "wait_seconds",
}
_AT_LEAST_ONE = ("port", "pool_size", "max_entry_bytes")
_REDIS_OTHERS = {"ttl": "ttl_seconds", "max_entry_byte_size": "max_entry_bytes"}


def read_cache_setting(text: str) -> CacheSetting:
    """Read ``cache,setting=value``. Raises ValueError with Triton's sentence."""
    cache, comma, rest = text.partition(",")
    key, equals, value = rest.partition("=")
    if not comma or not cache:
        raise ValueError(f"No cache specified. {_FORM} <cache name>,<setting>=<value>. Got {_without_secret(text)}")
    if not equals or not key or not value:
        raise ValueError(f"{_FORM} '<cache name>,<setting>=<value>'. Got {text}")
    return CacheSetting(cache, key, value)


def cache_options(
    settings: Iterable[CacheSetting], environment: Mapping[str, str]
) -> LocalOptions | RedisOptions | None:
    """Return what all settings say together; None when there is none. Of one given twice the last counts.

    Raises:
        ValueError: one sentence.
    """
    caches: dict[str, dict[str, str]] = {}
    for setting in settings:
        caches.setdefault(setting.cache, {})[setting.key] = setting.value
    if not caches:
        return None
    if len(caches) > 1:
        raise ValueError("found multiple cache configurations, but only a single cache is currently supported")
    ((name, values),) = caches.items()
    if name == "local":
        return _local(values)
    if name == "redis":
        return _redis(values, environment)
    raise ValueError(f"--cache-config: this node has no cache '{name}', only local and redis")


def _local(values: dict[str, str]) -> LocalOptions:
    if "size" not in values:
        raise ValueError("Failed to initialize LocalCache: config didn't contain a valid 'size' field.")
    size = _whole("Failed to initialize LocalCache", "size", values["size"])
    if size < 1:
        raise ValueError(f"Failed to initialize LocalCache: size is at least 1 byte, not {size}")
    return LocalOptions(size, tuple(sorted(values.keys() - {"size"})))


def _redis(values: dict[str, str], environment: Mapping[str, str]) -> RedisOptions:
    failed = "Failed to initialize RedisCache"
    if "host" not in values or "port" not in values:
        raise ValueError(
            f"{failed}, didn't specify address. Must at a minimum specify 'host' and 'port' in the configuration - e.g."
            " tritonserver --cache-config redis,host=redis --cache-config redis,port=6379 --model-repository=/models"
            " ..."
        )
    texts: dict[str, Any] = {key: values[key] for key in _REDIS_TEXTS if key in values}
    texts.setdefault("user", environment.get(USER_VARIABLE, ""))
    texts.setdefault("password", environment.get(PASSWORD_VARIABLE, ""))
    numbers: dict[str, Any] = {key: _whole(failed, key, values[key]) for key in _REDIS_NUMBERS if key in values}
    numbers |= {name: _whole(failed, key, values[key]) for key, name in _REDIS_OTHERS.items() if key in values}
    times = {name: _whole(failed, key, values[key]) for key, name in _REDIS_MILLISECONDS.items() if key in values}
    flags = {name: key for key, name in (_REDIS_OTHERS | _REDIS_MILLISECONDS).items()}
    for name, number in (numbers | times).items():
        if number < (1 if name in _AT_LEAST_ONE else 0):
            raise ValueError(f"{failed}: {flags.get(name, name)} cannot be {number}")
    if numbers["port"] > 65535:
        raise ValueError(f"{failed}: {numbers['port']} is not a port number")
    known = {*_REDIS_TEXTS, *_REDIS_NUMBERS, *_REDIS_MILLISECONDS, *_REDIS_OTHERS, "tls_enabled"}
    seconds: dict[str, Any] = {name: number / 1000 for name, number in times.items() if number}
    return RedisOptions(
        **texts,
        **numbers,
        **seconds,
        tls=values.get("tls_enabled") == "true",
        unknown=tuple(sorted(values.keys() - known)),
    )


def _whole(failed: str, key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{failed}: {key} is a whole number, not '{text}'") from None


def _without_secret(text: str) -> str:
    key, equals, _ = text.partition("=")
    return f"{key}=***" if equals and key.strip(",").endswith("password") else text
