"""The command `merge-state-changes`: state-change.log of all brokers as one.

Who may call: `cli`. Invariants: offline; nothing is written but standard output.
"""

import sys
from typing import Annotated

from ottla.admin.arguments import Option, UsageError


def merge_state_changes(
    logs: Annotated[
        str | None, Option(metavar="FILE,...", help="The files to merge; .gz is read, too")
    ] = None,
    logs_regex: Annotated[
        str | None, Option(metavar="FOLDER/REGEX", help="Also files with such names in a folder")
    ] = None,
    start_time: Annotated[
        str | None, Option(metavar="TIME", help="Leave out what was before: 2026-11-23 12:30:01,5")
    ] = None,
    end_time: Annotated[str | None, Option(metavar="TIME", help="Leave out what was after")] = None,
    topic: Annotated[str | None, Option(help="Only lines that name this topic")] = None,
    partitions: Annotated[
        str | None, Option(metavar="N,...", help="Only lines that name such a partition")
    ] = None,
) -> None:
    """Merge state change logs of several brokers, of Ottla or Kafka, in order of time.

    Prints the lines that name a partition, as [orders,0] or as orders-0. The times are those in the
    logs. Lines of the same time are in the order of the files.

    Example: ottla merge-state-changes --logs-regex 'ottla-data/.*' --topic orders
    Example: ottla merge-state-changes --logs b0/state-change.log,b1/state-change.log
    """
    from ottla.admin.log_files import state_changes  # noqa: PLC0415 - lazy

    if logs is None and logs_regex is None:
        raise UsageError("name the files: --logs FILE,... or --logs-regex FOLDER/REGEX")
    if partitions is not None and topic is None:
        raise UsageError("--partitions goes with --topic")
    paths = state_changes.find([] if logs is None else logs.split(","), logs_regex)
    wanted = None if partitions is None else _numbers(partitions)
    start = None if start_time is None else state_changes.parse_time(start_time)
    end = None if end_time is None else state_changes.parse_time(end_time, last=True)
    for lines in state_changes.merged(paths, start, end, state_changes.about(topic, wanted)):
        _write(lines)


def _write(lines: list[bytes]) -> None:
    lines.append(b"")
    sys.stdout.write(b"\n".join(lines).decode("utf-8", "backslashreplace"))
    sys.stdout.flush()


def _numbers(text: str) -> frozenset[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--partitions {text}: write numbers between commas, such as 0,1,5")
    return frozenset(map(int, parts))
