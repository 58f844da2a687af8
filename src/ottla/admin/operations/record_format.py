r"""Templates such as `%k\t%v\n`: how records are printed, and how input is cut into records.

Pure functions. Invariants: a template is checked before anything is read or written; bytes of keys
and values pass through as they are. The letters are those of kcat; docs/RECORDS.md lists them.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from ottla.model.ids import TopicPartition
from ottla.wire.records import NewRecord, Record

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)|(.)", re.DOTALL)
_AS_IT_IS = "surrogateescape"
SAME = {"s": "v", "S": "V"}
"""kcat's letters for the value."""

READ = "kvhpTto"
"""Fields that input may have; topic and offset are read and left aside."""


def moment(timestamp_ms: int) -> str:
    """Return milliseconds since 1970 as ISO 8601 in UTC; what is no time of a calendar as it is."""
    try:
        when = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    if timestamp_ms < 0:
        return str(timestamp_ms)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03}Z"


def _headers(record: Record, null: bytes) -> bytes:
    return b",".join(
        name.encode(errors=_AS_IT_IS) + b"=" + (null if content is None else content)
        for name, content in record.headers
    )


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


_Writer = Callable[[TopicPartition, Record, bytes], bytes]
_WRITERS: dict[str, _Writer] = {
    "k": lambda _tp, r, null: null if r.key is None else r.key,
    "v": lambda _tp, r, null: null if r.value is None else r.value,
    "h": lambda _tp, r, null: _headers(r, null),
    "t": lambda tp, _r, _null: tp.topic.encode(),
    "p": lambda tp, _r, _null: b"%d" % tp.partition,
    "o": lambda _tp, r, _null: b"%d" % r.offset,
    "T": lambda _tp, r, _null: b"%d" % r.timestamp,
    "d": lambda _tp, r, _null: moment(r.timestamp).encode(),
    "K": lambda _tp, r, _null: _length(r.key),
    "V": lambda _tp, r, _null: _length(r.value),
    "H": lambda _tp, r, _null: b"%d" % len(r.headers),
}


def parse(template: str, *, fields: str = "".join(_WRITERS)) -> list[bytes | str]:
    """Cut a template into literal bytes and letters of fields; ValueError for unknown ones."""
    parts: list[bytes | str] = []

    def literal(data: bytes) -> None:
        if parts and isinstance(parts[-1], bytes):
            parts[-1] += data
        else:
            parts.append(data)

    for letter, code, escape, text, alone in _TOKEN.findall(template):
        letter = SAME.get(letter, letter)  # noqa: PLW2901 - its other name
        if letter == "%":
            literal(b"%")
        elif letter:
            if letter not in fields:
                known = " ".join(f"%{f}" for f in fields)
                raise ValueError(f"%{letter} is not one of {known} (a percent sign is %%)")
            parts.append(letter)
        elif code:
            literal(bytes.fromhex(code))
        elif escape:
            if escape not in _ESCAPES:
                raise ValueError(rf"\{escape} is not one of \n \r \t \0 \\ \xFF")
            literal(_ESCAPES[escape])
        elif alone:
            raise ValueError(f"it ends with {alone}; write {alone * 2}")
        else:
            literal(text.encode(errors=_AS_IT_IS))
    return parts


class Template:
    """Prints records by a template; `null` stands for keys, values and headers that are null."""

    def __init__(self, template: str, null: bytes) -> None:
        self._null = null
        self._parts = [p if isinstance(p, bytes) else _WRITERS[p] for p in parse(template)]

    def text(self, tp: TopicPartition, record: Record) -> bytes:
        """Return what is printed for a record; nothing is added to the template."""
        return b"".join(
            part if isinstance(part, bytes) else part(tp, record, self._null)
            for part in self._parts
        )


class InputTemplate:
    """Reads records by a template: a field ends where the literal after it begins.

    `end` is what stands after each record: the literal that the template ends with, or a newline.
    """

    def __init__(self, template: str, null: bytes | None) -> None:
        parts = parse(template, fields=READ)
        self.end = b"\n"
        if len(parts) > 1 and isinstance(parts[-1], bytes):
            self.end = parts.pop()  # type: ignore[assignment]
        letters = [p for p in parts if isinstance(p, str)]
        if not letters:
            raise ValueError("it has no field; write for example %k=%v")
        for first, second in pairwise(parts):
            if not isinstance(first, bytes) and not isinstance(second, bytes):
                raise ValueError(f"nothing stands between %{first} and %{second}")  # noqa: TRY004
        for letter in set(letters):
            if letters.count(letter) > 1:
                raise ValueError(f"%{letter} stands twice in it")
        self._parts: Sequence[bytes | str] = parts
        self._null = null

    def record(self, text: bytes) -> NewRecord:
        """Return the record of a piece of input without its end; ValueError if it does not fit."""
        found: dict[str, bytes] = {}
        at = 0
        for i, part in enumerate(self._parts):
            if isinstance(part, bytes):
                if not text.startswith(part, at):
                    raise ValueError(f"no {_shown(part)} in it, as --format has it")
                at += len(part)
                continue
            stop = len(text)
            if i + 1 < len(self._parts):
                following = self._parts[i + 1]
                assert isinstance(following, bytes)
                stop = text.find(following, at)
                if stop < 0:
                    raise ValueError(f"no {_shown(following)} in it, as --format has it")
            found[part] = text[at:stop]
            at = stop
        if at != len(text):
            raise ValueError(f"{_shown(text[at:])} stands after what --format has")
        return NewRecord(
            key=self._bytes(found.get("k")),
            value=self._bytes(found.get("v", b"")),
            headers=self._headers(found.get("h", b"")),
            timestamp=_number(found["T"], "timestamp") if "T" in found else None,
            partition=_number(found["p"], "partition") if "p" in found else None,
        )

    def _bytes(self, data: bytes | None) -> bytes | None:
        return None if data == self._null else data

    def _headers(self, text: bytes) -> tuple[tuple[str, bytes | None], ...]:
        headers = []
        for pair in text.split(b",") if text else ():
            name, equals, content = pair.partition(b"=")
            if not equals:
                raise ValueError(f"header {_shown(pair)} has no =")
            headers.append((name.decode(errors=_AS_IT_IS), self._bytes(content)))
        return tuple(headers)


def _shown(data: bytes) -> str:
    return repr(data[:40].decode(errors="backslashreplace"))


def _number(text: bytes, what: str) -> int:
    if not re.fullmatch(rb"-1|\d{1,18}", text):
        raise ValueError(f"{what} {_shown(text)} is no number")
    return int(text)
