"""A registry of years, made in seconds: rows of one real model are copied inside PostgreSQL with what must differ.

Every column that is not named keeps the value of the copied row, so new columns need no care here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

MODELS, VERSIONS_EACH, CONFIGS_EACH, AUDIT_EVENTS = 200, 100, 5, 1_000_000

# A time-ordered id (UUID version 7) of the time in ``created``.
_ID = (
    "(lpad(to_hex((extract(epoch from {created}) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3)"
    " || '8' || substr(md5(random()::text), 1, 15))::uuid"
)


class Cursor(Protocol):
    """What is needed of a database cursor; Django's and psycopg's have it."""

    def execute(self, query: Any, params: Any = None) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def fetchone(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Volume:
    """How much of everything."""

    models: int = MODELS
    versions_each: int = VERSIONS_EACH
    configs_each: int = CONFIGS_EACH
    audit_events: int = AUDIT_EVENTS


def fill(cursor: Cursor, model_id: str, volume: Volume, say: Callable[[str], None] = lambda text: None) -> None:
    """Copy a model that has a ready version 1 with its files, checks, operation, configs and events, many times.

    The copies are called ``volume-1``...; their versions are numbered from 1. Audit events lie behind the present ones
    and are not sealed but for the newest, so that the sealer does not begin to seal a million of them.
    """
    copy = _Copier(cursor)
    (version_id,) = copy.one("SELECT id FROM registry_modelversion WHERE model_id = %s AND number = 1", [model_id])
    age = "now() - interval '3 days' - (%s + i) * interval '1 minute'"
    say(f"{volume.models} models")
    copy.rows(
        "registry_registeredmodel",
        model_id,
        f"generate_series(1, {volume.models}) i",
        {"slug": "'volume-' || i", "next_version": str(volume.versions_each + 1), "created_at": age % 0},
    )
    copied = "registry_registeredmodel m"
    where = "m.slug LIKE 'volume-%'"
    say(f"{volume.models * volume.versions_each} versions")
    copy.rows(
        "registry_modelversion",
        version_id,
        f"{copied}, generate_series(1, {volume.versions_each}) i",
        {
            "model_id": "m.id",
            "number": "i",
            "created_at": age % 0,
            "ready_at": age % 0,
            "manifest_digest": "md5(m.slug || i) || md5(i || m.slug)",
        },
        where,
    )
    versions = "registry_modelversion v JOIN registry_registeredmodel m ON m.id = v.model_id, generate_series(1, 1) i"
    for table in ("registry_versionfile", "registry_check"):
        for (row_id,) in copy.all(f"SELECT id FROM {table} WHERE version_id = %s", [version_id]):
            copy.rows(table, row_id, versions, {"version_id": "v.id", "created_at": "v.created_at"}, where)
    for (row_id,) in copy.all("SELECT id FROM registry_operation WHERE subject_id = %s LIMIT 1", [version_id]):
        copy.rows("registry_operation", row_id, versions, {"subject_id": "v.id", "created_at": "v.created_at"}, where)
    for (row_id,) in copy.all("SELECT id FROM registry_transition WHERE object_id = %s", [version_id]):
        copy.rows("registry_transition", row_id, versions, {"object_id": "v.id", "created_at": "v.created_at"}, where)
    (config_id,) = copy.one("SELECT id FROM registry_configrevision WHERE model_id = %s LIMIT 1", [model_id])
    copy.rows(
        "registry_configrevision",
        config_id,
        f"{copied}, generate_series(1, {volume.configs_each}) i",
        {"model_id": "m.id", "number": "i", "created_at": age % 0},
        where,
    )
    say(f"{volume.audit_events} audit events")
    _fill_audit(copy, model_id, volume)
    cursor.execute("ANALYZE")


def _fill_audit(copy: _Copier, model_id: str, volume: Volume) -> None:
    (event_id,) = copy.one("SELECT id FROM registry_auditevent WHERE object_id = %s LIMIT 1", [str(model_id)])
    actions = "ARRAY['version.create', 'version.accept', 'config.create', 'deployment.change', 'approval.review']"
    newest = copy.rows(
        "registry_auditevent",
        event_id,
        f"generate_series(1, {volume.audit_events}) i",
        {
            "actor_name": "(ARRAY['alice', 'bob', 'ci-' || (i % 50)])[1 + i % 3]",
            "action": f"({actions})[1 + i % 5]",
            "object_label": f"'volume-' || (1 + i % {volume.models}) || ' v' || (1 + i % {volume.versions_each})",
            "object_id": "md5(i::text)",
            "request_id": "md5((i / 3)::text)",
            "created_at": "now() - interval '3 days' - i * interval '31 seconds'",
        },
    )
    copy.cursor.execute(
        "INSERT INTO registry_auditseal (chain, sequence, event_id, previous_hash, hash, sealed_at) "
        "SELECT 'volume', 1, %s, '', '', now() WHERE NOT EXISTS (SELECT 1 FROM registry_auditseal)",
        [newest],
    )


class _Copier:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def one(self, query: str, params: list[Any]) -> Any:
        self.cursor.execute(query, params)
        return self.cursor.fetchone()

    def all(self, query: str, params: list[Any]) -> list[Any]:
        self.cursor.execute(query, params)
        return self.cursor.fetchall()

    def rows(self, table: str, row_id: Any, source: str, changes: Mapping[str, str], where: str = "true") -> Any:
        """Insert a copy of a row for each row of ``source``, and return the newest id. ``changes`` are SQL."""
        columns = self.all(
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND table_name = %s AND is_generated = 'NEVER'",
            [table],
        )
        changed = {"id": _ID.format(created=changes["created_at"]), **changes}
        names = [name for (name,) in columns]
        values = ", ".join(changed.get(name, f't."{name}"') for name in names)
        quoted = ", ".join(f'"{name}"' for name in names)
        chosen = f"{values} FROM {table} t, {source} WHERE {where}".replace("%", "%%")
        self.cursor.execute(f"INSERT INTO {table} ({quoted}) SELECT {chosen} AND t.id = %s", [row_id])
        return self.one(f"SELECT id FROM {table} ORDER BY created_at DESC, id DESC LIMIT 1", [])[0]
