"""Thread host: a cluster's brokers and its coordination service as threads of this process.

Invariants: each has an event loop, sockets and files of its own, and shares nothing but the
interpreter with the others; a kill closes its sockets and files, and what it would have done
afterwards meets a network and files that fail; a pause stops its loop at any point. Log lines of
a broker go to its own file; those of other threads take their usual way.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.process import load_config
from ottla.broker.program import line_formatter
from ottla.model.errors import OttlaError, StartupError
from ottla.model.state_changes import LOGGER_NAME
from ottla.net.runtime import RealWorkers, loop_factory
from ottla.testing.faults import FaultLayer, Rules
from ottla.testing.forked import start_coordination

OPEN_FILES = 512
"""Of each broker: the descriptors are this process's."""
END_S = 10.0
LONGEST_PAUSE_S = 3600.0

__tracebackhide__ = True


SHELL = "/bin/sh"
SCRIPT = """trap '' HUP INT TERM; read -r _; rm -rf -- "$1" """
REMOVED_S = 10.0

_ends: set[int] = set()
"""This process's ends of the pipes."""


class FolderRemoval:
    """Removes a folder when this process ends, however that ends, or by `remove`.

    A shell waits for the end of a pipe whose other end only this process has: the kernel closes it
    after the last of its threads has ended, so nothing writes there any more. The shell has a
    session of its own, so that what a terminal or a process group is sent does not reach it; a fork
    of this process does not keep the pipe open; each wait has a limit.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._shell: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        read_end, self._end = os.pipe()
        _ends.add(self._end)
        # Where there is no shell the cluster runs all the same: its folder stays after a kill -9.
        with contextlib.suppress(OSError):
            self._shell = subprocess.Popen(  # noqa: S603 - fixed arguments
                [SHELL, "-c", SCRIPT, "ottla", str(self._folder)],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        os.close(read_end)

    def remove(self) -> None:
        """Remove the folder now; in a fork of the owner do nothing. Twice is fine."""
        if self._owner != os.getpid():
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.kill()
            shell.wait(REMOVED_S)
        if self._end in _ends:
            _ends.discard(self._end)
            os.close(self._end)


def _close_in_fork() -> None:
    """Let go of the pipes: a fork may live for longer than the owner."""
    for end in _ends:
        with contextlib.suppress(OSError):
            os.close(end)
    _ends.clear()


os.register_at_fork(after_in_child=_close_in_fork)


class _Router(logging.Handler):
    """Sends records of our threads to their files, those of others where they would go.

    While there is a cluster, it stands between our loggers and the root: no other handler gets what
    brokers log, that of a test's report neither.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, logging.Handler] = {}
        self._between = logging.Logger("ottla.testing", logging.INFO)  # noqa: LOG001
        self._between.addHandler(self)
        self._before: list[tuple[logging.Logger, logging.Logger | None, int]] = []
        self._level = logging.WARNING
        self._users = 0
        self._changing = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        file = self.files.get(record.threadName or "")
        if file is None:
            if record.levelno >= self._level:
                logging.getLogger().handle(record)
        elif record.name != LOGGER_NAME:  # brokers have a file of its own for these
            file.emit(record)

    def begin(self) -> None:
        with self._changing:
            self._users += 1
            if self._users > 1:
                return
            self._level = logging.getLogger("ottla").getEffectiveLevel()
            for name in ("ottla", LOGGER_NAME):
                logger = logging.getLogger(name)
                self._before.append((logger, logger.parent, logger.level))
                logger.parent = self._between
                logger.setLevel(logging.INFO)

    def end(self) -> None:
        with self._changing:
            self._users -= 1
            if self._users:
                return
            for logger, parent, level in self._before:
                logger.parent = parent
                logger.setLevel(level)
            self._before.clear()


_router = _Router()


class _Node:
    """A thread with a loop, in which one server runs."""

    def __init__(
        self,
        name: str,
        log: Path,
        clients_port: int,
        serve: Callable[["_Node", FaultLayer], Any],
        rules: Rules,
    ) -> None:
        """Of a server that is run by `serve`."""
        self.name = name
        self._serve = serve
        self._rules = rules
        self.failure: BaseException | None = None
        self.wake: threading.Event | None = None
        self._killed = False
        self._clients_port = clients_port
        self._loop = (loop_factory() or asyncio.new_event_loop)()
        self._layer: FaultLayer | None = None
        self._file = logging.FileHandler(log, encoding="utf-8")
        self._file.setFormatter(line_formatter())
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Run the server in the thread; what it raises is `failure`."""
        _router.files[self.name] = self._file
        self._thread.start()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._live())
        except RuntimeError as error:
            if not self._killed:
                self.failure = error
        finally:
            loop.set_exception_handler(_ignore)  # of tasks that were cut short
            loop.run_until_complete(_close_tasks())
            asyncio.set_event_loop(None)
            loop.close()
            _router.files.pop(self.name, None)
            self._file.close()

    async def _live(self) -> None:
        layer = self._layer = FaultLayer(self._clients_port, OPEN_FILES)
        layer.apply(self._rules)
        self._main = asyncio.current_task()
        try:
            await self._serve(self, layer)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - raised where the start is awaited
            self.failure = error
            logging.getLogger(__name__).error("broker ended error=%s", error)  # noqa: TRY400
        finally:
            layer.die()
            workers = layer.world.workers
            assert isinstance(workers, RealWorkers)
            workers.close()
            await asyncio.sleep(0.001)  # transports end in the loop's next iterations

    # --- for other threads ------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._killed

    @property
    def ident(self) -> int:
        return self._thread.native_id or 0

    def call(self, function: Callable[[FaultLayer], None], timeout_s: float) -> None:
        """Call a function in the loop; OttlaError if that takes longer than `timeout_s`."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def here() -> None:
            if self._layer is not None:
                function(self._layer)
            done.set_result(None)

        try:
            self._loop.call_soon_threadsafe(here)
            done.result(timeout_s)
        except (RuntimeError, TimeoutError) as error:
            raise OttlaError(f"{self.name} does not respond: {error}") from error

    def pause(self, timeout_s: float) -> None:
        """Stop the loop's thread until `resume`; OttlaError if it does not come to that."""
        wake = self.wake = threading.Event()
        stopped = threading.Event()

        def block() -> None:
            stopped.set()
            wake.wait(LONGEST_PAUSE_S)
            if self._killed:
                self._die()

        try:
            self._loop.call_soon_threadsafe(block)
        except RuntimeError as error:
            raise OttlaError(f"{self.name} has ended: {error}") from error
        if not stopped.wait(timeout_s):
            self.resume()
            raise OttlaError(f"{self.name} does not stop within {timeout_s:g} s")

    def resume(self) -> None:
        wake, self.wake = self.wake, None
        if wake is not None:
            wake.set()

    def kill(self, timeout_s: float) -> None:
        """End the thread without any of its own last steps."""
        self._killed = True
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._die)
        self.resume()
        self.join(timeout_s)

    def _die(self) -> None:
        """Fail all that it has, then stop the loop when the sockets are closed."""
        loop = self._loop
        loop.set_exception_handler(_ignore)  # of what runs for a moment yet
        if self._layer is not None:
            self._layer.die()
            workers = self._layer.world.workers
            assert isinstance(workers, RealWorkers)
            workers.close()
        loop.call_soon(loop.call_soon, loop.stop)

    def cancel(self) -> None:
        """Have the server end well."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._main and self._main.cancel())

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise OttlaError(f"{self.name} still runs after {timeout_s:g} s")


def _ignore(_loop: asyncio.AbstractEventLoop, _context: object) -> None:
    """Report nothing of a broker that was killed."""


async def _close_tasks() -> None:
    """Let go of what was cut short; its `finally` blocks meet files and sockets that fail."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        coroutine = task.get_coro()
        assert coroutine is not None
        with contextlib.suppress(BaseException):
            coroutine.close()


class ThreadHost:
    """The nodes of one cluster as threads; see the module."""

    def __init__(self, remove: Path | None) -> None:
        """`remove`: the folder that goes when the cluster ends, whichever way."""
        self._nodes: dict[int, _Node] = {}
        self._removal = FolderRemoval(remove) if remove else None
        _router.begin()

    def start_coordination(self, port: int, log: Path) -> None:
        async def serve(_: _Node, layer: FaultLayer) -> None:
            await start_coordination(layer.world, port)
            await asyncio.Event().wait()

        self._start(0, f"zookeeper-{port}", log, 0, serve, Rules())

    def start_broker(
        self, broker: int, properties: Path, log: Path, clients_port: int, rules: Rules
    ) -> None:
        async def serve(_: _Node, layer: FaultLayer) -> None:
            server = Broker(load_config(str(properties), ()), layer.world)
            await server.start()
            try:
                await server.wait_failed()
            except asyncio.CancelledError:
                await server.shutdown()

        self._start(broker, f"broker-{broker}-{clients_port}", log, clients_port, serve, rules)

    def _start(
        self,
        number: int,
        name: str,
        log: Path,
        port: int,
        serve: Callable[[_Node, FaultLayer], Any],
        rules: Rules,
    ) -> None:
        try:
            node = _Node(name, log, port, serve, rules)
        except OSError as error:
            raise StartupError(f"cannot start {name}: {error}") from error
        self._nodes[number] = node
        node.start()

    def kill(self, broker: int, timeout_s: float) -> None:
        self._nodes[broker].kill(timeout_s)

    def terminate(self, broker: int) -> None:
        self._nodes[broker].resume()
        self._nodes[broker].cancel()

    def wait_ended(self, broker: int, timeout_s: float) -> None:
        self._nodes[broker].join(timeout_s)

    def pause(self, broker: int, timeout_s: float) -> None:
        self._nodes[broker].pause(timeout_s)

    def resume(self, broker: int) -> None:
        self._nodes[broker].resume()

    def running(self, broker: int) -> bool:
        node = self._nodes.get(broker)
        return node is not None and node.alive

    def paused(self, broker: int) -> bool:
        node = self._nodes.get(broker)
        return node is not None and node.alive and node.wake is not None

    def pid(self, broker: int) -> int:
        """Return the id of the broker's thread, as the kernel numbers it."""
        return self._nodes[broker].ident

    def apply(self, broker: int, rules: Rules, timeout_s: float) -> None:
        self._nodes[broker].call(lambda layer: layer.apply(rules), timeout_s)

    def close(self) -> None:
        """End everything that still runs, by force; bounded."""
        for number in sorted(self._nodes, reverse=True):  # the coordination service last
            if self._nodes[number].alive:
                self._nodes[number].kill(END_S)
        _router.end()
        if self._removal is not None:
            self._removal.remove()
