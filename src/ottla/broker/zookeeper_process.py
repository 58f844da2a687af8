"""Our ZooKeeper server as a program: `ottla zookeeper run --data-dir D --client-port P`.

It stands beside the broker's program and uses none of it. Invariants: bad input and a folder that
cannot be used end in one line on stderr and exit code 1 (2 for bad usage); SIGTERM and SIGINT end
in order, with everything durable, and exit code 0; a disk that cannot be written, and whatever else
ends its flushes, ends it with exit code 1, and nothing more is acknowledged. It listens on
127.0.0.1 unless `--host` says otherwise: it is for one machine. ZooKeeper: `ZooKeeperServerMain`.
"""

import asyncio
import faulthandler
import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ottla.broker.program import EXIT_FAILED, EXIT_OK, LEVELS, last_words, set_up_logging
from ottla.log.files import OsFiles
from ottla.model.errors import ConfigError, OttlaError
from ottla.net import garbage, runtime
from ottla.security.sasl.jaas_file import users_of
from ottla.zookeeper.database import ACCEPT_LOSS, SET_ASIDE, SNAPSHOT_TRANSACTIONS, Database
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.server_authentication import NO_SASL, SaslUsers
from ottla.zookeeper.server_connection import Limits

SECTION = "Server"
"""Of the JAAS file: ZooKeeper's name for it."""
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Arguments:
    """What follows `ottla zookeeper run`."""

    data_dir: str = ""
    client_port: int = 2181
    host: str = "127.0.0.1"
    tick_time: int = 1000
    min_session_timeout: int | None = None
    max_session_timeout: int | None = None
    snap_count: int = SNAPSHOT_TRANSACTIONS
    max_client_cnxns: int = Limits().connections
    jaas_config: str | None = None
    require_sasl: bool = False
    accept_data_loss: bool = False
    log_file: str | None = None
    log_level: str = "info"


_NUMBERS = {
    "--client-port": "client_port",
    "--tick-time": "tick_time",
    "--min-session-timeout": "min_session_timeout",
    "--max-session-timeout": "max_session_timeout",
    "--snap-count": "snap_count",
    "--max-client-cnxns": "max_client_cnxns",
}
_TEXTS = {"--data-dir": "data_dir", "--host": "host", "--log-file": "log_file"}


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Parse the arguments after `ottla zookeeper run`."""
    return _parse_plain(argv) or _parse_any(argv)


def _parse_plain(argv: Sequence[str]) -> Arguments | None:
    """Read whole names, each followed by a value; None where there is anything else.

    Without `argparse`, as a broker does: `ottla up` waits for this server.
    """
    found = Arguments()
    for name, value in zip_longest(argv[::2], argv[1::2]):
        if value is None or value.startswith("-"):
            return None
        if name in _TEXTS:
            setattr(found, _TEXTS[name], value)
        elif name in _NUMBERS and value.isascii() and value.isdigit():
            setattr(found, _NUMBERS[name], int(value))
        else:
            return None
    return found if found.data_dir else None


def _parse_any(argv: Sequence[str]) -> Arguments:
    """Do so for all that argparse takes; help and mistakes end the process."""
    from ottla.broker.argument_parser import Parser  # see `_parse_plain`

    parser = Parser(
        prog="ottla zookeeper run",
        description="Run a ZooKeeper server for one machine in the foreground. It keeps "
        "ZooKeeper's own files: a real ZooKeeper 3.8 or 3.9 opens the folder, and the other way "
        "round; `ottla zookeeper copy FROM TO` copies one's znodes for the other.",
    )
    add = parser.add_argument
    add("--data-dir", required=True, metavar="FOLDER", help="ZooKeeper's dataDir")
    add("--client-port", type=int, metavar="PORT", help="[2181]; 0: a free one")
    add("--host", help="the address to listen on [127.0.0.1]")
    add("--tick-time", type=int, metavar="MS", help="[1000]")
    add("--min-session-timeout", type=int, metavar="MS", help="[2 ticks]")
    add("--max-session-timeout", type=int, metavar="MS", help="[20 ticks, at least 60000]")
    add(
        "--snap-count", type=int, metavar="N",
        help=f"transactions from one snapshot to the next [{SNAPSHOT_TRANSACTIONS}]",
    )  # fmt: skip
    add(
        "--max-client-cnxns", type=int, metavar="N",
        help=f"connections of all clients together [{Limits().connections}]",
    )  # fmt: skip
    add(
        "--jaas-config", metavar="FILE",
        help="a JAAS file whose section Server names the users: clients may authenticate by SASL "
        "(DIGEST-MD5)",
    )  # fmt: skip
    add("--require-sasl", action="store_true", help="serve no client that did not authenticate")
    add(
        ACCEPT_LOSS, action="store_true",
        help="start although acknowledged changes cannot be read: keep what precedes the damage, "
        f"and rename the damaged files to {SET_ASIDE}.*",
    )  # fmt: skip
    add("--log-file", metavar="FILE", help="append the log here, not to stderr")
    add("--log-level", choices=LEVELS)
    return parser.parse_args(argv, Arguments())


def _sasl(arguments: Arguments) -> SaslUsers:
    """Return who may authenticate; ConfigError."""
    file = arguments.jaas_config
    if file is None:
        if arguments.require_sasl:
            raise ConfigError("--require-sasl goes with --jaas-config FILE")
        return NO_SASL
    with open(file, encoding="utf-8", errors="replace") as opened:  # noqa: PTH123
        text = opened.read()
    return SaslUsers(users_of(file, text, SECTION), arguments.require_sasl)


async def _serve(arguments: Arguments) -> Exception | None:
    """Start a server, wait for a signal, stop it; return the error that ended it, if one did."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Exception | None] = loop.create_future()

    def end(reason: Exception | None) -> None:
        if not ended.done():
            ended.set_result(reason)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, None)
    garbage.begin()
    world = runtime.real_world(OsFiles())
    database = Database(
        world,
        arguments.data_dir.rstrip("/") or "/",
        snapshot_transactions=arguments.snap_count,
        accept_loss=arguments.accept_data_loss,
    )
    database.open()
    tick_ms = arguments.tick_time
    server = MemoryZooKeeper(
        world,
        tick_ms=tick_ms,
        min_session_timeout_ms=arguments.min_session_timeout,
        max_session_timeout_ms=arguments.max_session_timeout or max(20 * tick_ms, 60_000),
        database=database,
        limits=Limits(connections=arguments.max_client_cnxns),
        sasl=_sasl(arguments),
    )
    server.on_failure = end
    try:
        await server.start(arguments.host, arguments.client_port)
        logger.info(
            "server started address=%s zxid=%#x znodes=%d sessions=%d",
            server.connect_string, database.tree.zxid, len(database.tree.nodes),
            len(database.sessions),
        )  # fmt: skip
        garbage.settle()
        failure = await ended
        if failure is None:
            await server.shut_down()
            failure = database.failure
            logger.info("server stopped zxid=%#x", database.tree.zxid)
        return failure
    finally:
        database.release()


def main(argv: Sequence[str]) -> int:
    """Run a server until a signal ends it; return the exit code."""
    arguments = parse_arguments(argv)
    faulthandler.enable()
    try:
        set_up_logging(arguments.log_file, arguments.log_level)
        error: Exception | None = runtime.run(_serve, arguments)
    except (OttlaError, OSError) as raised:
        error = raised
    if error is None:
        return EXIT_OK
    text = str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror or error}"
    elif not isinstance(error, OttlaError):
        text = f"{type(error).__name__}: {error}"
    last_words(f"ottla zookeeper: {text}")
    return EXIT_FAILED
