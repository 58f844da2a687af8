"""How far a reassignment is, said while a command waits for it.

Invariants: written to standard error: on a terminal as a line that is written over and over,
elsewhere as a line now and then; the first and the last look are always said; --quiet silences all
of it.
"""

import time
from typing import TYPE_CHECKING

from ottla.cli import output
from ottla.cli.progress import StatusLine
from ottla.model.printable import plural

if TYPE_CHECKING:
    from typing import Self

    from ottla.placement.copy_estimate import Estimate

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
