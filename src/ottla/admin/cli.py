"""The command line: what a person types, and what they are told when it does not work.

Who may call: `ottla.__main__`. Invariants: exit code 0 means it held, 1 it failed, 2 it was typed
wrong; bad input is one line naming the thing, the reason and the way out, never a traceback; a
command imports what it needs when it runs, so that `ottla --help` is instant; every command takes
--bootstrap-server and works with any Kafka, or finds the cluster that `ottla up` started in --dir.
"""

import contextlib
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import typer

from ottla.admin.commands import (
    brokers,
    cluster,
    configs,
    consume,
    elect,
    groups,
    log_dirs,
    logs,
    produce,
    reassign,
    topics,
    transactions,
)
from ottla.admin.output import say
from ottla.model.errors import OttlaError

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="ottla",
    help="A replicated log that speaks Apache Kafka's protocol. `ottla up` starts a cluster here.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(brokers.app, name="broker")
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="txn")
app.add_typer(reassign.app, name="reassign")
app.command("elect")(elect.elect)
app.command("log-dirs")(log_dirs.log_dirs)
app.command("logs")(logs.logs)
app.command("up")(cluster.up)
app.command("down")(cluster.down)
app.command("status")(cluster.status)
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("demo")(cluster.demo)

# -- the way in and out -------------------------------------------------------------------------

_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
_ANY_USAGE_PROBLEM: Any = _USAGE_ERROR.__mro__[1]


def _end_like_ctrl_c(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _with_value(text: str, error: Any, arguments: Sequence[str] | None) -> str:
    """Add the value that was typed to a message about a number, which leaves it out."""
    if "should be a valid" not in text:
        return text
    typed = list(sys.argv[1:] if arguments is None else arguments)
    names = set(getattr(getattr(error, "param", None), "opts", ()))
    for name, value in pairwise(typed):
        if name in names:
            return f"{name} {value}: " + ("not an integer" if "integer" in text else "not a number")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    with contextlib.suppress(ValueError):  # not in the main thread: nothing to catch there
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end_like_ctrl_c)
    try:
        code = app(args=arguments, standalone_mode=False)
    except _ANY_USAGE_PROBLEM as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "ottla"
        # No arguments at all: the error is the help text.
        text = str(error.format_message())
        if type(error).__name__ != "NoArgsIsHelpError":
            text = f"{path}: {_with_value(text, error, arguments)}"
        say(text)
        return EXIT_USAGE
    except OttlaError as error:
        say(f"ottla: {error}")
        return EXIT_FAILED
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not write to it again.
        with contextlib.suppress(OSError):
            sys.stdout.close()
        return EXIT_OK
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        say(f"ottla: {where}{error.strerror or error}")
        return EXIT_FAILED
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:  # what typer makes of an interrupt that it caught itself
        if arguments is None:
            # The interpreter takes its time to go; a second Ctrl-C meanwhile would kill it by
            # signal, and its caller would hear another exit code.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        say("ottla: interrupted")
    return code if isinstance(code, int) else EXIT_OK
