"""What the programs of this room share: their arguments, their log, their exit codes.

Who may call: `process`, `zookeeper_process`. Invariants: a mistake in the arguments is one line on
stderr and exit code 2.
"""

import argparse
import logging
import sys
from typing import NoReturn

from ottla.broker.process_log import ProcessLogHandler
from ottla.log.files import OsFiles

LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"
LEVELS = ("debug", "info", "warning", "error")
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one line."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message} (see {self.prog} --help)\n")
        sys.exit(EXIT_USAGE)


def set_up_logging(file: str | None, level: str) -> None:
    """Log to a file of bounded size, or to stderr without one; OSError if it cannot be opened."""
    logging.basicConfig(
        handlers=[logging.StreamHandler() if file is None else ProcessLogHandler(OsFiles(), file)],
        level=level.upper(),
        format=LOG_FORMAT,
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
