"""Worker processes: each runs the jobs of one scenario, one after the other.

`python -m ottla.sim.scenarios.worker` reads the scenario as a line of JSON, then a job a line; it
writes a run a line. Invariants: a worker has a bound of memory; a run has one of CPU time, and the
worker that reaches it is replaced: then the run is one without an end.
"""

import contextlib
import logging
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from typing import IO, Self

import msgspec

from ottla.model.errors import OttlaError
from ottla.sim.scenarios.scenario import Scenario
from ottla.sim.scenarios.scenario_run import Job, Run, run

MEMORY_BYTES = 2 * 1024**3
LONGEST_RUN_S = 120.0
"""Of wall time; a run of 600 simulated seconds takes about two."""
MAX_LINE_BYTES = 64 * 1024 * 1024
READ_BYTES = 1 << 16


class Worker:
    """One process that runs jobs. Not for several threads at once."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def run(self, job: Job) -> Run:
        """Return what came of a job; a run that takes too long is `unhealed`."""
        if self._killed:
            return Run(job.seed, unhealed="the run was interrupted")
        process = self._process or self._start()
        if self._killed:  # meanwhile
            process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
            line = _read_line(process.stdout, LONGEST_RUN_S)
        except (OSError, TimeoutError):
            line = b""
        if line:
            return msgspec.json.decode(line, type=Run)
        self.close()
        ended = process.returncode
        why = "took too long" if ended == -9 else f"ended its process ({ended})"
        return Run(job.seed, unhealed=f"the run {why}", defects=[f"seed {job.seed}: {why}"])

    def _start(self) -> "subprocess.Popen[bytes]":
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", "ottla.sim.scenarios.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(self._scenario) + b"\n")
        return self._process

    def kill(self) -> None:
        """End the process, from another thread than that which runs jobs; no other is started."""
        self._killed = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process at once."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        process.kill()
        process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _read_line(pipe: IO[bytes], timeout_s: float) -> bytes:
    """Return a line, empty at the end; TimeoutError if it takes longer."""
    until_s, parts, size = time.monotonic() + timeout_s, [], 0
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while size <= MAX_LINE_BYTES:
            if not selector.select(until_s - time.monotonic()):
                break
            data = os.read(pipe.fileno(), READ_BYTES)
            parts.append(data)
            size += len(data)
            if not data or data.endswith(b"\n"):
                return b"".join(parts)
    raise TimeoutError


def main() -> int:
    """Run the jobs of standard input; those without broken promises are returned in short."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it decides
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    logging.basicConfig(level=logging.CRITICAL)
    scenario = msgspec.json.decode(sys.stdin.buffer.readline(), type=Scenario)
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=Job)
        began_s = time.process_time()
        try:
            found = run(scenario, job)
        except (OttlaError, MemoryError) as error:
            found = Run(job.seed, defects=[f"{type(error).__name__}: {error}"])
        found.cpu_s = time.process_time() - began_s
        if not found.broken and not found.unhealed:
            found.states, found.registrations = [], []
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
