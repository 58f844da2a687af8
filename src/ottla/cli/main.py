"""Running a command: what is printed when it does not work, and with which exit code.

Invariants: exit code 0 means it held, 1 it failed, 2 it was typed wrong; bad input is one line
naming the thing, the reason and the way out, never a traceback; a command imports what it needs
when it runs, so that `ottla --help` is instant; every command takes --bootstrap-server and works
with any Kafka, or finds the cluster that `ottla up` started in --dir.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from ottla.cli import Option, output
from ottla.model import process

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def everywhere(
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print only data and errors")] = False,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Also print each request, its broker and its latency")
    ] = False,
) -> None:
    """Declare the options that every command has (see `around`)."""


@contextmanager
def around(typed: Mapping[str, Any]) -> Iterator[None]:
    """Have a command print as the options say that it shares with all others."""
    prints = output.Output(
        typed.get("output", output.Format.table), quiet=typed["quiet"], verbose=typed["verbose"]
    )
    from ottla.model import waits

    with output.printing(prints):
        if not prints.quiet:
            waits.report_to(output.print_waits)
        try:
            yield
        finally:
            waits.silence()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        process.take_over()
    try:
        from ottla.cli import grammar

        code = grammar.run(words)
        sys.stdout.flush()  # what cannot be written is reported here, not by the interpreter
        return code
    except KeyboardInterrupt:
        output.complain(process.INTERRUPTED)
        if arguments is None:
            process.leave_interrupted()
        return process.EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a bug of ours is raised again
        return _failed(error)


def _failed(error: Exception) -> int:
    """Say what failed in one line; an error of ours, which was not expected, is raised."""
    from ottla.model.errors import OttlaError, of_system

    if isinstance(error, OttlaError):
        output.complain(f"ottla: {error}")
        return EXIT_FAILED
    if isinstance(error, BrokenPipeError):
        process.give_up(sys.stdout)  # whoever read it has seen enough
        return EXIT_OK
    if isinstance(error, OSError):
        if error.filename == process.STANDARD_OUTPUT:
            process.give_up(sys.stdout)
        where = error.filename
        output.complain(f"ottla: {f'{where}: ' if where else ''}{of_system(error)}")
        return EXIT_FAILED
    raise error
