"""ModelConfig as text: the ``config.pbtxt`` form, protobuf's text format."""

from __future__ import annotations

import re

from google.protobuf import text_format

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config.values import check_values, suggestion
from serving_node.contract.proto.model_config_pb2 import ModelConfig

_UNKNOWN_FIELD = re.compile(r'Message type "(?:inference\.)?([\w.]+)" has no field named "([^"]*)"')
_POSITION = re.compile(r"^\d+:\d+ : ")


def parse_pbtxt(text: str) -> ModelConfig:
    """Return the config that ``text`` describes. Comments are lost; keep the text if they matter.

    Raises:
        ContractError: syntax, an unknown field or a value out of range; the message names the line and column.
    """
    config = ModelConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        raise _explain(error) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ContractError(f"config.pbtxt: {error}") from None
    check_values(config)
    return config


def to_pbtxt(config: ModelConfig) -> str:
    """Return ``config`` as text; ``parse_pbtxt`` of it gives an equal message."""
    return str(text_format.MessageToString(config, as_utf8=True))


def _explain(error: text_format.ParseError) -> ContractError:
    line, column = error.GetLine(), error.GetColumn()
    where = f"line {line}, column {column}" if line else "config.pbtxt"
    reason = _POSITION.sub("", str(error))
    match = _UNKNOWN_FIELD.search(reason)
    if match is None:
        return ContractError(f"{where}: {reason}")
    message, name = match.groups()
    return ContractError(f"{where}: {message} has no field '{name}'{suggestion(message, name)}", field=name)
