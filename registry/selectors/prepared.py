"""Queries that are written once and asked again and again with other values.

Django puts the SQL of a query together each time, which takes several times as long as PostgreSQL takes to answer what
is looked up for every request. Here only the rows are made anew, by Django's own code.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from django.db import connections, models
from django.db.models import Expression, QuerySet
from django.db.models.query import ModelIterable

Row = TypeVar("Row", bound=models.Model)


class _Place(Expression):
    """Where a value goes: it stands among the parameters of the SQL until the query is asked."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        return "%s", [self]


class Prepared(Generic[Row]):
    """A query of rows by values: texts, numbers, ids and times, compared by equality or order, never None or a list.

    ``rows`` makes it from values by name, and is called once, when the query is first asked; what it names besides them
    stays as it was then. Rows come as a list, whole (no ``values``) and without prefetched ones.
    """

    def __init__(self, rows: Callable[..., QuerySet[Row]]) -> None:
        self._rows = rows
        self._written: tuple[Any, str, tuple[Any, ...]] | None = None

    def __call__(self, **values: Any) -> list[Row]:
        """Return the rows for these values."""
        if self._written is None:
            self._written = self._write()
        template, sql, places = self._written
        compiler = copy.copy(template)  # its own for each thread, with the connection of that
        compiler.connection = connections[template.using]
        params = tuple(values[one.name] if isinstance(one, _Place) else one for one in places)
        compiler.as_sql = lambda: (sql, params)
        query = SimpleNamespace(get_compiler=lambda using: compiler)
        asked: Any = SimpleNamespace(db=template.using, query=query, _known_related_objects={})
        return list(ModelIterable(asked))

    def _write(self) -> tuple[Any, str, tuple[Any, ...]]:
        rows = self._rows(**{name: _Place(name) for name in inspect.signature(self._rows).parameters})
        compiler = rows.query.get_compiler(using=rows.db)
        sql, params = compiler.as_sql()
        return compiler, sql, tuple(params)
