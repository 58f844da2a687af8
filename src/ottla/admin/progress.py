"""How many records a long command has done and how fast, on a terminal, after a second.

Invariants: written to standard error and only to a terminal; the line is gone when the command says
anything else.
"""

import sys
import time

from ottla.admin.tables import CLEAR_LINE
from ottla.model.printable import plural

FIRST_AFTER_S = 1.0
EVERY_S = 0.2


class Progress:
    """Counts records and bytes; shows them now and then where `shown` and stderr is a terminal."""

    def __init__(self, *, shown: bool = True) -> None:
        self._shown = shown and sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + FIRST_AFTER_S
        self._records = self._bytes = 0
        self._written = False

    def add(self, records: int, size: int) -> None:
        """Count; write a line if it is time."""
        self._records += records
        self._bytes += size
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + EVERY_S
            sys.stderr.write(CLEAR_LINE + self.text(now - self._began))
            sys.stderr.flush()
            self._written = True

    def text(self, seconds: float) -> str:
        """Return `1,000 records, 500/s, 0.1 MB/s`."""
        per_s, mb_s = self._records / seconds, self._bytes / 1e6 / seconds
        return f"{plural(self._records, 'record')}, {per_s:,.0f}/s, {mb_s:,.1f} MB/s"

    def clear(self) -> None:
        """Take the line away."""
        if self._written:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
            self._written = False

    @property
    def rate(self) -> str:
        """` (500/s, 0.1 MB/s)` after a second on a terminal, else nothing."""
        seconds = time.monotonic() - self._began
        if not self._shown or seconds < FIRST_AFTER_S:
            return ""
        return f" ({self.text(seconds).partition(', ')[2]})"
