"""Garbage collection: when Python looks for cycles, so that a collection is always short.

Invariants: objects that live as long as the process are not visited again; young objects are
collected in portions of a few milliseconds; in other processes (tests, the simulator, tools)
nothing is changed. A JVM broker has its collector's pause goal (-XX:MaxGCPauseMillis=20) for this.
"""

import contextlib
import gc
from collections.abc import Iterator

THRESHOLDS = (10_000, 4, 1_000)
"""Objects of the youngest generation, collections of it, and of the middle one."""

_settled = False


def begin() -> None:
    """Collect rarely from now on: call once, before a server's start.

    A full collection over a broker's long-lived objects is a pause the ZooKeeper session sees
    (fault F9), and a start makes them by the million: a producer each, in every log's snapshot.
    Nothing is collected before: modules leave a few hundred objects of garbage, and looking for
    them took a sixth of the processor time of a start.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(*THRESHOLDS)


def settle() -> None:
    """Freeze the objects that exist after the start (`gc.freeze`): call once after it."""
    global _settled  # noqa: PLW0603 - the collector is one per process, too
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    _settled = True


@contextlib.contextmanager
def growing() -> Iterator[None]:
    """Collect nothing while a million lasting objects are created, and freeze them then.

    What becomes garbage meanwhile in cycles is lost: a few seconds' worth, once a controller term.
    """
    if not _settled or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
