"""Creates the database named in DATABASE_URL on the embedded server when it is missing. Run as a module."""

from __future__ import annotations

from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from flotilla import settings


def main() -> None:
    """Connect to the maintenance database and create ours."""
    address = urlsplit(settings.external_database_url())
    name = address.path.lstrip("/")
    with psycopg.connect(
        address._replace(path="/postgres").geturl(), autocommit=True, connect_timeout=10
    ) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


if __name__ == "__main__":
    main()
