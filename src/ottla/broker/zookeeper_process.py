"""Our ZooKeeper server as a program: `ottla zookeeper run --data-dir D --client-port P`.

Who may call: `ottla.__main__`. It stands beside the broker's program and uses none of it.
Invariants: bad input and a folder that cannot be used end in one line on stderr and exit code 1 (2
for bad usage); SIGTERM and SIGINT end in order, with everything durable, and exit code 0; a disk
that cannot be written ends it with exit code 1, and nothing more is acknowledged. It listens on
127.0.0.1 unless `--host` says otherwise: it is for one machine. ZooKeeper:
`ZooKeeperServerMain`.
"""

import argparse
import asyncio
import faulthandler
import logging
import signal
import sys
from collections.abc import Sequence

from ottla.broker.argument_parser import Parser
from ottla.broker.program import EXIT_FAILED, EXIT_OK, LEVELS, set_up_logging
from ottla.log.files import OsFiles
from ottla.model.errors import OttlaError
from ottla.net import garbage, runtime
from ottla.zookeeper.database import SNAPSHOT_TRANSACTIONS, Database
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.server_connection import Limits

logger = logging.getLogger(__name__)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments after `ottla zookeeper run`."""
    parser = Parser(
        prog="ottla zookeeper run",
        description="Run a ZooKeeper server for one machine in the foreground. It keeps "
        "ZooKeeper's own files: a real ZooKeeper 3.8 or 3.9 opens the folder, and the other way "
        "round; `ottla zookeeper copy FROM TO` copies one's znodes for the other.",
    )
    add = parser.add_argument
    add("--data-dir", required=True, metavar="FOLDER", help="ZooKeeper's dataDir")
    add("--client-port", type=int, default=2181, metavar="PORT", help="[2181]; 0: a free one")
    add("--host", default="127.0.0.1", help="the address to listen on [127.0.0.1]")
    add("--tick-time", type=int, default=1000, metavar="MS", help="[1000]")
    add("--min-session-timeout", type=int, metavar="MS", help="[2 ticks]")
    add("--max-session-timeout", type=int, metavar="MS", help="[20 ticks, at least 60000]")
    add(
        "--snap-count", type=int, default=SNAPSHOT_TRANSACTIONS, metavar="N",
        help=f"transactions from one snapshot to the next [{SNAPSHOT_TRANSACTIONS}]",
    )  # fmt: skip
    add(
        "--max-client-cnxns", type=int, default=Limits().connections, metavar="N",
        help=f"connections of all clients together [{Limits().connections}]",
    )  # fmt: skip
    add("--log-file", metavar="FILE", help="append the log here, not to stderr")
    add("--log-level", default="info", choices=LEVELS)
    return parser.parse_args(argv)


async def _serve(arguments: argparse.Namespace) -> OSError | None:
    """Start a server, wait for a signal, stop it; return the error that ended it, if one did."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[OSError | None] = loop.create_future()

    def end(reason: OSError | None) -> None:
        if not ended.done():
            ended.set_result(reason)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, None)
    garbage.begin()
    world = runtime.real_world(OsFiles())
    database = Database(
        world, arguments.data_dir.rstrip("/") or "/", snapshot_transactions=arguments.snap_count
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
    sys.stderr.write(f"ottla zookeeper: {text}\n")
    return EXIT_FAILED
