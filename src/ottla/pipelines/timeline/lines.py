"""Lines: one line of state-change.log as an event, in plain Python.

Invariants: pure; a line that is none of a state-change log is None; a text that is not known still
gives time, broker and partition; a number that does not fit its column is none.
"""

import functools
import re
from datetime import datetime, tzinfo
from typing import Any

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.events import Event
from ottla.pipelines.timeline.forms import COLUMNS, FORMS, NAMING, PLAIN

TEXTS = ("level", "topic", "isr", "topic_id", "before", "after")
LONGS = ("offset",)
"""Columns of 64 bits; other numbers have 32."""
_BROKER_EPOCH = re.compile(r"brokerEpoch=-?\d+")
_NUMBERS = re.compile(r"\d+")
_LONGEST_NUMBER = 18
"""Digits that fit 64 bits, whatever they are."""


def parse(line: str, zone: tzinfo) -> Event | None:
    """Return what a line says, its time being one of `zone`."""
    line = line.rstrip("\r\n")
    found = match(line)
    return None if found is None else _event(*found, line, zone)


def match(line: str) -> tuple[str, re.Match[str]] | None:
    """Return a line's kind and the match of its form; None if it is none of a state-change log."""
    # The first form whose needle is there has the word.
    form = next((form for form in FORMS if form.needle in line), NAMING)
    for kind, _, pattern in (form, NAMING, PLAIN):
        found = _compiled(pattern).match(line)
        if found is not None:
            return kind, found
    return None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)  # digits are 0 to 9


def spans(found: re.Match[str]) -> dict[str, tuple[int, int]]:
    """Return by column where in the line its text is; a column without a text is left out."""
    said = {}
    for column, names in COLUMNS.items():
        for name in names:
            if name in found.re.groupindex and found.start(name) >= 0:
                said[column] = found.span(name)
                break
    return said


def second_ms(text: str, zone: tzinfo) -> int | None:
    """Return a time such as `2026-11-22 16:00:00` in milliseconds since 1970; None for no date."""
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) * 1000
    except (ValueError, OverflowError):  # a 31st of February
        return None


def isr_text(written: str) -> str | None:
    """Return the brokers of an ISR, however it is written, as `0,1,2`."""
    return ",".join(_NUMBERS.findall(_BROKER_EPOCH.sub("", written))) or None


def number(text: str, column: str) -> int | None:
    if len(text.lstrip("-0")) > _LONGEST_NUMBER:
        return None
    found = int(text)
    return found if column in LONGS or abs(found) < 1 << 31 else None


def _event(kind: str, found: re.Match[str], line: str, zone: tzinfo) -> Event | None:
    said = {column: line[slice(*span)] for column, span in spans(found).items()}
    second = second_ms(said.pop("second"), zone)
    if second is None:
        return None
    time_ms = second + int(said.pop("ms"))
    side = e.CONTROLLER if said.pop("role") == "Controller" else e.BROKER
    values: dict[str, Any] = {
        name: value if name in TEXTS else number(value, name) for name, value in said.items()
    }
    if values["broker"] is None:
        return None
    if "isr" in values:
        values["isr"] = isr_text(values["isr"])
    return Event(time_ms, side=side, kind=kind, text=line[: e.LONGEST_TEXT], **values)
