"""From the name of a repository to something that models can be read from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from serving_node.repository.cloud_credentials import CredentialError, find_credentials
from serving_node.repository.local import PollError
from serving_node.repository.remote import RemoteSource, StoreError
from serving_node.repository.remote_location import RemoteLocation
from serving_node.repository.sources import LocalSource, Source


def open_source(repository: Path | RemoteLocation, environment: Mapping[str, str]) -> Source:
    """Return the repository; a remote one is not asked anything yet.

    ``environment`` holds the variables that credentials come from. Blocks.

    Raises:
        PollError: a remote one cannot be opened with these credentials.
    """
    if isinstance(repository, Path):
        return LocalSource(repository)
    # Imported late: nobody else needs a client for object stores.
    from serving_node.repository.cloud_store import open_store

    try:
        store = open_store(repository, find_credentials(repository, environment))
    except (CredentialError, StoreError) as error:
        raise PollError(f"the model repository {repository} cannot be opened: {error}") from error
    return RemoteSource(repository.text, store)
