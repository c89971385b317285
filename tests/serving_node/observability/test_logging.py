from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Callable, Iterator

import pytest
import structlog

from serving_node.observability.logging import LogControl, LogFormat, configure_logging

Configured = Callable[[LogFormat], tuple[LogControl, io.StringIO]]


@pytest.fixture
def configured() -> Iterator[Configured]:
    root = logging.getLogger()
    handlers, level, before = root.handlers[:], root.level, structlog.get_config()

    def configure(log_format: LogFormat) -> tuple[LogControl, io.StringIO]:
        stream = io.StringIO()
        return configure_logging(control=LogControl(log_format=log_format), stream=stream), stream

    yield configure
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


def test_json_lines_of_both_loggers_look_alike(configured: Configured) -> None:
    control, stream = configured(LogFormat.JSON)
    structlog.get_logger("ours").info("model.loaded", model="m", version=2)
    logging.getLogger("theirs").warning("disk %s", "full")

    ours, theirs = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (ours["event"], ours["model"], ours["version"], ours["level"]) == ("model.loaded", "m", 2, "info")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("disk full", "warning", "theirs")
    assert [json.loads(line)["event"] for line in control.buffer.tail(1)] == ["disk full"]


def test_text_looks_as_tritons_and_the_format_changes_at_run_time(configured: Configured) -> None:
    control, stream = configured(LogFormat.DEFAULT)
    log = structlog.get_logger("x")
    log.info("model.loaded", model="m")
    logging.getLogger("theirs").warning("disk\nfull\u2028")
    control.update({"log_format": "ISO8601", "log_verbose_level": 1})
    log.debug("it.said")
    control.update({"log_format": "json"})
    log.error("it.failed")

    first, second, third, fourth = stream.getvalue().splitlines()
    place = rf"{os.getpid()} test_logging\.py:\d+\]"
    assert re.fullmatch(rf'I\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} {place} "model\.loaded" model=m', first)
    assert re.fullmatch(rf'W\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} {place} "disk\\nfull\\u2028"', second)
    assert re.fullmatch(rf'\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ V {place} "it\.said"', third)
    assert json.loads(fourth)["event"] == "it.failed"


def test_text_stays_on_one_line_and_hides_secrets(configured: Configured) -> None:
    _, stream = configured(LogFormat.DEFAULT)
    structlog.get_logger("x").info("request.bad", path="/a\nINFO forged", node_token="hunter2")
    try:
        raise ValueError("boom")
    except ValueError:
        structlog.get_logger("x").exception("it.failed")

    first, second = stream.getvalue().splitlines()
    assert r"path=\"/a\nINFO forged\"".replace('\\"', '"') in first
    assert "hunter2" not in first
    assert "ValueError: boom" in second


def test_settings_silence_levels(configured: Configured) -> None:
    control, stream = configured(LogFormat.DEFAULT)
    log = structlog.get_logger("x")
    control.update({"log_info": False})
    log.info("quiet.info")
    log.warning("loud.warning")
    log.debug("quiet.debug")
    control.update({"log_info": True, "log_verbose_level": 1})
    log.debug("loud.debug")

    text = stream.getvalue()
    assert "quiet" not in text
    assert "loud.warning" in text
    assert "loud.debug" in text


def test_buffer_keeps_the_newest_lines(configured: Configured) -> None:
    control, _ = configured(LogFormat.DEFAULT)
    for number in range(3000):
        control.buffer.append(str(number))
    assert control.buffer.tail(2) == ["2998", "2999"]
    assert len(control.buffer.tail(10_000)) == 2000
    assert control.buffer.tail(0) == []
