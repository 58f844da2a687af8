"""Commands of ours, each in a process of its own, forked from one that has imported them.

An interpreter that starts takes 0.2 s of a core for each command, a fork a quarter of that. Who
tests the start of a process, its terminal or a signal starts one by `sys.executable`.
"""

import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

LENGTH = struct.Struct(">I")


class _Forks:
    """The process that forks, from its first command to the end of the tests' process."""

    def __init__(self):
        self.lock = threading.Lock()
        self.ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()

    def begin(self, words, stdin, out, err):
        """Fork a command; return the file that gets its process id, and then its exit code."""
        reading, writing = os.pipe()
        content = json.dumps([words, dict(os.environ), str(Path.cwd())]).encode()
        with self.lock:
            files = [stdin.fileno(), out.fileno(), err.fileno(), writing]
            socket.send_fds(self.ours, [LENGTH.pack(len(content))], files)
            self.ours.sendall(content)
        os.close(writing)
        return io.FileIO(reading)


_forks = functools.cache(_Forks)


def ottla(*words, stdin="", text=True, timeout_s=120):
    """Run a command to its end, as `subprocess.run` does with what it prints."""
    words = [str(word) for word in words]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin.encode() if isinstance(stdin, str) else stdin)
        files[0].seek(0)
        ends = stack.enter_context(_forks().begin(words, *files))
        (pid,) = struct.unpack(">i", ends.read(4))
        late = threading.Timer(timeout_s, os.kill, (pid, signal.SIGKILL))
        late.start()
        began = time.monotonic()
        (code,) = struct.unpack(">i", ends.read(4))
        late.cancel()
        for file in files[1:]:
            file.seek(0)
        out, err = (file.read() for file in files[1:])
    if text:
        out, err = out.decode(), err.decode()
    if code == -signal.SIGKILL and time.monotonic() - began >= timeout_s:
        raise subprocess.TimeoutExpired(words, timeout_s, out, err)
    return subprocess.CompletedProcess(["ottla", *words], code, out, err)


def lines(done):
    """Return what a command said, but for what it waited for on a busy machine."""
    return [line for line in done.stderr.splitlines() if not line.startswith("waiting: ")]


def call(cluster, *arguments, stdin="", broker=None):
    """Run a command against a cluster, or against one broker of it; return how it ended."""
    address = cluster.bootstrap if broker is None else cluster.address(broker)
    return ottla(*arguments, "--bootstrap-server", address, stdin=stdin)


def ok(cluster, *arguments, code=0, **more):
    """Run a command that must end with a code; return what it printed."""
    done = call(cluster, *arguments, **more)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout


def found(cluster, *arguments, **more):
    """Run a command; return its JSON."""
    return json.loads(ok(cluster, *arguments, "--output", "json", **more))


# --- the process that forks -----------------------------------------------------------------------


def _load():
    import ottla.admin
    import ottla.client

    for package in (ottla.admin, ottla.client):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(ImportError):  # an extra
                importlib.import_module(module.name)


def _serve(control):
    """Fork a process for each request, which forks the command and waits for it."""
    while True:
        length, descriptors, _, _ = socket.recv_fds(control, LENGTH.size, 4)
        if not length:
            return
        content = control.recv(LENGTH.unpack(length)[0], socket.MSG_WAITALL)
        if os.fork() == 0:
            control.close()
            _command(json.loads(content), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _command(request, stdin, out, err, ends):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.write(ends, struct.pack(">i", pid))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(ends, struct.pack(">i", code))
        os._exit(0)
    code = 1
    try:
        os.close(ends)
        for number, descriptor in enumerate((stdin, out, err)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        words, environment, folder = request
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = ["ottla", *words]
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(  # noqa: SIM115
            2, "w", encoding="utf-8", errors="backslashreplace", closefd=False
        )
        from ottla.__main__ import main

        code = main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what waits for a command is not waited for
    _load()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
