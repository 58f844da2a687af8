"""What a command waits for: printed on standard error once it has waited two seconds.

Invariants: a wait is printed once, and again when its text changes; nothing under --quiet, nothing
on standard output, nothing where no command runs (tests' clusters use the same functions). A thread
looks, because some waits block the event loop or have none.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Self

from ottla.admin import output

LONG_S = 2.0
LOOK_EVERY_S = 0.2
MOST_KEPT = 1000
MOST_LINES = 3
"""Of one look: a hundred partitions may wait for the same reason."""


Text = str | Callable[[], str]


class Wait:
    """One wait, from `with` to its end; `text` may change meanwhile, and is not printed if empty.

    A text that is a function is called in another thread, and only once the wait is long.
    """

    __slots__ = ("output", "said", "said_s", "since_s", "text")

    def __init__(self, text: Text) -> None:
        self.output = output.current()  # the thread that looks has none
        self.text: Text = text
        self.said = ""
        self.said_s = self.since_s = 0.0

    def __enter__(self) -> Self:
        self.since_s = time.monotonic()
        _watch.add(self)
        return self

    def __exit__(self, *error: object) -> None:
        _watch.remove(self)


class _Watch:
    """The waits of this process, and the thread that looks at them while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: dict[Wait, None] = {}
        self._looks = False

    def add(self, wait: Wait) -> None:
        if wait.output.waits is None or wait.output.quiet:
            return
        with self._lock:
            self._active[wait] = None
            if not self._looks:
                self._looks = True
                threading.Thread(target=self._run, name="waits", daemon=True).start()

    def remove(self, wait: Wait) -> None:
        with self._lock:
            self._active.pop(wait, None)

    def _run(self) -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            with self._lock:
                if not self._active:
                    self._looks = False
                    return
                _print(self._due(time.monotonic()))

    def _due(self, now_s: float) -> list[str]:
        lines: list[str] = []
        for wait in self._active:
            printed = wait.output.waits
            if printed is None or now_s - max(wait.since_s, wait.said_s) < LONG_S:
                continue
            text = wait.text if isinstance(wait.text, str) else wait.text()
            if not text or text == wait.said:
                continue
            if wait.said or text not in printed:  # else a request is repeated, and waits once more
                lines.append(text)
            wait.said, wait.said_s = text, now_s
            if len(printed) >= MOST_KEPT:
                printed.clear()
            printed.add(text)
        return lines


def _print(texts: list[str]) -> None:
    if not texts:
        return
    if sys.stderr.isatty():
        from ottla.admin.tables import CLEAR_LINE

        sys.stderr.write(CLEAR_LINE)  # that of `Progress`
    for text in texts[:MOST_LINES]:
        output.complain(f"waiting: {text}")
    if len(texts) > MOST_LINES:
        output.complain(f"waiting: and for {len(texts) - MOST_LINES} more of the kind")


_watch = _Watch()


def silence() -> None:
    """Print nothing more: a screen or pages say what they lack."""
    output.current().waits = None


def waiting(text: Text = "") -> Wait:
    """Return a wait, for `with`: `waiting: TEXT` is printed once it has lasted two seconds."""
    return Wait(text)
