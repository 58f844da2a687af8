"""Waits: what this process waits for is reported once it has waited two seconds.

Invariants: a wait is reported once, and again when its text changes; nothing is reported unless a
command asks for it (`report_to`): tests' clusters use the same functions. A thread looks, because
some waits block the event loop or have none.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

LONG_S = 2.0
LOOK_EVERY_S = 0.2
MOST_KEPT = 1000

Text = str | Callable[[], str]
Report = Callable[[Sequence[str]], None]


class Wait:
    """One wait, from `with` to its end; `text` may change meanwhile, and is not reported if empty.

    A text that is a function is called in another thread, and only once the wait is long.
    """

    __slots__ = ("said", "said_s", "since_s", "text")

    def __init__(self, text: Text) -> None:
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
        self.report: Report | None = None
        self.reported: set[str] = set()

    def add(self, wait: Wait) -> None:
        if self.report is None:
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
                if self.report is not None and (due := self._due(time.monotonic())):
                    self.report(due)

    def _due(self, now_s: float) -> list[str]:
        lines: list[str] = []
        for wait in self._active:
            if now_s - max(wait.since_s, wait.said_s) < LONG_S:
                continue
            text = wait.text if isinstance(wait.text, str) else wait.text()
            if not text or text == wait.said:
                continue
            if wait.said or text not in self.reported:  # else a request is tried once more
                lines.append(text)
            wait.said, wait.said_s = text, now_s
            if len(self.reported) >= MOST_KEPT:
                self.reported.clear()
            self.reported.add(text)
        return lines


_watch = _Watch()


def report_to(report: Report) -> None:
    """Report waits from now on: `report` is called with their texts, in another thread."""
    _watch.report, _watch.reported = report, set()


def silence() -> None:
    """Report nothing more: a screen or pages say what they lack."""
    _watch.report = None


def waiting(text: Text = "") -> Wait:
    """Return a wait, for `with`: `text` is reported once it has lasted two seconds."""
    return Wait(text)
