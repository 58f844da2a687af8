"""Starting Spark's Java process: if it ends instead of starting, one line says why.

Invariants: what Java writes to stderr before it is up is held, and shown then; if it never is, its
many lines become one (all of them with `session.DEBUG`). Later lines go to our stderr as they come.
Spark: `pyspark.java_gateway`.
"""

import os
import re
import sys
import threading
from collections.abc import Mapping

from ottla.model.errors import StartupError

MOST_HELD = 1 << 20
"""Bytes."""
HARMLESS = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
_UNRESOLVED = re.compile(r"\[unresolved dependency: ([^\]]+?)(?:: not found)?\]")
_NO_ACCESS = re.compile(r"Server access error at url \S+ \((.+)\)")
_RAISED = re.compile(r'^Exception in thread "[^"]*" ([\w.$]+: .+|[\w.$]+)$', re.MULTILINE)
_ERROR = re.compile(r"^(?:Error(?: occurred during .*\n)?:? *)(.+)$", re.MULTILINE)


class _Stderr:
    """Java's stderr: held at first, then passed on."""

    def __init__(self) -> None:
        self._reads, self.writes = os.pipe()
        self._held: bytearray | None = bytearray()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="java-stderr", daemon=True)
        self._thread.start()

    def given(self) -> None:
        """Close our copy of the end that Java writes to, so that its end is seen."""
        os.close(self.writes)

    def _read(self) -> None:
        while data := os.read(self._reads, 1 << 16):
            with self._lock:
                if self._held is None:
                    _show(data)
                elif len(self._held) < MOST_HELD:
                    self._held += data
        os.close(self._reads)

    def show(self) -> None:
        """Show what was held, and what comes."""
        with self._lock:
            held, self._held = bytes(self._held or b""), None
            _show(held.replace(HARMLESS, b""))

    def reported(self) -> str:
        """Return all that was written, when Java has ended."""
        self._thread.join(5)
        with self._lock:
            return bytes(self._held or b"").decode(errors="replace")


def _show(data: bytes) -> None:
    while data:
        data = data[os.write(2, data) :]


def launch(settings: Mapping[str, str], *, show_all: bool) -> None:
    """Start Java for a session with these settings, unless it runs; StartupError if it does not."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:  # noqa: SLF001 - no public way
        return
    stderr = _Stderr()
    try:
        gateway = launch_gateway(
            SparkConf().setAll(list(settings.items())),
            # To stdout Java writes why it cannot start at all; results alone belong there.
            {"stdout": stderr.writes, "stderr": stderr.writes},
        )
    except PySparkRuntimeError:
        stderr.given()
        reported = stderr.reported()
        if show_all:
            sys.stderr.write(reported)
        raise StartupError(f"Spark's Java process ended at its start: {reason(reported)}") from None
    stderr.given()
    stderr.show()
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - as `submitted` does


def reason(reported: str) -> str:
    """Return why Java did not start, in one line, of the many that it wrote."""
    if unresolved := _UNRESOLVED.search(reported):
        why = _NO_ACCESS.search(reported)
        name = unresolved[1].replace("#", ":").replace(";", ":")
        return (
            f"{name} could not be fetched ({why[1] if why else 'no repository has it'}); check the "
            "network, or name jars that are there by --conf spark.jars=…"
        )
    for pattern in (_RAISED, _ERROR):
        if found := pattern.search(reported):
            return found[1].strip()
    lines = [line.strip() for line in reported.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
