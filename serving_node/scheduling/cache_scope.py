"""Which models answer from the response cache, and what their answers depend on besides the request.

That is the *origin* of a model's answers: its config and its files, or, for an ensemble, those of the models of its
steps. It is the beginning of every key, so that an answer is never given by another model than would compute it now.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from blake3 import blake3

from serving_node.contract.digests import config_digest
from serving_node.scheduling.cache_options import LocalOptions, RedisOptions
from serving_node.scheduling.caching import CachedScheduler
from serving_node.scheduling.response_cache import LocalCache, ResponseCache

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig
    from serving_node.scheduling.served_model import ServedModel

log = structlog.get_logger(__name__)

_FORMAT = b"flotilla responses 1"
_OWNER_BYTES = 16
_NOT_OF_THE_MODEL = frozenset({"__pycache__", ".git"})


class CacheUnavailable(Exception):
    """The cache that was asked for cannot be had. One sentence."""


Origin = Callable[[], bytes | None]


def open_cache(options: LocalOptions | RedisOptions | None) -> ResponseCache | None:
    """Return the cache of a node, None when there are no options. On the loop. Raises CacheUnavailable."""
    if options is None:
        return None
    if options.unknown:
        log.warning("cache.settings_unknown", settings=", ".join(options.unknown))
    if isinstance(options, LocalOptions):
        return LocalCache(options.size)
    try:
        # imported late: few nodes have the package
        from serving_node.scheduling.redis_cache import RedisCache
    except ImportError as error:
        sentence = "a cache on a Redis server needs the package redis: pip install 'flotilla[cache-redis]'"
        raise CacheUnavailable(sentence) from error
    try:
        return RedisCache(options)
    except (OSError, ValueError) as error:
        raise CacheUnavailable(f"Failed to initialize RedisCache: {error}") from error


class ResponseCaching:
    """Puts the cache of a node before the schedulers of models whose config asks for it.

    ``origin_of`` returns the origin of a model by name and version (empty for the one that serves), None when that
    cannot be said, because routes choose among several for each request.
    """

    def __init__(self, cache: ResponseCache, origin_of: Callable[[str, str], bytes | None]) -> None:
        self._cache = cache
        self._origin_of = origin_of

    async def attach(self, served: ServedModel, version_dir: Path) -> None:
        """Give a loaded version its origin, and the cache if its config asks for that. It serves no requests yet."""
        owner = secrets.token_bytes(_OWNER_BYTES)
        own = await self._own_origin(served, version_dir, owner)
        steps = [
            (step.model_name, str(step.model_version) if step.model_version > 0 else "")
            for step in served.config.ensemble_scheduling.step
        ]
        served.origin = self._of_ensemble(own, steps) if steps else lambda: own
        if served.config.response_cache.enable and not served.decoupled:
            served.scheduler = CachedScheduler(
                served.scheduler,
                self._cache,
                name=served.name,
                version=served.version,
                namespace=served.origin,
                owner=owner,
                statistics=served.statistics,
                preserve_ordering=served.config.dynamic_batching.preserve_ordering,
            )

    async def _own_origin(self, served: ServedModel, version_dir: Path, owner: bytes) -> bytes:
        """Return what tells this version from all others; from all other loads, where a node is by itself.

        Only a shared cache is worth reading the files for, or the unit's id saying that they are the same.
        """
        if not self._cache.shared:
            return owner
        if served.unit and not served.config.response_cache.enable:
            return blake3(f"{served.name}\0{served.version}\0{served.unit}".encode()).digest()
        if not served.config.response_cache.enable and not served.config.HasField("ensemble_scheduling"):
            return owner
        try:
            return await asyncio.to_thread(content_origin, served.name, served.version, served.config, version_dir)
        except OSError as error:
            log.warning("cache.not_shared", model=served.name, version=served.version, reason=error.strerror)
            return owner

    def _of_ensemble(self, own: bytes, steps: list[tuple[str, str]]) -> Origin:
        def origin() -> bytes | None:
            parts = [own]
            for name, version in steps:
                part = self._origin_of(name, version)
                if part is None:
                    return None
                parts.append(part)
            return blake3(b"".join(parts)).digest()

        return origin


def content_origin(name: str, version: int, config: ModelConfig, version_dir: Path) -> bytes:
    """Return 32 bytes that are equal for the same version, config and files, on whatever node. Blocks.

    Files are those of the version and those beside the versions, which models may read, too. Raises OSError.
    """
    digest = blake3(_FORMAT)
    digest.update(f"{name}\0{version}\0{config_digest(config)}".encode())
    folder = version_dir.parent
    for path in sorted(_files(folder, version_dir)):
        digest.update(f"\0{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update_mmap(path)
    return digest.digest()


def _files(folder: Path, version_dir: Path) -> Iterator[Path]:
    for path in folder.iterdir() if folder.is_dir() else ():
        is_other_version = path.name.isdecimal() and path != version_dir
        if path.name in _NOT_OF_THE_MODEL or is_other_version:
            continue
        if path.is_dir():
            yield from (one for one in path.rglob("*") if one.is_file() and not _NOT_OF_THE_MODEL & set(one.parts))
        elif path.is_file() and path.name != "config.pbtxt":
            yield path
