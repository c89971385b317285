"""YAML of strangers: values and nothing else. Pure."""

from __future__ import annotations

from typing import Any

import yaml


class UnreadableYaml(ValueError):
    """The text is no YAML, or does more than say values."""


class _Plain(yaml.SafeLoader):
    """Without merging (``<<``), of which a few lines unfold to more than any memory holds."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Leave it; a merge is then refused as a key of no known kind."""


def read_plain(text: str) -> Any:
    """Return what a YAML document says.

    Raises:
        UnreadableYaml: it is none.
    """
    try:
        return yaml.load(text, _Plain)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UnreadableYaml(str(error)[:200]) from error
