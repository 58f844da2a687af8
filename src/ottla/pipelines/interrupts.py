"""Whether a signal asked this job to stop, also where its KeyboardInterrupt was lost.

A handler's exception alone is not reliable: py4j reports a call that it cut short as
Py4JNetworkError, often without the cause; Python prints and drops one that is raised inside a
destructor or a callback of a weak reference. A job that tries again after "any" exception would
never stop then. So the handlers note the signal first. Invariants: a loop that may go on for long
calls `check` each time; code that tries again after any exception asks `caused` before.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_noted: list[str] = []
"""The names of the signals that came since the job began."""


def _note(number: int, _frame: FrameType | None) -> None:
    name = signal.Signals(number).name
    _noted.append(name)
    raise KeyboardInterrupt(name)


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Note signals meanwhile; none has come yet.

    In another thread than the main one nothing is noted: Python runs no handler there.
    """
    _noted.clear()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        with contextlib.suppress(ValueError):
            for number in SIGNALS:
                signal.signal(number, _note)
        yield
    finally:
        with contextlib.suppress(ValueError):
            for number, handler in before.items():
                signal.signal(number, handler)


def note_before(number: signal.Signals) -> None:
    """Note a signal before the handler that another library has set for it since."""
    then = signal.getsignal(number)
    if then is _note or not callable(then):
        return
    with contextlib.suppress(ValueError):
        signal.signal(number, _both(then))


def _both(
    then: Callable[[int, FrameType | None], object],
) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        _noted.append(signal.Signals(number).name)
        then(number, frame)

    return handle


def check() -> None:
    """Raise KeyboardInterrupt if a signal has come."""
    if _noted:
        raise KeyboardInterrupt(_noted[-1])


def caused(error: BaseException) -> bool:
    """Return whether an interrupt led to this failure: it is in the chain of causes, or noted."""
    before: BaseException | None = error
    while before is not None:
        if isinstance(before, KeyboardInterrupt):
            return True
        before = before.__cause__ or before.__context__
    return bool(_noted)
