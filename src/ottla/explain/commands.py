"""Commands: `ottla why` and `ottla history replay`, as a person types them.

Invariants: offline: only files are read, no broker is asked and nothing is written; stdout carries
what was asked for, what was skipped is said on stderr; exit code 1 where the response is no: an
unknown partition, no journal, a difference. Imports what it needs when it runs.
"""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from ottla.admin.connection import Local
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import Format, print_json, say
from ottla.model.printable import plural

EXIT_DIFFERENT = 1
DAMAGE_SHOWN = 5


def why(
    local: Local,
    partition: Annotated[str, Argument(metavar="TOPIC-PARTITION")],
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="[JOURNAL]...", help="Journals, or folders to search for them [--dir]"),
    ] = None,
    at: Annotated[
        str | None,
        Option(metavar="TIME", help="State at that time, and its cause"),
    ] = None,
) -> None:
    from ottla.explain.history import PartitionHistory
    from ottla.explain.rendering import print_at, print_history, unknown_partition
    from ottla.model.journal_schema import partition_of

    try:
        tp = partition_of(partition)
    except ValueError as error:
        raise UsageError(str(error)) from error
    journals, (until,) = journals_of(paths, local.directory, at)
    history = PartitionHistory(tp)
    damage = take_all(journals, until, history.take)
    if not history.seen:
        raise unknown_partition(tp, history.cluster)
    if local.output is Format.json:
        from ottla.explain.results import history_of

        print_json(history_of(history, damage, until))
    elif at is None:
        print_history(history)
    else:
        print_at(history)
    say_damage(damage)


def replay(
    local: Local,
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="[JOURNAL]...", help="Journals, or folders to search for them [--dir]"),
    ] = None,
    until: Annotated[str | None, Option(metavar="TIME", help="Draw until this time")] = None,
    diff: Annotated[
        bool,
        Option(
            "--diff",
            help="Repeat all decisions with the installed rules; exits with 1 if one differs",
        ),
    ] = False,
) -> None:
    from ottla.explain.cluster_state import ClusterState
    from ottla.explain.rendering import print_cluster_state, print_differences
    from ottla.explain.replay import Replay

    journals, (last,) = journals_of(paths, local.directory, until)
    if not diff:
        cluster = ClusterState()
        damage = take_all(journals, last, cluster.take)
        if local.output is Format.json:
            from ottla.explain.results import cluster_of

            print_json(cluster_of(cluster, damage))
        else:
            print_cluster_state(cluster)
        say_damage(damage)
        return
    replayed = Replay()
    with _without_log_lines():
        damage = take_all(journals, last, replayed.take, replayed.lines_missing)
        replayed.finish()
    if local.output is Format.json:
        from ottla.explain.results import differences_of

        print_json(differences_of(replayed, damage))
    else:
        print_differences(replayed)
    say_damage(damage)
    if replayed.differences:
        raise Exit(EXIT_DIFFERENT)


@contextlib.contextmanager
def _without_log_lines() -> Iterator[None]:
    """Leave out what the controller's procedures log: nothing happens, they only run again."""
    loggers = [logging.getLogger(name) for name in ("ottla.controller", "state.change.logger")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def journals_of(
    paths: list[Path] | None, directory: Path | None, *moments: str | None
) -> tuple[Any, list[int | None]]:
    """Find the journals, and read what moments are meant; the journals' last day is looked up once.

    Moments are ms since 1970, None where none was named.
    """
    from ottla.explain import journals as files
    from ottla.explain.timestamps import lacks_date, parse_time
    from ottla.local.cluster_dir import default_dir

    found = files.find(paths or [directory or default_dir()])
    last = -1
    if any(text is not None and lacks_date(text) for text in moments):
        last = max((e.line.ts for e in files.read(found, files.Damage())), default=-1)
    return found, [None if text is None else parse_time(text, last) for text in moments]


def take_all(
    journals: Any, until: int | None, take: Any, gap: Any = None, wanted: Any = lambda _raw: True
) -> Any:
    """Give all lines up to a moment, of however many journals, to `take`; return the damage.

    `wanted` is a test of lines as bytes: the others are not parsed, nor is their damage seen.
    NoJournalError if there is no such line: a response drawn from nothing would mislead.
    """
    from ottla.explain.journals import WAY_OUT, Damage, NoJournalError, read
    from ottla.explain.timestamps import time_text

    damage = Damage()
    seen = 0
    first = None
    taken = False
    for entry in read(journals, damage, wanted):
        first = entry.line.ts if first is None else first
        if gap is not None and damage.count + damage.missing != seen:
            seen = damage.count + damage.missing
            gap()
        if until is None or entry.line.ts <= until:
            take(entry)
            taken = True
    if not taken:
        names = ", ".join(str(file) for files in journals for file in files)
        if first is not None:
            raise NoJournalError(
                f"nothing was written until then; the first is of {time_text(first)}"
            )
        raise NoJournalError(f"no line of a controller's journal in {names}; {WAY_OUT}")
    return damage


def say_damage(damage: Any) -> None:
    for file, number, problem in damage.named[:DAMAGE_SHOWN]:
        say(f"ottla: {file}:{number} is damaged and was skipped: {problem}")
    if damage.count > DAMAGE_SHOWN:
        skipped = plural(damage.count, "damaged line was", "damaged lines were")
        say(f"ottla: {skipped} skipped in all")
    if damage.missing:
        never = plural(damage.missing, "line was", "lines were")
        say(f"ottla: {never} never written: the disk was too slow for them")
