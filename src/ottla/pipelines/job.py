"""What every job's command line shares: options, exit codes, and one line where something fails.

Invariants: stdout carries the job's result alone; whatever is wrong in the world is one line on
stderr and exit code 1; SIGTERM ends a job as Ctrl-C does.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ottla.cli import Option, UsageError
from ottla.model import process
from ottla.model.errors import OttlaError
from ottla.pipelines import interrupts
from ottla.pipelines.paths import of_disk
from ottla.pipelines.session import DEBUG, Wanted

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True, kw_only=True)
class Options:
    """What all jobs take."""

    config: Annotated[Path | None, Option(metavar="FILE", help="The job's settings, TOML")] = None
    sets: Annotated[
        Sequence[str],
        Option("--set", metavar="TABLE.KEY=VALUE", help="Override a setting; repeatable"),
    ] = ()
    master: Annotated[
        str | None, Option(help="Spark's master [spark-submit's, the file's, or local[*]]")
    ] = None
    conf: Annotated[
        Sequence[str], Option("--conf", metavar="KEY=VALUE", help="A Spark setting; repeatable")
    ] = ()


def wanted_of(options: Options) -> Wanted:
    """Return what --master and --conf ask for; OttlaError if a --conf is not KEY=VALUE."""
    conf: dict[str, str] = {}
    for text in options.conf:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise OttlaError(f"--conf {text}: write KEY=VALUE")
        conf[key] = value
    return Wanted(options.master, conf)


def at_most_one(**typed: object) -> None:
    """Refuse options that exclude each other; UsageError."""
    names = [f"--{name.replace('_', '-')}" for name, value in typed.items() if value]
    if len(names) > 1:
        raise UsageError(f"{names[0]} and {names[1]} exclude each other")


def main(name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a job by its name, as `ottla pipeline NAME` does; return the exit code."""
    from ottla.cli.grammar import run as run_command

    return run_command(["pipeline", name, *(sys.argv[1:] if arguments is None else arguments)])


def run(name: str, work: Callable[[], int]) -> int:
    """Do the work; return its exit code, or 1 with one line on stderr if it fails."""
    # py4j tells of every call that an interrupt cut short, with its traceback.
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.CRITICAL)
    try:
        with interrupts.noted():
            return work()
    except KeyboardInterrupt:
        sys.stderr.write(f"pipeline {name}: interrupted\n")
        return EXIT_INTERRUPTED
    except UsageError:
        raise
    except Exception as error:  # the program's root: Spark raises what it likes
        if interrupts.caused(error):
            sys.stderr.write(f"pipeline {name}: interrupted\n")
            return EXIT_INTERRUPTED
        if os.environ.get(DEBUG):
            raise
        sys.stderr.write(f"pipeline {name}: {in_one_line(error)}\n")
        return EXIT_FAILED
    finally:
        root.setLevel(level)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines until there are no more, or until the reader of a pipe has closed it."""
    try:
        for line in lines:
            sys.stdout.write(line)
        sys.stdout.flush()
    except BrokenPipeError:
        process.give_up(sys.stdout)


_OURS = re.compile(r"^.*?\bottla\.[\w.]+Error: (.+)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"


def in_one_line(error: BaseException) -> str:
    """Return what went wrong, in one line: our own words, or the innermost of Spark's causes.

    What fails in a task, or in a data source while Spark plans, comes back as the text of a Python
    traceback inside a Java exception.
    """
    if isinstance(error, OttlaError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return of_disk(error)
    text = str(error)
    if ours := _OURS.findall(text):
        return str(ours[-1]).strip()
    _, found, trace = text.rpartition(_TRACEBACK)
    if found:  # its frames are indented, what was raised is not
        raised = (line for line in trace.splitlines() if line.strip() and not line[0].isspace())
        return next(raised, type(error).__name__).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    reported = causes[-1] if causes else next(iter(lines), "")
    return f"{type(error).__name__}: {reported}" if reported else type(error).__name__
