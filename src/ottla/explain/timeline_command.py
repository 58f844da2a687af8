"""`ottla history timeline`: what `why` tells, as a picture over time: text, or one HTML page.

Invariants: offline: only files are read, and only the page that was named is written, under another
name first.
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated

from ottla.admin.connection import Local
from ottla.cli import Argument, Option
from ottla.cli.output import Format, print_json, say
from ottla.model.durable_files import replace_file

PIPE_COLUMNS = 100
"""The width of the picture where stdout is not a terminal."""
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"


def timeline(
    local: Local,
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
) -> None:
    from ottla.cli.tables import colours
    from ottla.explain import commands, timeline_html, timeline_text
    from ottla.explain.rendering import UnknownPartitionError
    from ottla.explain.spans import Timeline
    from ottla.local.cluster_dir import default_dir

    journals, (last, first) = commands.journals_of(paths, local.directory, until, since)
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
    folder = local.directory or (None if paths else default_dir())
    timeouts = {} if folder is None else session_timeouts(folder)
    if local.output is Format.json:
        from ottla.explain.results import timeline_of

        print_json(timeline_of(drawn, timeouts, damage))
    elif html is not None:
        title = f"Leaders of {subject}" if subject else "Leaders of all partitions"
        replace_file(html, timeline_html.page(drawn, timeouts, title).encode())
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
