"""Lines: one line of state-change.log as an event, in plain Python.

Who may call: whoever has few lines; `read` has the same table of forms run by Spark. Invariants:
pure; a line that is none of a state-change log is None; a text that is not known still gives time,
broker and partition.
"""

import functools
import re
from datetime import datetime, tzinfo
from typing import Any

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.events import Event
from ottla.pipelines.timeline.forms import COLUMNS, FORMS, NAMING, PLAIN

_TEXTS = {"topic", "isr", "topic_id", "before", "after", "level"}
_BROKER_EPOCH = re.compile(r"brokerEpoch=-?\d+")
_NUMBERS = re.compile(r"\d+")


def parse(line: str, zone: tzinfo) -> Event | None:
    """Return what a line says, its time being one of `zone`."""
    line = line.rstrip("\r\n")
    # The first form whose needle is there has the word, as in Spark.
    form = next((form for form in FORMS if form.needle in line), NAMING)
    for kind, _, pattern in (form, NAMING, PLAIN):
        found = _compiled(pattern).match(line)
        if found is not None:
            return _event(kind, found, line, zone)
    return None


_compiled = functools.cache(re.compile)


def _event(kind: str, found: re.Match[str], line: str, zone: tzinfo) -> Event | None:
    groups = found.groupdict()
    said = {
        column: next((groups[n] for n in names if groups.get(n) is not None), None)
        for column, names in COLUMNS.items()
    }
    try:
        second = datetime.fromisoformat(str(said.pop("second"))).replace(tzinfo=zone)
    except ValueError:  # a 31st of February
        return None
    time_ms = int(second.timestamp()) * 1000 + int(str(said.pop("ms")))
    side = e.CONTROLLER if said.pop("role") == "Controller" else e.BROKER
    isr = said["isr"]
    if isr is not None:
        said["isr"] = ",".join(_NUMBERS.findall(_BROKER_EPOCH.sub("", isr))) or None
    values: dict[str, Any] = {
        name: value if value is None or name in _TEXTS else int(value)
        for name, value in said.items()
    }
    return Event(time_ms, side=side, kind=kind, text=line[: e.LONGEST_TEXT], **values)
