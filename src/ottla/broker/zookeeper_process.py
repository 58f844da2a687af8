"""Our ZooKeeper server as a program: `ottla zookeeper run --data-dir D --client-port P`.

It stands beside the broker's program and uses none of it. Invariants: bad input and a folder that
cannot be used end in one line on stderr and exit code 1 (2 for bad usage); SIGTERM and SIGINT end
it in order, with everything durable, and exit code 0; a disk that cannot be written, and whatever
else ends its flushes, ends it with exit code 1, and nothing more is acknowledged. It listens on
127.0.0.1 unless `--host` says otherwise: it is for one machine. ZooKeeper: `ZooKeeperServerMain`.
"""

import asyncio
import faulthandler
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from ottla.broker.program import EXIT_FAILED, EXIT_OK, Level, last_words, set_up_logging
from ottla.cli import Argument
from ottla.cli.declaring import Option, read_plainly
from ottla.log.files import OsFiles
from ottla.model.errors import ConfigError, OttlaError
from ottla.net import garbage, runtime
from ottla.security.sasl.jaas import users_of
from ottla.zookeeper import data_copy
from ottla.zookeeper.database import ACCEPT_LOSS, SET_ASIDE, SNAPSHOT_TRANSACTIONS, Database
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.server_authentication import NO_SASL, SaslUsers
from ottla.zookeeper.server_connection import Limits

SECTION = "Server"
"""Of the JAAS file: ZooKeeper's name for it."""
logger = logging.getLogger(__name__)


def copy(
    source: Annotated[str, Argument(metavar="FROM", help="The dataDir with the znodes")],
    target: Annotated[str, Argument(metavar="TO", help="A dataDir without znodes")],
) -> int:
    """Copy the znodes of one dataDir into another one.

    Bad input and folders that cannot be used end in one line on stderr and exit code 1 (2 for bad
    usage), and leave both folders as they were.
    """
    source, target = (path.rstrip("/") or "/" for path in (source, target))
    try:
        found = data_copy.copy(runtime.real_world(OsFiles()), source, target)
    except OttlaError as error:
        sys.stderr.write(f"ottla zookeeper: {error}\n")
        return EXIT_FAILED
    sys.stdout.write(
        f"copied {found.znodes} znodes at zxid {found.zxid:#x} into {target}"
        + (f", cluster {found.cluster_id}" if found.cluster_id else "")
        + (f", {found.sessions} sessions that were not closed" if found.sessions else "")
        + "\n"
    )
    return EXIT_OK


@dataclass(slots=True)
class Arguments:
    """What follows `ottla zookeeper run`."""

    data_dir: Annotated[str, Option(metavar="FOLDER", help="ZooKeeper's dataDir")]
    client_port: Annotated[int, Option(metavar="PORT", help="0: a free port")] = 2181
    host: Annotated[str, Option(metavar="ADDRESS", help="Listen on this address")] = "127.0.0.1"
    tick_time: Annotated[int, Option(metavar="MS", help="Length of a tick")] = 1000
    min_session_timeout: Annotated[
        int | None, Option(metavar="MS", help="Shortest session timeout [2 ticks]")
    ] = None
    max_session_timeout: Annotated[
        int | None, Option(metavar="MS", help="Longest session timeout [20 ticks, at least 60000]")
    ] = None
    snap_count: Annotated[
        int, Option(metavar="N", help="Transactions from one snapshot to the next")
    ] = SNAPSHOT_TRANSACTIONS
    max_client_cnxns: Annotated[
        int, Option(metavar="N", help="Connections of all clients together")
    ] = Limits().connections
    jaas_config: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="JAAS file whose section Server names the users that may authenticate by SASL "
            "(DIGEST-MD5)",
        ),
    ] = None
    require_sasl: Annotated[
        bool, Option("--require-sasl", help="Serve only clients that authenticate")
    ] = False
    accept_data_loss: Annotated[
        bool,
        Option(
            ACCEPT_LOSS,
            help="Start although acknowledged changes cannot be read: keep what precedes the "
            f"damage, and rename the damaged files to {SET_ASIDE}.*",
        ),
    ] = False
    log_file: Annotated[
        str | None, Option(metavar="FILE", help="Append the log to this file, not to stderr")
    ] = None
    log_level: Annotated[Level, Option(help="Log from this level up")] = Level.info


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
    plain = read_plainly(Arguments, argv)
    if plain is not None:
        return run(plain)
    from ottla.cli.grammar import run as run_command

    return run_command(["zookeeper", "run", *argv])


def run(arguments: Arguments) -> int:
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
