"""Options that many commands share, and what is asked before a change: `--yes` and files."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import complain
from ottla.model.errors import OttlaError

S = TypeVar("S")
T = TypeVar("T")

TopicArgument = Annotated[str | None, Argument(metavar="TOPIC", complete="topic")]
TopicOption = Annotated[
    str | None,
    Option("--topic", "-t", help="The topic, instead of the argument", complete="topic"),
]
ZooKeeperConfig = Annotated[
    Path | None,
    Option(
        "--zookeeper-config",
        metavar="FILE",
        help="Connect to ZooKeeper as this server.properties says (TLS, SASL, ACLs)",
    ),
]
Yes = Annotated[bool, Option("--yes", help="Do not ask for confirmation")]
DryRun = Annotated[bool, Option("--dry-run", help="Check and show the change, without making it")]
Regex = Annotated[
    bool, Option("--regex", help="Treat names as regular expressions for whole names")
]


def one_topic(argument: str | None, option: str | None) -> str:
    """Return the topic that was named, as an argument or by --topic."""
    if argument is not None and option is not None:
        raise UsageError(f"two topics, {argument} and {option}; name one")
    name = argument if argument is not None else option
    if name is None:
        raise UsageError("name a topic")
    return name


def needs_yes(yes: bool, what_is_lost: str) -> None:
    """Refuse what cannot be undone where no one can be asked; `--yes` stands for a yes."""
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"{what_is_lost}; add --yes to do it without being asked")


def _confirmed(question: str) -> bool:
    """Ask at the terminal; no response is a no."""
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def fail_for(problems: Sequence[str]) -> None:
    """Say on standard error what could not be had while the rest was shown; then exit code 1."""
    for problem in problems:
        complain(f"ottla: {problem}")
    if problems:
        raise Exit(1)


def agreed(yes: bool, question: str, otherwise: str) -> None:
    """Ask, unless --yes was typed; OttlaError saying what was left alone for a no."""
    if not yes and not _confirmed(question):
        raise OttlaError(otherwise)


def read_input(name: str, max_bytes: int) -> tuple[bytes, str]:
    """Return the bytes of a file, - being standard input, and how to call it in messages.

    One byte more than `max_bytes` says that there are more.
    """
    if name == "-":
        return sys.stdin.buffer.read(max_bytes + 1), "standard input"
    with Path(name).open("rb") as file:
        return file.read(max_bytes + 1), name


def usage(parse: Callable[[S], T], texts: Sequence[S], option: str) -> list[T]:
    """Parse the value of one option; an error names the option."""
    try:
        return [parse(text) for text in texts]
    except ValueError as error:
        raise UsageError(f"{option} {error}".strip()) from None
