"""How far a long command is: one line on a terminal, which is gone when it says anything else.

Invariant: written to standard error; what is written over and over, only to a terminal.
"""

import sys
import time
from typing import TYPE_CHECKING

from ottla.cli import output
from ottla.cli.tables import CLEAR_LINE
from ottla.model.printable import plural

if TYPE_CHECKING:
    from typing import Self

    from ottla.placement.copy_estimate import Estimate

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


LINE_EVERY_S = 10.0


class MoveProgress:
    """One wait."""

    def __init__(self) -> None:
        self._line = StatusLine(shown=not output.current().quiet)
        self._said = ""
        self._next_s = 0.0

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *error: object) -> None:
        """End the line, for what is said next."""
        self._line.clear(keep=True)

    def tell(self, left: int, of: int, estimate: "Estimate | None") -> None:
        """Hear of one look."""
        done = f"{of - left} of {plural(of, 'partition')} done"
        text = done if left == 0 or estimate is None else f"{done}, {described(estimate)}"
        now_s = time.monotonic()
        last = left == 0
        if self._line.shown:
            self._line.write(text)
        elif text != self._said and (last or now_s >= self._next_s):
            output.say(text)
            self._said = text
            self._next_s = now_s + LINE_EVERY_S


def described(estimate: "Estimate") -> str:
    """Return `1.2 of 5.0 GB, 40.1 MB/s, 1:35 left`."""
    unit, name = (1e9, "GB") if estimate.of >= 1e9 else (1e6, "MB")
    text = f"{estimate.copied / unit:,.1f} of {estimate.of / unit:,.1f} {name}"
    if estimate.rate is not None:
        text += f", {estimate.rate / 1e6:,.1f} MB/s"
    if estimate.left_s is not None:
        minutes, seconds = divmod(round(estimate.left_s), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        text += f", {clock} left"
    return text
