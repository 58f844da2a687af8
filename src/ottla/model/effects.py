"""The effect that deciders of every room return: a log line as a value.

Deciders return `LogLine`, and the code around them, which has a logger, writes it. So a decision
does not depend on the level of a logger, and a test can compare its lines.
"""

from enum import IntEnum
from typing import NamedTuple


class LogLevel(IntEnum):
    """The numbers of the module `logging`."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class LogLine(NamedTuple):
    """Write this line to the log, in the form of `logging`: `values` fill in `text`, if any."""

    level: LogLevel
    text: str
    values: tuple[object, ...] = ()


def info(text: str) -> LogLine:
    return LogLine(LogLevel.INFO, text)


def warning(text: str) -> LogLine:
    return LogLine(LogLevel.WARNING, text)
