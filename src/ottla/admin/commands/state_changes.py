"""The command `merge-state-changes`: state-change.log of all brokers as one.

Invariants: offline; nothing is written but standard output.
"""

import sys
from typing import Annotated

from ottla.admin.connection import Dir
from ottla.cli import Option, UsageError
from ottla.model.errors import OttlaError
from ottla.model.printable import plural


def merge_state_changes(
    logs: Annotated[
        str | None, Option(metavar="FILE,...", help="Files to merge, also compressed (.gz)")
    ] = None,
    logs_regex: Annotated[
        str | None,
        Option(metavar="FOLDER/REGEX", help="Files below a folder whose names match"),
    ] = None,
    start_time: Annotated[
        str | None,
        Option(metavar="TIME", help="Only lines from this time on, such as 2026-11-23 12:30:01,5"),
    ] = None,
    end_time: Annotated[
        str | None, Option(metavar="TIME", help="Only lines until this time")
    ] = None,
    topic: Annotated[
        str | None, Option(help="Only lines that name this topic", complete="topic")
    ] = None,
    partitions: Annotated[
        str | None,
        Option(
            metavar="N,...", complete="number", help="Only lines that name one of these partitions"
        ),
    ] = None,
    directory: Dir = None,
) -> None:
    from ottla.admin.log_files import state_changes
    from ottla.local.cluster_dir import default_dir

    named = logs is not None or logs_regex is not None
    if named and directory is not None:
        raise UsageError("--dir finds the files itself; leave it out, or --logs and --logs-regex")
    if partitions is not None and topic is None:
        raise UsageError("--partitions goes with --topic")
    wanted = None if partitions is None else _numbers(partitions)
    start = None if start_time is None else state_changes.parse_time(start_time)
    end = None if end_time is None else state_changes.parse_time(end_time, last=True)
    if named:
        paths = state_changes.find([] if logs is None else logs.split(","), logs_regex)
    else:
        paths = state_changes.of_cluster(directory or default_dir())
    matched = False
    for lines in state_changes.merged(paths, start, end, state_changes.about(topic, wanted)):
        matched = True
        _write(lines)
    if not matched:
        about = "a partition" if topic is None else f"topic {topic}"
        about += f", partition {partitions}" if partitions is not None else ""
        about += f", from {start_time}" if start_time is not None else ""
        about += f", to {end_time}" if end_time is not None else ""
        raise OttlaError(
            f"no line of {plural(len(paths), 'file')} (such as {paths[0]}) is about {about}; are "
            "these state change logs, and are the options as in them?"
        )


def _write(lines: list[bytes]) -> None:
    lines.append(b"")
    sys.stdout.write(b"\n".join(lines).decode("utf-8", "backslashreplace"))
    sys.stdout.flush()


def _numbers(text: str) -> frozenset[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--partitions {text}: write numbers between commas, such as 0,1,5")
    return frozenset(map(int, parts))
