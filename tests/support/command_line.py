"""Commands of ours on a cluster of a test, each in a process of its own."""

import json
import subprocess
import sys


def call(cluster, *arguments, stdin="", broker=None):
    """Run a command against a cluster, or against one broker of it; return how it ended."""
    address = cluster.bootstrap if broker is None else cluster.address(broker)
    return subprocess.run(
        [sys.executable, "-m", "ottla", *map(str, arguments), "--bootstrap-server", address],
        input=stdin, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def ok(cluster, *arguments, code=0, **more):
    """Run a command that must end with a code; return what it printed."""
    done = call(cluster, *arguments, **more)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout


def found(cluster, *arguments, **more):
    """Run a command; return its JSON."""
    return json.loads(ok(cluster, *arguments, "--output", "json", **more))
