"""Starts and stops a ZooKeeper server, a real one or ours.

Invariants: it listens on 127.0.0.1 alone, has a bounded heap and no admin server, and
`start_zookeeper` returns when a session connects; what is missing becomes one StartupError line
with the remedy. Imports nothing heavy and no asyncio: the CLI calls it plainly. Java and the jars
of a real one: `jars`. ZooKeeper: `ZooKeeperServerMain` and bin/zookeeper-server-start.sh.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ottla.model.errors import StartupError, WireError
from ottla.model.properties import as_properties
from ottla.zookeeper import jute
from ottla.zookeeper.jars import find_jars, find_java

MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
START_TIMEOUT_S = 30.0
POLL_S = 0.01
TICK_MS = 1000
PRINTED = "zookeeper.out"

_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class Running(Protocol):
    """A process that was started: a `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None:
        """Return None while it runs."""


@dataclass
class StartedZooKeeper:
    """A server that was started; `wait_ready` waits for it."""

    pid: int
    port: int
    folder: Path
    process: Running
    port_held: socket.socket
    """No other process is given the port until the server listens."""


@dataclass
class ZooKeeperProcess(StartedZooKeeper):
    """A running server. `stop` ends it in order, `kill` does not (fault tests)."""

    process: "subprocess.Popen[bytes]"

    @property
    def connect_string(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self, timeout_s: float = 10.0) -> None:
        self.port_held.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        self.port_held.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def pause(self) -> None:
        """Stop its clock (SIGSTOP) until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def start_zookeeper(
    folder: Path | str,
    port: int = 0,
    heap_mb: int = 128,
    *,
    tick_ms: int = TICK_MS,
    min_session_timeout_ms: int | None = None,
    max_session_timeout_ms: int | None = None,
    fsync: bool = True,
    jaas_file: Path | None = None,
    wait: bool = True,
) -> ZooKeeperProcess:
    """Start a server on 127.0.0.1 with its data in `folder`; return once a session connects.

    `jaas_file`: only clients that authenticate by SASL as one of its users are served.

    `port` 0 picks a free one. Sessions may ask for 2 to 20 ticks unless set otherwise. Without
    `fsync` a power loss may lose what was acknowledged: for tests and demonstrations. Without
    `wait` return at once; `wait_ready` waits.
    """
    java = find_java()
    jars = find_jars(sasl=jaas_file is not None)
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    held = _held_port(port)
    port = held.getsockname()[1]
    settings = {
        "dataDir": folder / "data",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "tickTime": tick_ms,
        "minSessionTimeout": min_session_timeout_ms or 2 * tick_ms,
        "maxSessionTimeout": max_session_timeout_ms or max(20 * tick_ms, 60_000),
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 24,
    }
    config = folder / "zoo.cfg"
    config.unlink(missing_ok=True)  # it may be a link
    config.write_text(as_properties({key: str(value) for key, value in settings.items()}), "ascii")
    command = [
        str(java),
        f"-Xmx{heap_mb}m",
        *_QUICK_START,
        "-Dzookeeper.jmx.log4j.disable=true",
        "-Dzookeeper.preAllocSize=4096",
        f"-Dzookeeper.forceSync={'yes' if fsync else 'no'}",
        *(() if jaas_file is None else _sasl_options(jaas_file)),
        "-cp",
        os.pathsep.join(map(str, jars)),
        MAIN_CLASS,
        str(config),
    ]
    return _started(command, folder, held, wait=wait)


def _sasl_options(jaas_file: Path) -> tuple[str, ...]:
    return (
        f"-Djava.security.auth.login.config={jaas_file}",
        "-Dzookeeper.authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "-Dzookeeper.sessionRequireClientSASLAuth=true",
    )


def start_own_zookeeper(
    folder: Path | str,
    port: int = 0,
    *,
    tick_ms: int = TICK_MS,
    jaas_file: Path | None = None,
    wait: bool = True,
) -> ZooKeeperProcess:
    """Start our own server (`ottla zookeeper run`) on the data of `start_zookeeper`, as it does.

    Either of the two goes on with what the other one left.
    """
    folder = Path(folder).absolute()
    held = _held_port(port)
    arguments = _own_arguments(folder, held.getsockname()[1], tick_ms, jaas_file)
    return _started([sys.executable, "-P", "-m", "ottla", *arguments], folder, held, wait=wait)


def begin_own_zookeeper(
    folder: Path,
    port: int,
    start: Callable[[list[str], Path], Running],
    *,
    jaas_file: Path | None = None,
) -> StartedZooKeeper:
    """Have `start` start our own server: what follows `ottla`, and where its output goes."""
    held = _held_port(port)
    try:
        process = start(_own_arguments(folder, port, TICK_MS, jaas_file), folder / PRINTED)
    except BaseException:
        held.close()
        raise
    return StartedZooKeeper(process.pid, port, folder, process, held)


def _own_arguments(folder: Path, port: int, tick_ms: int, jaas_file: Path | None) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    return [
        "zookeeper", "run", "--data-dir", str(folder / "data"),
        "--client-port", str(port), "--tick-time", str(tick_ms),
        "--log-file", str(folder / "server.log"),
        *(() if jaas_file is None else ("--require-sasl", "--jaas-config", str(jaas_file))),
    ]  # fmt: skip


def _started(
    command: list[str], folder: Path, held: socket.socket, *, wait: bool
) -> ZooKeeperProcess:
    """Start a server and return once a session connects; what it prints goes to zookeeper.out."""
    log = folder / PRINTED
    port = held.getsockname()[1]
    if sys.platform != "linux":
        held.close()
    handle: ZooKeeperProcess | None = None
    try:
        with interrupts_deferred(), log.open("ab") as out:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                umask=0o077,
            )  # fmt: skip
            handle = ZooKeeperProcess(process.pid, port, folder, process, held)
        if wait:
            wait_ready(handle)
    except BaseException:
        held.close()
        if handle is not None:
            handle.kill()
        raise
    return handle


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let Ctrl-C and its like wait for the end of the block.

    An interrupt within subprocess.Popen would leave an unknown process. The signals are
    not blocked, because the new process would inherit that. Only the main thread hears signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    came: list[int] = []
    before = {n: signal.signal(n, lambda number, _frame: came.append(number)) for n in numbers}
    try:
        yield
    finally:
        for heard, handler in before.items():
            signal.signal(heard, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


def responds(port: int, timeout_s: float = 1.0) -> bool:
    """Return whether a ZooKeeper on this port opens a session (and close it again)."""
    hello = jute.ConnectRequest(0, 10_000, 0, bytes(16)).encode()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
            connection.sendall(hello)
            connection.settimeout(timeout_s)
            frame = connection.recv(256)
            if len(frame) < 4 or jute.ConnectResponse.decode(frame[4:]).timeout_ms <= 0:
                return False
            connection.sendall(jute.request(1, jute.CLOSE, b""))
            connection.recv(256)
            return True
    except (OSError, WireError):
        return False


def stop_pid(pid: int, timeout_s: float = 10.0) -> None:
    """End a server started by another process of ours, by its id."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        give_up_s = time.monotonic() + timeout_s
        while time.monotonic() < give_up_s:
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)


def wait_ready(handle: StartedZooKeeper) -> None:
    """Return once a session connects; StartupError, with what it printed, if none does."""
    log = handle.folder / PRINTED
    give_up_s = time.monotonic() + START_TIMEOUT_S
    while not responds(handle.port, 0.25):
        code = handle.process.poll()
        if code is not None:
            lines = log.read_text(errors="replace").strip().splitlines()[-3:]
            raise StartupError(
                f"ZooKeeper ended at once with code {code}; see {log}: {' | '.join(lines)}"
            )
        if time.monotonic() > give_up_s:
            raise StartupError(f"ZooKeeper did not start within {START_TIMEOUT_S:.0f} s; see {log}")
        time.sleep(POLL_S)
    handle.port_held.close()


def _held_port(port: int) -> socket.socket:
    """Return a socket that is bound to a port, or to a free one (0), and does not listen.

    Linux lets a server listen beside it, which sets SO_REUSEADDR as Java and asyncio do, and gives
    the port to no outgoing connection meanwhile: one that asks whether the server is there could
    otherwise connect to itself. Other systems let no server listen beside it: there it is closed.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("127.0.0.1", port))
    except OSError as error:
        held.close()
        raise StartupError(
            f"ZooKeeper cannot use port {port}: {error.strerror}; choose another one"
        ) from None
    return held
