"""The logs of a process: its own, by --log-file, and a broker's state-change.log.

In its own, a line is written at once, and a full file is set aside. Invariants: a record is one
line, whatever clients chose of it; what is kept of full files is `log.predecessors`'; a file that
cannot be renamed grows on, and lines are still written. With `--log-format json` each line is one
object, whatever a message contains.
"""

import logging
import re
import time
from typing import Any

import msgspec

from ottla.log.predecessors import Keep, Predecessors
from ottla.log.rolling_file import RollingFile
from ottla.model.ports import Files
from ottla.model.printable import printable
from ottla.model.state_changes import LOGGER_NAME, TRACE


def wall_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


FIELD = re.compile(r"(?:^|\s)([a-zA-Z_][\w.]*)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\S*)")
"""`key=value` in a line of a log; a value with spaces stands between quotation marks."""


MOST_CHARACTERS = 8192
"""of a line of text; what is cut off is counted"""


class LineFormatter(logging.Formatter):
    r"""Each record as one line of text: control characters, line ends among them, are escaped.

    Names, ids and reasons are what a client sent: without this they make lines of their own. The
    lines of a traceback follow, each behind a tab. A record that names its `event` is not cut.
    """

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", "\n\t")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        text = printable(super().formatMessage(record))
        if len(text) > MOST_CHARACTERS and not hasattr(record, "event"):
            return f"{text[:MOST_CHARACTERS]}... ({len(text)} characters)"
        return text

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """Each record as one line of JSON.

    `time` (RFC 3339, UTC), `level`, `logger`, `message`: the whole text; `event`: what stands
    before the first `key=value`; `fields`: these pairs, as text; `exception`: a traceback, if any.
    A record that names its `event` itself has no pairs: its message is a format of its own.
    """

    def format(self, record: logging.LogRecord) -> str:
        # A name of a file may hold what is no text in UTF-8.
        message = record.getMessage().encode("utf-8", "backslashreplace").decode()
        event = getattr(record, "event", None)
        first = FIELD.search(message) if event is None else None
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": message,
            "event": event or (message if first is None else message[: first.start()]).strip(),
            "fields": {
                key: value.strip("'\"")
                for key, value in (FIELD.findall(message) if first is not None else ())
            },
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class ProcessLogHandler(logging.FileHandler):
    """Appends to a file of bounded size."""

    def __init__(self, files: Files, path: str) -> None:
        super().__init__(path, encoding="utf-8")
        self._files = files
        self._path = path
        self._largest = Keep().file_bytes
        self._predecessors = Predecessors(files, path, Keep(), wall_ms)

    def keep(self, keep: Keep) -> None:
        """Take the settings, which are read after the log was opened."""
        self._largest = keep.file_bytes
        self._predecessors = Predecessors(self._files, self._path, keep, wall_ms)

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if self.stream is not None and self.stream.tell() >= self._largest:
            self._set_aside()

    def _set_aside(self) -> None:
        if self.stream is not None:
            self.stream.close()
        try:
            self._predecessors.set_aside()
        except OSError:
            self._largest *= 2  # it is tried again when the file is so large
        self.stream = self._open()
        self._predecessors.tidy()


STATE_CHANGE_LOG = "state-change.log"
NO_FILE = "none"
KEEP = Keep()


class StateChangeHandler(logging.Handler):
    """Writes state-change.log as Kafka's brokers do; takes records of one or many lines.

    Lines look like those of Kafka's log4j pattern `[%d] %p %m (%c)`. They are written in slices; a
    disk that fails ends this file and nothing else.
    """

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
