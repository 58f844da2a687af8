"""What the programs of this room share: their log, their exit codes."""

import contextlib
import logging
import os
import stat
import sys
from enum import StrEnum

from ottla.broker.process_log import JsonFormatter, LineFormatter, ProcessLogHandler
from ottla.log.files import OsFiles

LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


class Level(StrEnum):
    """From which level on a program logs."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class LogFormat(StrEnum):
    """How a program writes its log."""

    text = "text"
    json = "json"


def set_up_logging(file: str | None, level: Level, log_format: LogFormat = LogFormat.text) -> None:
    """Log to a file of bounded size, or to stderr without one; OSError if it cannot be opened."""
    handler: logging.Handler
    handler = logging.StreamHandler() if file is None else ProcessLogHandler(OsFiles(), file)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.json else line_formatter())
    logging.basicConfig(handlers=[handler], level=level.upper())


def last_words(text: str) -> None:
    """Print why a program exits; over the end of its log where the disk of the log is full.

    What is allocated can be written again when nothing more can be appended: the reason is worth
    more than the lines before it.
    """
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        with contextlib.suppress(OSError):
            _overwrite_end(f"\n{text}\n".encode())
        with contextlib.suppress(OSError):  # else the interpreter tries once more when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _overwrite_end(data: bytes) -> None:
    """Write over the last bytes of the file that standard error goes to; OSError."""
    if not stat.S_ISREG(os.fstat(2).st_mode):
        return
    end = os.fstat(2).st_size
    # The descriptor itself only appends.
    log = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(log, data, max(0, end - len(data)))
    finally:
        os.close(log)


def line_formatter() -> LineFormatter:
    """Return what makes the lines of a log of text."""
    return LineFormatter(LOG_FORMAT, "%Y-%m-%dT%H:%M:%S")
