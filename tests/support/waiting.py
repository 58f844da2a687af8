"""Waiting for something to become true, for every test with processes and every proof."""

import time
from collections.abc import Callable
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
