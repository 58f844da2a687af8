"""`ottla history timeline`: what `why` tells, as a picture over time: text, or one HTML page.

Invariants: offline: only files are read, and only the page that was named is written, under another
name first.
"""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from ottla.admin.options import Dir, Output
from ottla.admin.output import Format, print_structured, say, structured
from ottla.cli import Argument, Option
from ottla.model.durable_files import replace_file

PIPE_COLUMNS = 100
"""How wide the picture is where stdout is no terminal."""
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"


def timeline(
    subject: Annotated[
        str | None,
        Argument(metavar="[TOPIC[-PARTITION]]", help="What to draw [all partitions]"),
    ] = None,
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="[JOURNAL]...", help="Journals, or folders to search for them [--dir]"),
    ] = None,
    html: Annotated[Path | None, Option(metavar="FILE", help="Write one HTML page instead")] = None,
    since: Annotated[
        str | None, Option("--from", metavar="TIME", help="Draw from this time on")
    ] = None,
    until: Annotated[str | None, Option(metavar="TIME", help="Draw until this time")] = None,
    directory: Dir = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.local.cluster_dir import default_dir
    from ottla.admin.tables import colours
    from ottla.explain import commands, timeline_html, timeline_text
    from ottla.explain.rendering import UnknownPartitionError
    from ottla.explain.spans import Timeline

    journals, (last, first) = commands.journals_of(paths, directory, until, since)
    complete = Timeline()
    damage = commands.take_all(journals, last, complete.take)
    topics = {tp.topic for tp in complete.changes}
    drawn = complete.about(*_subject(subject, topics))
    if subject is not None and not drawn.changes:
        names = sorted(topics)
        raise UnknownPartitionError(
            f"no journal knows a leader of {subject}; the topics are: "
            f"{', '.join(names[:10]) or 'none'}"
        )
    if first is not None:
        drawn = drawn.since(first)
    # Journals that are named may be of another cluster than the one in the default folder.
    folder = directory or (None if paths else default_dir())
    timeouts = {} if folder is None else session_timeouts(folder)
    if structured(output):
        print_structured(output, as_json(drawn, timeouts, damage))
    elif html is not None:
        title = f"Leaders of {subject}" if subject else "Leaders of all partitions"
        page = "".join(timeline_html.page(drawn, timeouts, title))
        replace_file(html, page.encode())
        say(f"ottla: wrote {html}")
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_COLUMNS
        for line in timeline_text.lines(drawn, timeouts, width, colour=colours(sys.stdout)):
            sys.stdout.write(line + "\n")
    commands.say_damage(damage)


def _subject(subject: str | None, topics: set[str]) -> tuple[str | None, int | None]:
    """Return topic and partition: `a-0` is a partition, unless only a topic has that name."""
    if subject is None or subject in topics:
        return subject, None
    topic, dash, number = subject.rpartition("-")
    return (topic, int(number)) if dash and number.isdecimal() else (subject, None)


def session_timeouts(folder: Path) -> dict[int, int]:
    """Return zookeeper.session.timeout.ms by broker, of the brokers of a local cluster's folder."""
    from ottla.model.config_keys import broker_keys
    from ottla.model.properties import load_settings

    default = str(broker_keys()[SESSION_TIMEOUT].default)
    found = {}
    for path in folder.glob("broker-*/server.properties"):
        number = path.parent.name.removeprefix("broker-")
        text = load_settings(path.read_bytes(), path).get(SESSION_TIMEOUT, default)
        if number.isdecimal() and text.isdecimal():
            found[int(number)] = int(text)
    return found


def as_json(drawn: Any, timeouts: Mapping[int, int], damage: Any) -> dict[str, Any]:
    """Return the timeline as JSON; times are ms since 1970, `until` null where it goes on."""
    from ottla.explain.rendering import damage_as_json
    from ottla.explain.spans import gaps

    return {
        "from": drawn.start,
        "until": drawn.end,
        "controllers": [
            {"controller": t.controller, "epoch": t.epoch, "from": t.start, "until": t.end}
            for t in drawn.terms
        ],
        "brokers": [
            {"broker": broker, "from": change.ts, "state": change.state}
            for broker, changes in sorted(drawn.brokers.items())
            for change in changes
        ],
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "from": change.ts,
                "leader": None if change.now is None else change.now.leader,
                "leader_epoch": None if change.now is None else change.now.epoch,
                "isr": [] if change.now is None else change.now.isr,
                "replicas": [] if change.now is None else change.now.replicas,
                "why": change.why,
            }
            for tp, changes in sorted(drawn.changes.items())
            for change in changes
        ],
        "without_leader": [
            {
                "topic": gap.tp.topic,
                "partition": gap.tp.partition,
                "from": gap.start,
                "until": gap.end,
                "leader_may_be_dead": gap.dying,
                "why": gap.why,
            }
            for gap in gaps(drawn, timeouts)
        ],
        "events": [{"time": event.ts, "what": event.what} for event in drawn.events],
        "left_out": drawn.left_out,
        **damage_as_json(damage),
    }
