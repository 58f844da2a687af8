"""State-change log: state-change.log as Kafka's brokers write it, by default and beside the others.

Who may call: `process`. Invariants: lines look like those of Kafka's log4j pattern
`[%d] %p %m (%c)`; they go to their own file alone, in slices, and a full file is set aside
(`log.rolling_file`); a disk that fails ends this file and nothing else.
"""

import logging

from ottla.broker.process_log import wall_ms
from ottla.log.predecessors import Keep
from ottla.log.rolling_file import RollingFile
from ottla.model.ports import Files
from ottla.model.state_changes import LOGGER_NAME, TRACE

FILE_NAME = "state-change.log"
NO_FILE = "none"
KEEP = Keep()


class StateChangeHandler(logging.Handler):
    """Takes records of one or many lines."""

    def __init__(self, files: Files, path: str, keep: Keep) -> None:
        super().__init__()
        self._time = logging.Formatter()
        self._file = RollingFile(
            files,
            path,
            wall_ms,
            keep,
            missing=lambda n: b"(%d lines are missing: the disk was too slow)\n" % n,
        )

    def emit(self, record: logging.LogRecord) -> None:
        head = f"[{self._time.formatTime(record)}] {record.levelname} "
        tail = f" ({record.name})\n"
        try:
            for line in record.getMessage().split("\n"):
                self._file.write(f"{head}{line}{tail}".encode())
        except RuntimeError:  # no event loop any more: what is queued is written at once
            self._file.close()

    def close(self) -> None:
        self._file.close()
        super().close()


def write_state_changes(files: Files, path: str, keep: Keep = KEEP, *, trace: bool = False) -> None:
    """Send state changes to a file of their own; the path `none` sends them nowhere."""
    logging.addLevelName(TRACE, "TRACE")
    logger = logging.getLogger(LOGGER_NAME)
    logger.propagate = False
    if path == NO_FILE:
        logger.addHandler(logging.NullHandler())
        logger.setLevel(logging.CRITICAL)
        return
    logger.addHandler(StateChangeHandler(files, path, keep))
    logger.setLevel(TRACE if trace else logging.INFO)
