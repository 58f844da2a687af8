"""Commands of ours on a cluster of a test.

Each runs in this process, as the start of an interpreter is most of what it costs; in one of its
own where another thread asks (standard streams are the process's), and what uses descriptors or
starts processes.
"""

import io
import json
import subprocess
import sys
import threading

from ottla.admin.cli import main
from ottla.explain.entries import of_other_rooms

OF_A_PROCESS = ("produce", "consume", "top", "up", "down", "broker", "demo")


def call(cluster, *arguments, stdin=""):
    """Run a command against a cluster; return how it ended."""
    return run(*arguments, "--bootstrap-server", cluster.bootstrap, stdin=stdin)


def run(*arguments, stdin=""):
    """Run a command; return how it ended."""
    words = [*map(str, arguments)]
    main_thread = threading.current_thread() is threading.main_thread()
    if main_thread and words[0] not in OF_A_PROCESS:
        return here(words, stdin)
    return subprocess.run(
        [sys.executable, "-m", "ottla", *words],
        input=stdin, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def here(words, stdin=""):
    """Run a command in this process; return how it ended."""
    streams = [io.TextIOWrapper(io.BytesIO(data)) for data in (stdin.encode(), b"", b"")]
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        code = main(words, of_other_rooms())
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode() for stream in streams[1:])
    return subprocess.CompletedProcess(words, code, out, err)


def ok(cluster, *arguments, code=0, **more):
    """Run a command that must end with a code; return what it printed."""
    done = call(cluster, *arguments, **more)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout


def found(cluster, *arguments, **more):
    """Run a command; return its JSON."""
    return json.loads(ok(cluster, *arguments, "--output", "json", **more))
