"""The effect that deciders of every room return: a log line as a value.

Deciders return `Log`, and the code around them, which has a logger, writes it. So a decision does
not depend on the level of a logger, and a test can compare its lines.
"""

from enum import IntEnum
from typing import NamedTuple


class LogLevel(IntEnum):
    """The numbers of the module `logging`."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class Log(NamedTuple):
    """Write this line to the log; `text` is complete, without a format to fill in."""

    level: LogLevel
    text: str


def info(text: str) -> Log:
    return Log(LogLevel.INFO, text)


def warning(text: str) -> Log:
    return Log(LogLevel.WARNING, text)
