"""Process host: a cluster's brokers and its coordination service as processes of their own.

Invariants: all of them are children of one fork server, which ends them when this process is gone;
nothing is signalled that is not exactly the process that was started. A broker's faults are sent
through its control socket, which also shows it that this process lives.
"""

import signal
import socket
import threading
from pathlib import Path

import msgspec

from ottla.local import processes
from ottla.local.processes import ProcessId
from ottla.model.errors import OttlaError, StartupError
from ottla.testing import preloaded
from ottla.testing.faults import Rules
from ottla.testing.fork_server import COMMAND_BYTES, Cluster, Command, Reply

REPLY_S = 30.0
END_S = 10.0

__tracebackhide__ = True


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
        wanted = Cluster(
            str(log.absolute()), str(Path.cwd()), str(remove.absolute()) if remove else ""
        )
        try:
            with theirs:
                self._server = preloaded.fork_server(wanted, theirs)
        except BaseException:
            self._control.close()
            raise
        self._log = log
        self._children: dict[int, _Child] = {}

    # --- start and stop ---------------------------------------------------------------------

    def start_coordination(self, port: int, log: Path) -> None:
        self._start(0, Command("ottla-zk", str(log), port))

    def start_broker(
        self, broker: int, properties: Path, log: Path, clients_port: int, rules: Rules
    ) -> None:
        arguments = ["--config", str(properties), "--log-file", str(log)]
        self._start(
            broker, Command(f"ottla-broker-{broker}", str(log), clients_port, arguments, rules)
        )

    def _start(self, number: int, command: Command) -> None:
        self._forget(number)
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            try:
                socket.send_fds(self._control, [msgspec.json.encode(command)], [theirs.fileno()])
                data = self._control.recv(COMMAND_BYTES)
            except OSError as error:
                ours.close()
                raise StartupError(f"the fork server does not respond: {error}") from error
        if not data:
            ours.close()
            raise StartupError(f"the fork server has ended: {self._last_words()}")
        pid = msgspec.json.decode(data, type=Reply).pid
        # It is not our child: the caller that waits for its end sees that it is gone.
        process = processes.identify(pid) or ProcessId(pid, "")
        self._children[number] = _Child(process, ours)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _forget(self, number: int) -> None:
        child = self._children.pop(number, None)
        if child is not None:
            preloaded.end(child.control)

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
        preloaded.end(self._control)
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
