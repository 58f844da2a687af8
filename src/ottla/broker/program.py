"""What the programs of this room share: their log, their exit codes.

Who may call: `process`, `zookeeper_process`, `argument_parser`.
"""

import logging

from ottla.broker.process_log import JsonFormatter, LineFormatter, ProcessLogHandler
from ottla.log.files import OsFiles

LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"
LEVELS = ("debug", "info", "warning", "error")
TEXT, JSON = LOG_FORMATS = ("text", "json")
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def set_up_logging(file: str | None, level: str, log_format: str = TEXT) -> None:
    """Log to a file of bounded size, or to stderr without one; OSError if it cannot be opened."""
    handler: logging.Handler
    handler = logging.StreamHandler() if file is None else ProcessLogHandler(OsFiles(), file)
    handler.setFormatter(JsonFormatter() if log_format == JSON else line_formatter())
    logging.basicConfig(handlers=[handler], level=level.upper())


def line_formatter() -> LineFormatter:
    """Return what makes the lines of a log of text."""
    return LineFormatter(LOG_FORMAT, "%Y-%m-%dT%H:%M:%S")
