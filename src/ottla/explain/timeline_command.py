"""`ottla history timeline`: what `why` tells, as a picture over time: text, or one HTML page.

Brokers' state change logs in the same folders are read for what must not happen. Invariants:
offline: only files are read, and only the page that was named is written, under another name first;
exit code 1 if something is found.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.admin.options import Dir, Output
from ottla.cli import Argument, Exit, Option
from ottla.cli.output import Format, print_json, say
from ottla.model.durable_files import replace_file
from ottla.model.errors import OttlaError
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.explain.findings import Finding
    from ottla.explain.lines import Entry

PIPE_COLUMNS = 100
"""The width of the picture where stdout is not a terminal."""
EXIT_FOUND = 1
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
    from ottla.cli.tables import colours
    from ottla.explain import commands, timeline_html, timeline_text
    from ottla.explain.findings import Decisions
    from ottla.explain.rendering import UnknownPartitionError
    from ottla.explain.spans import Timeline
    from ottla.local.cluster_dir import default_dir

    journals, (last, first) = commands.journals_of(paths, directory, until, since)
    complete, decisions = Timeline(), Decisions()

    def take(entry: "Entry") -> None:
        complete.take(entry)
        decisions.take(entry)

    damage = commands.take_all(journals, last, take)
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
    found = _about(
        [*decisions.findings(), *_of_logs(paths or [directory or default_dir()])], subject, topics
    )
    # Journals that are named may be of another cluster than the one in the default folder.
    folder = directory or (None if paths else default_dir())
    timeouts = {} if folder is None else session_timeouts(folder)
    if output is Format.json:
        from ottla.explain.results import timeline_of

        print_json(timeline_of(drawn, timeouts, damage, found))
    elif html is not None:
        title = f"Leaders of {subject}" if subject else "Leaders of all partitions"
        replace_file(html, timeline_html.page(drawn, timeouts, title).encode())
        say(f"ottla: wrote {html}")
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_COLUMNS
        for line in timeline_text.lines(drawn, timeouts, width, colour=colours(sys.stdout)):
            sys.stdout.write(line + "\n")
    if output is not Format.json:
        for one in found:
            where = "" if one.tp is None else f"{one.tp}: "
            sys.stdout.write(f"{one.kind}  {one.when}  {where}{one.text}\n")
    commands.say_damage(damage)
    if found:
        say(f"ottla: {plural(len(found), 'finding')}: leaders that must not be")
        raise Exit(EXIT_FOUND)


def _of_logs(paths: "Sequence[Path]") -> "list[Finding]":
    """Return what state change logs prove; one that cannot be read is told."""
    from ottla.explain.findings import logs_in, of_logs

    try:
        return of_logs(logs_in(paths))
    except OttlaError as error:
        say(f"ottla: state change logs are left out: {error}")
        return []


def _about(found: "list[Finding]", subject: str | None, topics: set[str]) -> "list[Finding]":
    """Return what is of a subject, and what is of all that a broker has."""
    topic, partition = _subject(subject, topics)
    return [
        one
        for one in found
        if one.tp is None
        or topic is None
        or (one.topic == topic and partition in (None, one.partition))
    ]


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
