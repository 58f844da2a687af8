"""A job as a process, killed at a moment that the test names."""

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress


def killed_when(command, moment, timeout_s):
    """Start a job, kill -9 its process group once `moment()` is true; return whether it still ran.

    Python workers of Spark are in a process group of their own: they live on for a while, as
    executors of a cluster would. AssertionError if the job failed by itself before, or if the
    moment did not come within `timeout_s` seconds.
    """
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
    )
    deadline = time.monotonic() + timeout_s
    try:
        while process.poll() is None:
            if moment():
                return process.poll() is None
            assert time.monotonic() < deadline, f"the moment did not come in {timeout_s} s"
            time.sleep(0.0005)
        errors.seek(0)
        assert process.returncode == 0, errors.read().decode()
        return False
    finally:
        errors.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
