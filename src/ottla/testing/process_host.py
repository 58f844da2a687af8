"""Process host: a cluster's brokers and its coordination service as processes of their own.

Invariants: one program for each process that owns clusters, started with the first of them, forks a
fork server for each cluster (`local.fork_server`), which forks all processes of it; each ends with
its owner, however that ends, and a fork of the owner gets a program of its own. Nothing is
signalled that is not exactly the process that was started. A broker's faults are sent through its
control socket, which also shows it that this process lives.
"""

import atexit
import os
import signal
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ottla.local import processes
from ottla.local.cluster_dir import last_line
from ottla.local.fork_process import REPLY_S, ForkServer, ask, end
from ottla.local.processes import ProcessId
from ottla.model.errors import OttlaError, StartupError
from ottla.testing.faults import Rules

END_S = 10.0
MODULE = "ottla.testing.forked"
PRELOADED = f"{MODULE},ctypes,shutil"

__tracebackhide__ = True


_programs: dict[int, ForkServer] = {}
"""By the process that owns it: a fork has what its parent had."""
_lock = threading.Lock()


def _fork_server(request: Mapping[str, object], control: socket.socket) -> ProcessId:
    """Start the fork server of one cluster, which serves the other end of `control`."""
    with _lock:
        known = _programs.get(os.getpid())
        if known is not None:
            try:
                return _identified(known.fork(request, control.fileno()))
            except StartupError:  # someone has ended it
                _close(os.getpid())
        program = _programs[os.getpid()] = ForkServer(PRELOADED)
        atexit.register(_close, os.getpid())
        return _identified(program.fork(request, control.fileno()))


def _identified(pid: int) -> ProcessId:
    """Identify a process; the caller that waits for its end notices if it is gone already."""
    return processes.identify(pid) or ProcessId(pid, "")


def _close(owner: int) -> None:
    """End the program of a process, if it is this one."""
    program = _programs.pop(owner, None) if owner == os.getpid() else None
    if program is not None:
        program.close()


class _Child:
    """A process, and our end of its control socket."""

    __slots__ = ("control", "process")

    def __init__(self, process: ProcessId, control: socket.socket) -> None:
        self.process = process
        self.control = control


class ProcessHost:
    """See the module. `log` is where the fork server itself writes, if it ever does."""

    def __init__(self, log: Path, remove: Path | None) -> None:
        """`remove`: the folder that goes when the cluster ends, whichever way."""
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        self._control.settimeout(REPLY_S)
        folder = str(remove.absolute()) if remove else ""
        request = {
            "run": "ottla.local.fork_server:serve",
            "arguments": [folder],
            "log": str(log.absolute()),
            "shown": ["fork-server", str(log)],
            "directory": str(Path.cwd()),
        }
        try:
            with theirs:
                self._server = _fork_server(request, theirs)
        except BaseException:
            self._control.close()
            raise
        self._log = log
        self._children: dict[int, _Child] = {}

    # --- start and stop ---------------------------------------------------------------------

    def start_coordination(self, port: int, log: Path) -> None:
        arguments = [str(port)]
        shown = ["zookeeper", *arguments]
        self._start(0, "coordination", arguments, log, shown)

    def start_broker(
        self, broker: int, properties: Path, log: Path, clients_port: int, rules: Rules
    ) -> None:
        arguments = ["--config", str(properties), "--log-file", str(log)]
        faulty = [str(clients_port), msgspec.json.encode(rules).decode(), *arguments]
        shown = ["broker", *arguments]
        self._start(broker, "broker", faulty, log, shown)

    def _start(
        self, number: int, function: str, arguments: list[str], log: Path, shown: list[str]
    ) -> None:
        self._forget(number)
        run = f"{MODULE}:{function}"
        request = {"run": run, "arguments": arguments, "log": str(log), "shown": shown}
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._lock:
                pid = ask(self._control, request, theirs.fileno())
            if pid is None:
                raise StartupError(f"the fork server has ended: {self._last_words()}")
        except BaseException:
            ours.close()
            raise
        process = _identified(pid)
        self._children[number] = _Child(process, ours)

    def _last_words(self) -> str:
        return last_line(self._log) or "it said nothing"

    def _forget(self, number: int) -> None:
        child = self._children.pop(number, None)
        if child is not None:
            end(child.control)

    def kill(self, broker: int, timeout_s: float) -> None:
        self._signal(broker, signal.SIGKILL)
        self.wait_ended(broker, timeout_s)

    def terminate(self, broker: int) -> None:
        self._signal(broker, signal.SIGCONT)
        self._signal(broker, signal.SIGTERM)

    def wait_ended(self, broker: int, timeout_s: float) -> None:
        if processes.wait_gone([self._children[broker].process], timeout_s):
            raise OttlaError(f"broker {broker} still runs after {timeout_s:g} s")

    def pause(self, broker: int, timeout_s: float) -> None:
        self._signal(broker, signal.SIGSTOP)
        if processes.wait_paused([self._children[broker].process], timeout_s):
            raise OttlaError(f"broker {broker} does not stop within {timeout_s:g} s")

    def resume(self, broker: int) -> None:
        self._signal(broker, signal.SIGCONT)

    def close(self) -> None:
        """End everything that still runs, by force; bounded."""
        end(self._control)
        for number in list(self._children):
            self._forget(number)
        if processes.wait_gone([self._server], END_S):
            processes.send_signal(self._server, signal.SIGKILL)
            processes.wait_gone([self._server], END_S)

    # --- what is so -------------------------------------------------------------------------

    def running(self, broker: int) -> bool:
        child = self._children.get(broker)
        return child is not None and processes.alive(child.process)

    def paused(self, broker: int) -> bool:
        child = self._children.get(broker)
        return child is not None and processes.paused(child.process)

    def pid(self, broker: int) -> int:
        return self._children[broker].process.pid

    # --- faults -----------------------------------------------------------------------------

    def apply(self, broker: int, rules: Rules, timeout_s: float) -> None:
        """Have a broker that runs behave so; OttlaError if it does not within `timeout_s`."""
        control = self._children[broker].control
        control.settimeout(timeout_s)
        try:
            control.sendall(msgspec.json.encode(rules) + b"\n")
            done = control.recv(1)
        except OSError as error:
            raise OttlaError(f"broker {broker} did not take the fault: {error}") from error
        if not done:
            raise OttlaError(f"broker {broker} has ended")

    def _signal(self, broker: int, number: int) -> None:
        processes.send_signal(self._children[broker].process, number)
