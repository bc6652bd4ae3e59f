"""The log on stderr, of Python and of the JVM: text for people, JSON for programs."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import pytest

from streaming.daemons.activator.settings import ActivatorEvent
from streaming.system import wall_clock
from streaming.system.logs import FORMAT_VARIABLE
from streaming.system.processes import THIS_COMMAND, own_environment
from tests.support.command_lines import ROOT

SCRIPT = """
import logging, sys
import streaming.kafka.clients
from streaming.system.logs import LogFormat, configure
configure(LogFormat(sys.argv[1]))
log = logging.getLogger("streaming.part")
log.debug("no")
log.info("two\\nlines", extra={"fields": {"queue": "Q"}})
logging.getLogger("foreign").info("no")
logging.getLogger("streaming.librdkafka").error("no")
logging.getLogger("foreign").warning("yes")
raise ValueError("broken")
"""


def run(log_format: str, **environment: str) -> list[str]:
    command = [sys.executable, "-B", "-c", SCRIPT, log_format]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert (ended.returncode, ended.stdout) == (1, "")
    return ended.stderr.splitlines()


def test_json_has_one_object_a_line_whatever_happens() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in run("json")]

    assert [(line["level"], line["logger"], line["message"]) for line in lines] == [
        ("INFO", "streaming.part", "two\nlines"),
        ("WARN", "foreign", "yes"),
        ("FATAL", "streaming.system.logs", "broken"),
    ]
    assert lines[0]["queue"] == "Q"
    assert lines[0]["time"].endswith("Z")
    assert lines[2]["exception"].endswith("ValueError: broken")


def test_the_jvms_lines_have_the_same_fields() -> None:
    settings = (ROOT / "streaming" / "spark" / "spark-log4j2.properties").read_text()
    [pattern] = re.findall(r"^property\.json = (.+)%n$", settings, re.MULTILINE)
    line = json.loads(re.sub(r"%(enc|d|p)(\{[^}]*\}+)*", "x", pattern))

    assert f"env:{FORMAT_VARIABLE}:-text" in settings
    assert list(line) == ["time", "level", "logger", "message", "exception"]


def test_text_is_for_people() -> None:
    two, lines, foreign, *traceback = run("text")

    assert two.endswith(" INFO <string>: two")
    assert lines == "lines"
    assert foreign.endswith("yes")
    assert traceback[-1] == "ValueError: broken"


def test_all_programs_on_one_terminal_have_the_same_clock_and_the_same_form_of_time() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    logged = run("text", TZ="UTC-14")[0].partition(" ")[0]
    after = datetime.now(UTC)
    assert logged in {f"{before:%H:%M:%S}", f"{after:%H:%M:%S}"} or before < _instant(logged, after) < after
    event = ActivatorEvent(wall_clock.now_ms(), "orders", "started", "#1")
    assert re.fullmatch(r"\d\d:\d\d:\d\d orders: started: #1", event.line())
    settings = (ROOT / "streaming" / "spark" / "spark-log4j2.properties").read_text()
    assert "property.text = %d{HH:mm:ss}{UTC} " in settings


def _instant(clock: str, day: datetime) -> datetime:
    return datetime.combine(day.date(), time.fromisoformat(clock), UTC)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_error_that_the_user_can_put_right_is_one_line(log_format: str) -> None:
    command = [*THIS_COMMAND, "host", "--config", "nowhere.toml", "--log-format", log_format]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=own_environment())

    assert (ended.returncode, ended.stdout) == (2, "")
    [line] = ended.stderr.splitlines()
    if log_format == "json":
        assert (json.loads(line)["level"], "nowhere.toml" in json.loads(line)["message"]) == ("ERROR", True)
    else:
        assert line.startswith("error: ")


@pytest.mark.parametrize("words", [["--version"], ["monitor", "--help"]])
def test_an_output_that_cannot_be_written_is_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*THIS_COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=own_environment()
        )

    assert ended.returncode == 2
    assert ended.stderr == "error: The output cannot be written: No space left on device. Give it another place.\n"
