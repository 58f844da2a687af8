"""Forks the brokers of one machine from one process that has imported them, for `ottla up`.

Who may call: `ottla.__main__`, as `ottla broker fork FD PADDING`; tests' fork server calls
`write_to`. It reads requests from the socket
FD, a JSON object and a line end each, forks a broker and answers with its process id and a line
end; it ends when the other end closes. Invariants: it has one thread and no event loop, so that a
fork is a clean process; each broker has a session, a log and arguments of its own, as if it had
been started alone. Python and the imports of a broker take a third of a second of processor time:
three brokers take it once.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ottla.broker import process
from ottla.broker.program import EXIT_OK, EXIT_USAGE

MAX_REQUEST_BYTES = 65_536


def main(argv: Sequence[str]) -> int:
    """Serve the requests of the process that started this one; in a fork, be a broker."""
    try:
        control = socket.socket(fileno=int(argv[0]))
    except (IndexError, ValueError, OSError):
        sys.stderr.write("ottla broker fork: it is for `ottla up`; see ottla broker --help\n")
        return EXIT_USAGE
    gc.freeze()  # so that forks share these pages for longer
    requests = control.makefile("rb")
    while line := requests.readline(MAX_REQUEST_BYTES):
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            requests.close()
            control.close()
            _become(request)
            return process.main(request["arguments"])
        try:
            control.sendall(b"%d\n" % pid)
        except OSError:  # whoever asked is gone, and knows nothing of this broker
            os.kill(pid, signal.SIGKILL)
            break
    os._exit(EXIT_OK)  # nothing is left to write, and brokers need the processor


def _become(request: dict[str, Any]) -> None:
    """Have what a process of its own has: session, output, arguments."""
    os.setsid()
    write_to(request["log"], 0o666)  # as `processes.spawn` has it
    sys.argv[1:] = ["broker", *request["arguments"]]
    with contextlib.suppress(OSError, ValueError, IndexError):
        _show_arguments([sys.executable, "-m", "ottla", *sys.argv[1:]])


def write_to(log: str, mode: int) -> None:
    """Append what this process prints to a file, which is created with these permissions."""
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)


def _show_arguments(arguments: list[str]) -> None:
    """Have `ps` show these, where the padding leaves room (proc(5): arg_start, arg_end)."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    shown = b"\0".join(os.fsencode(argument) for argument in arguments) + b"\0"
    if start > 0 and len(shown) <= end - start:
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(shown.ljust(end - start, b"\0"))
