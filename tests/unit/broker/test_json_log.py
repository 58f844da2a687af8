"""`--log-format json`: each line of a broker's log is one object, whatever its message holds."""

import json
import logging
import re
import subprocess
import sys
import time

import pytest

from ottla.broker.process_log import MOST_CHARACTERS, JsonFormatter
from ottla.broker.program import line_formatter


def record_of(message, *values, error=None):
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("ottla.x", logging.WARNING, "f", 1, message, values, exc_info)


def line_of(message, *values, **more):
    text = JsonFormatter().format(record_of(message, *values, **more))
    assert "\n" not in text
    return json.loads(text)


def test_a_line_has_its_event_and_its_fields():
    line = line_of(
        "ISR changed partition=%s isr=%s took_s=%.2f reason=%r", "t-0", "1,2", 0.5, "a b"
    )
    assert line["event"] == "ISR changed"
    assert line["fields"] == {"partition": "t-0", "isr": "1,2", "took_s": "0.50", "reason": "a b"}
    assert line["message"] == "ISR changed partition=t-0 isr=1,2 took_s=0.50 reason='a b'"
    assert (line["level"], line["logger"]) == ("WARNING", "ottla.x")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])


def test_a_record_that_names_its_event_has_no_fields():
    record = record_of('Completed request:{"x":" a=b"}')
    record.event = "Completed request"
    line = json.loads(JsonFormatter().format(record))
    assert (line["event"], line["fields"]) == ("Completed request", {})
    assert line["message"] == 'Completed request:{"x":" a=b"}'


def test_the_time_is_universal():
    record = record_of("x")
    record.created, record.msecs = 86_400.25, 250
    assert json.loads(JsonFormatter().format(record))["time"] == "1970-01-02T00:00:00.250Z"


@pytest.mark.parametrize(
    "text",
    ["", "no fields", 'a "quoted" one', "two\nlines", "\x00\x1b[31m", "ключ=значение", "a=b=c"],
)
def test_a_message_is_kept_as_it_is(text):
    assert line_of("%s", text)["message"] == text


def test_what_is_no_text_is_written_all_the_same():
    assert line_of("path=%s", "/data/\udcff")["message"] == "path=/data/\\udcff"


def test_a_traceback_is_part_of_its_line():
    try:
        raise ValueError("bad")
    except ValueError as error:
        line = line_of("request failed peer=%s", "p", error=error)
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: bad")
    assert "exception" not in line_of("fine")


def test_a_very_long_message_takes_no_longer_than_it_is():
    began = time.process_time()
    line_of("%s", "a='" + "\\" * 200_000)
    line_of("%s", "a=b " * 50_000)
    assert time.process_time() - began < 2


@pytest.mark.processes
def test_a_broker_writes_only_such_lines(tmp_path):
    settings = tmp_path / "server.properties"
    settings.write_text(
        f"broker.id=1\nzookeeper.connect=127.0.0.1:1\nlog.dirs={tmp_path}/data\n"
        "listeners=PLAINTEXT://127.0.0.1:0\nzookeeper.connection.timeout.ms=300\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "broker", "--config", str(settings),
         "--log-format", "json", "--log-file", str(tmp_path / "server.log")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1, "there is no ZooKeeper"
    lines = (tmp_path / "server.log").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert "open files" in events


FORGED = "2026-11-27T00:00:00.000 INFO ottla.authorizer denied principal=User:victim"


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_a_line_of_text_is_one_line_whatever_a_client_calls_itself(end):
    name = f"g{end}{FORGED}\x1b]0;title\x07\udcff"
    line = line_formatter().format(record_of("rebalance begins group=%s", name))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert "ottla.x rebalance begins group=g\\" in line
    line.encode()


def test_text_of_any_language_stays():
    line = line_formatter().format(record_of("group=%s", "größe 名前 é"))
    assert line.endswith("group=größe 名前 é")


def test_lines_of_a_traceback_cannot_be_taken_for_others():
    text = line_formatter().format(record_of("failed", error=ValueError(f"x\n{FORGED}\x1b[2J")))
    first, *rest = text.splitlines()
    assert first.endswith("ottla.x failed")
    assert rest
    assert all(line.startswith("\t") and "\x1b" not in line for line in rest)


def test_a_very_long_line_is_cut():
    line = line_formatter().format(record_of("joins reason=%s", "r" * 32_000))
    assert len(line) < MOST_CHARACTERS + 50
    assert line.endswith(" characters)")
