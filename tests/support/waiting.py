"""Waiting for something to become true, for every test with processes and every proof."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def until(
    condition: Callable[[], Any],
    timeout_s: float,
    what: str | Callable[[], str],
    *,
    despite: tuple[type[Exception], ...] = (),
) -> Any:
    """Wait for something to become true; return it. Errors of the kinds in `despite` mean no."""
    deadline = time.monotonic() + timeout_s
    while True:
        error: Exception | None = None
        try:
            if found := condition():
                return found
        except despite as caught:
            error = caught
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {timeout_s} s: {said}") from error
        time.sleep(0.05)


def waited_s(*pids: int) -> float:
    """Return how long threads of these processes were ready to run, and waited for a processor.

    A time that is measured on a busy machine has that in it. 0 where the system does not tell.
    """
    found = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):  # the thread has ended
                found += int(task.read_text().split()[1])
    return found / 1e9
