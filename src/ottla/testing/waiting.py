"""Waiting: until a cluster is as it is wanted, for a bounded time.

Invariants: what is not so in time is an OttlaError that says what was waited for, and the last
reason.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from ottla.model.errors import OttlaError, StartupError

T = TypeVar("T")

POLL_S = 0.005

__tracebackhide__ = True


class RefusedError(OttlaError):
    """The cluster refuses what was asked for; waiting does not help."""


class NotKnownYetError(OttlaError):
    """No broker that was asked knows the partition; one may be about to."""


def until(
    condition: Callable[[], T],
    timeout_s: float,
    what: str | Callable[[], str],
    *,
    refused: bool = False,
) -> T:
    """Call `condition` until it returns something; OttlaError with its last error if never.

    `refused`: an outer wait then ends, too.
    """
    deadline = time.monotonic() + timeout_s
    wait_s = POLL_S
    while True:
        last = ""
        try:
            found = condition()
            if found:
                return found
        except (RefusedError, StartupError):
            raise
        except OttlaError as error:
            last = f": {error}"
        if time.monotonic() > deadline:
            text = what if isinstance(what, str) else what()
            kind = RefusedError if refused else OttlaError
            raise kind(f"not within {timeout_s:g} s: {text}{last}")
        time.sleep(wait_s)
        wait_s = min(0.1, wait_s * 1.2)
