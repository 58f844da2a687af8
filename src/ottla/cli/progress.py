"""How far a long command is: one line on a terminal, which is gone when it says anything else.

Invariant: written to standard error, and only to a terminal.
"""

import sys
import time

from ottla.cli.tables import CLEAR_LINE
from ottla.model.printable import plural

FIRST_AFTER_S = 1.0
EVERY_S = 0.2


class StatusLine:
    """A line that is written over and over; `shown`: whether it is, on a terminal."""

    def __init__(self, *, shown: bool = True) -> None:
        self.shown = shown and sys.stderr.isatty()
        self._open = False

    def write(self, text: str) -> None:
        if self.shown:
            self._put(CLEAR_LINE + text)
            self._open = True

    def clear(self, *, keep: bool = False) -> None:
        """Take the line away, or end it where it is to be kept."""
        if self._open:
            self._put("\n" if keep else CLEAR_LINE)
            self._open = False

    def _put(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class Progress(StatusLine):
    """Counts records and bytes; shows them now and then, after a second."""

    def __init__(self, *, shown: bool = True) -> None:
        super().__init__(shown=shown)
        self._began = time.monotonic()
        self._next = self._began + FIRST_AFTER_S
        self._records = self._bytes = 0

    def add(self, records: int, size: int) -> None:
        """Count; write a line if it is time."""
        self._records += records
        self._bytes += size
        now = time.monotonic()
        if self.shown and now >= self._next:
            self._next = now + EVERY_S
            self.write(self.text(now - self._began))

    def text(self, seconds: float) -> str:
        """Return `1,000 records, 500/s, 0.1 MB/s`."""
        per_s, mb_s = self._records / seconds, self._bytes / 1e6 / seconds
        return f"{plural(self._records, 'record')}, {per_s:,.0f}/s, {mb_s:,.1f} MB/s"

    @property
    def rate(self) -> str:
        """` (500/s, 0.1 MB/s)` after a second on a terminal, else nothing."""
        seconds = time.monotonic() - self._began
        if not self.shown or seconds < FIRST_AFTER_S:
            return ""
        return f" ({self.text(seconds).partition(', ')[2]})"
