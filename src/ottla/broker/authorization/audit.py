"""The audit log: one line for each denial, a bounded number of them in a second.

Who may call: `request_authorizer`. Time is an argument, in seconds of a clock that never goes back.
Invariants: a client that is denied again and again neither fills the log nor hides others' lines;
how many lines were left out is said. A name that a client sent cannot make a line of its own.
Kafka: the logger `kafka.authorizer.logger`, which has no bound.
"""

import logging

logger = logging.getLogger("ottla.authorizer")

MOST_OF_ONE = 10
"""lines in a second for a principal from a host"""
MOST = 100
"""lines in a second for all together"""
LONGEST_NAME = 255


def printable(name: str) -> str:
    """Return a name of a client's as it may stand in a log line."""
    short = name[:LONGEST_NAME]
    return short if short.isprintable() and " " not in short else ascii(short)


class Audit:
    """Writes what was denied, and at level DEBUG what was allowed."""

    def __init__(self) -> None:
        self.denied_total = 0
        self._second = -1
        self._lines = 0
        self._lines_of: dict[tuple[str, str], int] = {}
        self._left_out = 0

    @property
    def logs_allowed(self) -> bool:
        return logger.isEnabledFor(logging.DEBUG)

    def allowed(
        self, principal: str, operation: str, host: str, resource: str, request: str
    ) -> None:
        logger.debug(
            "allowed principal=%s operation=%s host=%s resource=%s request=%s",
            printable(principal),
            operation,
            host,
            printable(resource),
            request,
        )

    def denied(
        self, now_s: float, principal: str, operation: str, host: str, resource: str, request: str
    ) -> None:
        """Log a denial, unless there were too many in this second."""
        self.denied_total += 1
        if int(now_s) != self._second:
            self._begin(int(now_s))
        key = (principal, host)
        of_one = self._lines_of.get(key, 0)
        if of_one >= MOST_OF_ONE or self._lines >= MOST:
            self._left_out += 1
            return
        self._lines_of[key] = of_one + 1
        self._lines += 1
        logger.info(
            "denied principal=%s operation=%s host=%s resource=%s request=%s",
            printable(principal),
            operation,
            host,
            printable(resource),
            request,
        )

    def _begin(self, second: int) -> None:
        self._second = second
        self._lines = 0
        self._lines_of.clear()
        if self._left_out:
            logger.info("denials not logged count=%d", self._left_out)
            self._left_out = 0
