"""Options that many commands share, and how they find the cluster they speak to.

Invariants: a command takes --bootstrap-server and works with any Kafka, or finds the cluster that
`ottla up` started in --dir.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import Format, complain
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.local.cluster_dir import ClusterDir

S = TypeVar("S")
T = TypeVar("T")

Dir = Annotated[
    Path | None,
    Option("--dir", help="Folder of the cluster [default: $OTTLA_DIR or ./ottla-data]"),
]
Bootstrap = Annotated[
    str | None,
    Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT[,…]",
        help="Brokers of any Kafka cluster [default: the cluster in --dir]",
    ),
]
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
Output = Annotated[Format, Option("--output", help="Format of the result")]


def cluster_folder(path: Path | None) -> "ClusterDir":
    """Return the `ClusterDir` of --dir, or of where a cluster is looked for without it."""
    from ottla.admin.connection import Where

    return Where(None, path).folder


def bootstrap(address: str | None, path: Path | None) -> str:
    """Return the addresses of the cluster that is meant (see `connection`)."""
    from ottla.admin.connection import where

    return where(address, path).bootstrap()


def ask(
    path: Path | None,
    address: str | None,
    question: "Callable[[Client], Awaitable[T]]",
    *,
    timeout_s: float | None = None,
) -> T:
    """Put a question to the cluster that is meant by --bootstrap-server, --dir and so on."""
    from ottla.admin.connection import where
    from ottla.admin.session import CALL_TIMEOUT_S, connected

    found = where(address, path)
    settings = found.settings
    try:
        return connected(
            found.bootstrap(),
            question,
            timeout_s=timeout_s or settings.timeout_s or CALL_TIMEOUT_S,
            client_id=settings.client_id,
            security=settings.security,
        )
    except OttlaError as error:
        problem = found.folder.zookeeper_problem() if found.address is None else None
        if problem is None:
            raise
        raise OttlaError(f"{problem}; brokers can change nothing without it ({error})") from error


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
