"""Forks the servers of one machine from one process that has imported them, for `ottla up`.

It reads requests from one pipe, a JSON object and a line end each, forks a broker or a ZooKeeper
server and writes its process id and a line end to the other pipe; it ends when the first one is
closed. Invariants: it has one thread and no event loop, so that a fork is a clean process; each
server has a session, a log and arguments of its own, as if it had been started alone. Python and
the imports of a broker take a third of a second of processor time: three brokers take it once.
Brokers wait for ZooKeeper: its modules come first, and it is forked before those of a broker.
"""

import codecs
import contextlib
import gc
import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from io import FileIO

from ottla.broker import zookeeper_process
from ottla.broker.program import EXIT_OK, EXIT_USAGE
from ottla.net import runtime

MAX_REQUEST_BYTES = 65_536


def main(argv: Sequence[str]) -> int:
    """Serve the requests of the process that started this one; in a fork, be a server."""
    try:
        # Unbuffered: what `select` says of the pipe is all there is.
        requests, replies = FileIO(int(argv[0])), int(argv[1])
        os.fstat(replies)
    except (IndexError, ValueError, OSError):
        sys.stderr.write("ottla broker fork: it is for `ottla up`; see ottla broker --help\n")
        return EXIT_USAGE
    _unblock_signals()
    runtime.loop_factory()  # imports uvloop
    if select.select([requests], [], [], 0)[0] and _fork(requests, replies):
        return _serve()
    _import_broker()
    while not _fork(requests, replies):
        pass
    return _serve()


def _unblock_signals() -> None:
    """Drop what came while this process was in a terminal's foreground, and hear again."""
    for number in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        before = signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
        signal.signal(number, before)


def _import_broker() -> None:
    """Import a broker, and what each broker of `ottla up` would import once it runs."""
    import resource  # noqa: F401 - see `main` for the order

    from ottla.broker import process  # noqa: F401
    from ottla.broker.metrics import listener  # noqa: F401
    from ottla.net import fault_socket  # noqa: F401

    codecs.lookup("utf-16-be")


def _fork(requests: FileIO, replies: int) -> bool:
    """Fork what the next request asks for; True in the fork. Nothing is asked any more: end."""
    line = requests.readline(MAX_REQUEST_BYTES)
    if not line:
        os._exit(EXIT_OK)  # nothing is left to write, and brokers need the processor
    request = json.loads(line)
    gc.freeze()  # so that forks share these pages for longer
    pid = os.fork()
    if pid == 0:
        requests.close()
        os.close(replies)
        _become(request["arguments"], request["log"])
        return True
    try:
        os.write(replies, b"%d\n" % pid)
    except OSError:  # whoever asked is gone, and knows nothing of this server
        os.kill(pid, signal.SIGKILL)
        os._exit(EXIT_OK)
    return False


def _become(arguments: list[str], log: str) -> None:
    """Have what a process of its own has: session, output, arguments."""
    os.setsid()
    os.umask(0o077)  # as `processes.spawn` has it
    write_to(log, 0o600)
    sys.argv[1:] = arguments
    with contextlib.suppress(OSError, ValueError, IndexError):
        _show_arguments([sys.executable, "-P", "-m", "ottla", *arguments])


def _serve() -> int:
    """Be the server of `sys.argv`."""
    if sys.argv[1] == "zookeeper":
        return zookeeper_process.main(sys.argv[3:])
    from ottla.broker import process  # where ZooKeeper runs already, it is new

    return process.main(sys.argv[2:])


def write_to(log: str, mode: int) -> None:
    """Append what this process prints to a file, which is created with these permissions."""
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)


def _show_arguments(arguments: list[str]) -> None:
    """Have `ps` show these, where the padding leaves room (proc(5): arg_start, arg_end)."""
    with open("/proc/self/stat", encoding="utf-8") as stat:  # noqa: PTH123 - no pathlib
        fields = stat.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    shown = b"\0".join(os.fsencode(argument) for argument in arguments) + b"\0"
    if start > 0 and len(shown) <= end - start:
        with FileIO("/proc/self/mem", "r+") as memory:
            memory.seek(start)
            memory.write(shown.ljust(end - start, b"\0"))
