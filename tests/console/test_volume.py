"""200 models, 20,000 versions, 1,000,000 audit events: every list, item and page asks as often as with a handful.

And none of their queries reads more rows than a bound, which PostgreSQL itself counts. That is what makes times small,
and unlike times it is the same on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from benchmarks.volume import Volume, fill
from tests.console.conftest import Cast
from tests.console.test_query_counts import BASELINE, PROJECT, addresses
from tests.console.web.conftest import Served, make_served

MOST_ROWS_READ = 4_000
# What the world of the baseline lacks is asked for here: routes and what reaches them. Once, for any number of nodes.
FULLER = {"page rollout": 16, "page version-code": 12, "api rollout stages": 9}

pytestmark = pytest.mark.slow


@pytest.fixture
def filled(cast: Cast) -> Served:
    served = make_served(cast)
    with connection.cursor() as cursor:
        fill(cursor, str(served.version.model_id), Volume())
    return served


def rows_read(node: dict[str, Any]) -> int:
    """Return how many rows the scans of a plan looked at."""
    own = 0
    if "Relation Name" in node:
        removed = sum(node.get(name, 0) for name in ("Rows Removed by Filter", "Rows Removed by Index Recheck"))
        own = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return int(own + sum(rows_read(child) for child in node.get("Plans", [])))


def plans(queries: list[dict[str, str]]) -> Iterator[tuple[str, int]]:
    for query in queries:
        sql = query["sql"]
        if sql.startswith("SELECT"):
            with connection.cursor() as cursor:
                cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql.replace("%", "%%"), [])
                (found,) = cursor.fetchone()
            document = found if isinstance(found, list) else json.loads(found)
            yield sql, rows_read(document[0]["Plan"])


def test_nothing_grows_with_the_registry(filled: Served, client: Any) -> None:
    client.force_login(filled.cast.alice)
    model = f"{PROJECT}models/volume-7/"
    own = {
        "api volume model": model,
        "api volume versions": f"{model}versions/",
        "api volume version": f"{model}versions/77/",
        "api volume oldest versions": f"{model}versions/?ordering=created_at",
        "page volume model": "/p/wren/models/volume-7/",
        "page volume versions": "/p/wren/models/volume-7/versions/",
        "page volume version": "/p/wren/models/volume-7/versions/77/",
        "page volume configs": "/p/wren/models/volume-7/configs/",
        "api audit of ci": "/api/v1/audit/?actor_name=ci-7",
        "api audit of an action": "/api/v1/audit/?action=approval.review",
        "api audit of a request": "/api/v1/audit/?request_id=c4ca4238a0b923820dcc509a6f75849b",
        "page audit search": "/audit/?q=volume-77+v5",
        "page audit search of a common word": "/audit/?q=volume",
        "page audit search of nothing": "/audit/?q=xyzzy",
    }
    baseline = json.loads(BASELINE.read_text())
    too_many_queries, too_many_rows = {}, []
    for name, path in {**addresses(filled), **own}.items():
        client.get(path)  # fills caches
        with CaptureQueriesContext(connection) as queries:
            answer = client.get(path)
        assert answer.status_code == 200, (name, answer)
        if len(queries) > FULLER.get(name, baseline.get(name, 40)):
            too_many_queries[name] = len(queries)
        too_many_rows += [
            (name, rows, _short(sql)) for sql, rows in plans(queries.captured_queries) if rows > MOST_ROWS_READ
        ]
    assert too_many_queries == {}
    assert too_many_rows == [], "\n".join(map(str, too_many_rows))


def _short(sql: str) -> str:
    return sql if len(sql) < 600 else f"{sql[:60]} ... {sql[sql.index(' FROM ') :][:900]}"
