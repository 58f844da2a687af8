"""What every job's command line shares: options, exit codes, and one line where something fails.

Invariants: stdout carries the job's result alone; whatever is wrong in the world is one line on
stderr and exit code 1; SIGTERM ends a job as Ctrl-C does.
"""

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from ottla.model.errors import OttlaError
from ottla.pipelines import interrupts
from ottla.pipelines.paths import of_disk
from ottla.pipelines.session import DEBUG, Wanted

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all jobs have."""
    found = argparse.ArgumentParser(prog=f"ottla pipeline {name}", description=description)
    found.add_argument("--config", type=Path, metavar="FILE", help="the job's settings, TOML")
    found.add_argument(
        "--set", action="append", default=[], metavar="TABLE.KEY=VALUE", dest="sets",
        help="a setting, over the file's; may be repeated",
    )  # fmt: skip
    found.add_argument("--master", help="Spark's master [spark-submit's, the file's, or local[*]]")
    found.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE",
        help="a setting of Spark; may be repeated",
    )  # fmt: skip
    return found


def add_cluster_options(parser: argparse.ArgumentParser, why: str | None = None) -> None:
    """Add the options of a job that may ask a running cluster."""
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT[,…]", help=why)
    parser.add_argument(
        "--command-config", metavar="FILE", help="Kafka's client.properties, for TLS and SASL"
    )


def cluster_sets(options: argparse.Namespace) -> list[str]:
    """Return --set, and what `add_cluster_options` added as such."""
    given = {
        "cluster.bootstrap_servers": options.bootstrap_server,
        "cluster.properties": options.command_config,
    }
    return [*options.sets, *(f"{key}={json.dumps(v)}" for key, v in given.items() if v)]


def wanted_of(options: argparse.Namespace) -> Wanted:
    """Return what --master and --conf ask for; OttlaError if a --conf is no KEY=VALUE."""
    conf: dict[str, str] = {}
    for text in options.conf:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise OttlaError(f"--conf {text}: write KEY=VALUE")
        conf[key] = value
    return Wanted(options.master, conf)


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
    """Print lines until there are no more, or until whoever reads them has seen enough."""
    try:
        for line in lines:
            sys.stdout.write(line)
        sys.stdout.flush()
    except BrokenPipeError:  # the interpreter would try once more when it ends
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


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
