"""Process: a broker as a program: arguments, logging, limits, signals, exit code.

Invariants: bad input and a world that is not as it should be end in one line on stderr and exit
code 1 (2 for bad usage), never in a traceback; SIGTERM and SIGINT end in a controlled shutdown and
exit code 0, SIGUSR1 logs statistics. Kafka: `kafka.Kafka` and `kafka-server-start.sh`.
"""

import asyncio
import contextlib
import faulthandler
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from ottla.broker.broker import Broker
from ottla.broker.metrics.mbeans import Metrics
from ottla.broker.process_log import STATE_CHANGE_LOG, ProcessLogHandler, write_state_changes
from ottla.broker.program import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    Level,
    LogFormat,
    last_words,
    set_up_logging,
)
from ottla.cli.declaring import Option, read_plainly
from ottla.log.checkpoints import META_PROPERTIES, CheckpointError, decode_meta_properties
from ottla.log.files import OsFiles, raise_descriptor_limit
from ottla.log.predecessors import keep_of
from ottla.model.config import PROVIDERS, BrokerConfig
from ottla.model.descriptors import split_descriptors
from ottla.model.errors import ConfigError, OttlaError, StartupError
from ottla.model.ports import World
from ottla.model.properties import load_properties, refuse_binary
from ottla.net import allocator, garbage, runtime
from ottla.net.status_socket import StatusSocket
from ottla.net.tls_world import tls_world
from ottla.zookeeper.security_settings import zookeeper_security, zookeeper_tls
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store, ensure_chroot

logger = logging.getLogger(__name__)

SWITCH_S = 0.001
"""How long the loop waits for a worker that runs Python: checking large batches is such work."""


async def find_broker_id(config: BrokerConfig, world: World) -> None:
    """Have `config` name the broker's id; OttlaError if none can be had."""
    if config.broker_id >= 0:
        return
    broker_id = _stored_id(config, world)
    if broker_id is None:
        broker_id = await _generated_id(config, world)
        logger.info("broker id generated broker=%d", broker_id)
    config.identify(broker_id)


def _stored_id(config: BrokerConfig, world: World) -> int | None:
    """Return the id that the first marked log dir has; the log manager compares the others."""
    for folder in config.log_dirs:
        path = f"{folder}/{META_PROPERTIES}"
        try:
            found = decode_meta_properties(world.files.read_bytes(path)).broker_id
        except OSError:
            continue  # a new dir; one that cannot be read is the log manager's to report
        except CheckpointError as error:
            raise StartupError(f"{path}: {error}") from error
        if found is not None:
            return found
    return None


async def _generated_id(config: BrokerConfig, world: World) -> int:
    read_bytes = world.files.read_bytes
    tls = zookeeper_tls(config, read_bytes)
    where = world if tls is None else tls_world(world, tls)
    security = zookeeper_security(config, read_bytes)
    address = config.text("zookeeper.connect")
    session_timeout_ms = config.integer("zookeeper.session.timeout.ms")
    connect_timeout_ms = config["zookeeper.connection.timeout.ms"] or session_timeout_ms
    assert isinstance(connect_timeout_ms, int)
    await ensure_chroot(where, address, session_timeout_ms, connect_timeout_ms, security)
    session = await Session.connect(
        where, address, session_timeout_ms, connect_timeout_ms, security=security
    )
    try:
        sequence = await Store(session).cluster.generate_broker_sequence_id()
    finally:
        await session.close()
    return config.integer("reserved.broker.max.id") + sequence


@dataclass(slots=True)
class Arguments:
    """What follows `ottla broker run`."""

    config: Annotated[str, Option("--config", metavar="FILE", help="server.properties")]
    override: Annotated[
        Sequence[str],
        Option(
            "--override", metavar="KEY=VALUE", help="Override a setting of the file; repeatable"
        ),
    ] = ()
    log_file: Annotated[
        str | None, Option(metavar="FILE", help="Append the log to this file, not to stderr")
    ] = None
    state_change_log: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Where state changes are logged, 'none' for nowhere [state-change.log beside "
            "--log-file, or in the first log directory]",
        ),
    ] = None
    metrics_socket: Annotated[
        str | None,
        Option(metavar="FILE", help="Serve metrics at this Unix socket: `nc -U FILE` [none]"),
    ] = None
    faults_socket: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Accept requests at this Unix socket to make connections to other brokers and "
            "ZooKeeper fail, for tests; `ottla up` has one for `ottla console` [none]",
        ),
    ] = None
    log_level: Annotated[Level, Option(help="Log from this level up")] = Level.info
    log_format: Annotated[
        LogFormat, Option(help="json: one object per line, for log collectors")
    ] = LogFormat.text


def load_config(path: str, overrides: Sequence[str]) -> BrokerConfig:
    """Read a settings file; OSError if it cannot be read, ConfigError for what it says.

    Values that `config.providers` resolves are in no message.
    """
    with open(path, "rb") as file:  # noqa: PTH123
        data = file.read()
    refuse_binary(data)
    properties = load_properties(data)
    for override in overrides:
        key, _, value = override.partition("=")
        properties[key.strip()] = value.strip()
    if PROVIDERS not in properties:
        return BrokerConfig(properties)
    from ottla.security.config_providers import resolved, without  # for few

    found, secrets = resolved(properties)
    try:
        return BrokerConfig(found)
    except ConfigError as error:
        raise ConfigError(without(secrets, str(error))) from None


def _state_change_path(arguments: Arguments, config: BrokerConfig) -> str:
    """Return the file asked for, or the one beside the others."""
    if arguments.state_change_log is not None:
        return arguments.state_change_log
    folder = config.log_dirs[0]
    if arguments.log_file is not None:
        folder = arguments.log_file.rpartition("/")[0] or "."
    return f"{folder}/{STATE_CHANGE_LOG}"


async def _serve_pages(broker: Broker, metrics: Metrics, steps: contextlib.AsyncExitStack) -> None:
    """Serve metrics over HTTP where the settings say so, until the end of `steps`.

    From before the start on: a broker that recovers its logs for long is healthy.
    """
    if not broker.config.text("ottla.metrics.listener"):
        return
    from ottla.broker.metrics.listener import open_pages  # only where it is on

    server = await open_pages(broker.config, broker.services, metrics)
    if server is not None:
        steps.callback(server.close)


async def _open_status_socket(
    metrics: Metrics, path: str, steps: contextlib.AsyncExitStack
) -> None:
    """Serve this broker's metrics on its socket until the end of `steps`."""
    page = StatusSocket(path, metrics.document)
    try:
        await page.open()
    except OSError as error:
        logger.warning("status socket not opened path=%s error=%s", path, error.strerror or error)
        return
    steps.callback(page.close)


async def _with_faults(world: World, path: str, steps: contextlib.AsyncExitStack) -> World:
    """Return a world whose connections fail as the socket is asked to, until the end of `steps`."""
    from ottla.net.fault_socket import FaultSocket  # only where it is on
    from ottla.net.faults import FaultyNetwork

    network = FaultyNetwork(world.network)
    faults = FaultSocket(path, network)
    try:
        await faults.open()
    except OSError as error:
        logger.warning("faults socket not opened path=%s error=%s", path, error.strerror or error)
        return world
    steps.callback(faults.close)
    return replace(world, network=network)


def _real_world() -> World:
    return runtime.real_world(OsFiles())


async def _done_before(stopped: asyncio.Task[bool], step: asyncio.Task[None]) -> bool:
    """Wait for a step of the start, and raise what it raises; False if a signal ended it."""
    await asyncio.wait((step, stopped), return_when=asyncio.FIRST_COMPLETED)
    if step.done():
        step.result()
        return True
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    return False


async def _serve(
    config: BrokerConfig, arguments: Arguments, sockets: int, make_world: Callable[[], World]
) -> None:
    """Start a broker, wait for a signal, shut it down."""
    metrics_socket = arguments.metrics_socket
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        logger.info("signal received signal=%s", signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    garbage.begin()
    # With a look-up come `encodings.idna` and its tables: 0.4 MB.
    unnamed = any(not endpoint.host for endpoint in config.advertised_listeners)
    host_name = socket.getfqdn() if unnamed else "localhost"
    stopped = loop.create_task(stop.wait())
    async with contextlib.AsyncExitStack() as steps:
        world = make_world()
        if arguments.faults_socket is not None:
            world = await _with_faults(world, arguments.faults_socket, steps)
        identified = loop.create_task(find_broker_id(config, world))
        if not await _done_before(stopped, identified):
            return
        broker = Broker(config, world, host_name=host_name, sockets=sockets)
        loop.add_signal_handler(
            signal.SIGUSR1, lambda: logger.info("statistics %s", broker.statistics())
        )
        metrics = None
        if metrics_socket is not None or broker.config.text("ottla.metrics.listener"):
            metrics = Metrics(broker)
            sampling = loop.create_task(metrics.run(), name="metrics")
            steps.callback(sampling.cancel)
            await _serve_pages(broker, metrics, steps)
        starting = loop.create_task(broker.start())
        if not await _done_before(stopped, starting):
            return
        steps.push_async_callback(broker.shutdown)
        garbage.settle()
        if metrics is not None and metrics_socket is not None:
            await _open_status_socket(metrics, metrics_socket, steps)
        failed = loop.create_task(broker.wait_failed())
        await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        failed.result()


def main(argv: Sequence[str], make_world: Callable[[], World] = _real_world) -> int:
    """Run a broker until a signal ends it; return the exit code (see `serve`)."""
    plain = read_plainly(Arguments, argv)
    if plain is not None:
        return serve(plain, make_world)
    from ottla.cli.grammar import run as run_command

    return run_command(["broker", "run", *argv])


def run(arguments: Arguments) -> int:
    return serve(arguments)


def serve(arguments: Arguments, make_world: Callable[[], World] = _real_world) -> int:
    """Run a broker until a signal ends it; return the exit code.

    `make_world` is called once, in the running loop: the operating system's unless faults are
    wanted in it (`ottla.testing`).
    """
    faulthandler.enable()
    for override in arguments.override:
        if "=" not in override:
            sys.stderr.write(f"ottla broker: --override {override!r} is not KEY=VALUE\n")
            return EXIT_USAGE
    try:
        set_up_logging(arguments.log_file, arguments.log_level, arguments.log_format)
        config = load_config(arguments.config, arguments.override)
    except OSError as error:
        sys.stderr.write(f"ottla broker: {error.filename}: {error.strerror}\n")
        return EXIT_FAILED
    except OttlaError as error:
        sys.stderr.write(f"ottla broker: {arguments.config}: {error}\n")
        return EXIT_FAILED
    trace = arguments.log_level == "debug"
    keep = keep_of(config)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ProcessLogHandler):
            handler.keep(keep)
    write_state_changes(OsFiles(), _state_change_path(arguments, config), keep, trace=trace)
    descriptors = raise_descriptor_limit()
    logger.info("open files limit=%d", descriptors)
    allocator.keep_freed_memory()
    sys.setswitchinterval(SWITCH_S)
    try:
        runtime.run(
            _serve,
            config,
            arguments,
            split_descriptors(descriptors).connections,
            make_world,
        )
    except OttlaError as error:
        last_words(f"ottla broker: {error}")
        return EXIT_FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        last_words(f"ottla broker: {where}{error.strerror or error}")
        return EXIT_FAILED
    except MemoryError:
        last_words("ottla broker: out of memory")
        return EXIT_FAILED
    return EXIT_OK
