"""Templates: many lines of state-change.log as rows, by what lines like them have said.

Invariants: what comes out is what `lines.parse` gives, line by line. Lines that differ in nothing
but digits have one shape: each digit is a `0` in it. So what a line says is at the same places in
all lines of a shape, and is taken from all of them at once. Shapes that differ in nothing but the
lengths of numbers behind the time have one template; only its first line is matched against
`forms`, which says which runs of digits, and which text between them, are the columns of all. That
holds because no form tells one digit from another, or a short number from a long one behind the
time, and because a form's number never ends inside a run. A line with bytes beyond ASCII, a column
that ends inside a run, and a number of more than 18 digits are left to `lines.parse`.
"""

import re
from collections.abc import Sequence
from datetime import tzinfo
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline import lines
from ottla.pipelines.timeline.rows import (
    KIND,
    LONG_NUMBERS,
    NO_TEXT,
    NONE,
    NUMBERS,
    ROW,
    SIDE,
    TEXTS,
    Numbers,
    Rows,
    Texts,
    empty,
    put,
)

Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]

PADDING = 32
"""Bytes that must follow the last line, so that a time may be looked for in any line."""
MOST_SHAPES = 50_000
"""Then they are forgotten, and learned again: 30 MB at 300 bytes a line."""
_ALL_NUMBERS = (*NUMBERS, *LONG_NUMBERS)
_WORD = 8
_LONGEST_NUMBER = 18
_ZERO, _NEWLINE, _RETURN = b"0\n\r"
_BRACKET = b"["
_TIME = 19
"""Length of `2026-11-22 16:00:00`; a comma and three digits follow."""
_HEAD = 24
"""Length of `[2026-11-22 16:00:00,000`, where the lengths of numbers count."""
_DIGIT, _RUN = re.compile(rb"[0-9]"), re.compile(rb"[0-9]+")
_TEN, _HUNDRED, _MYRIAD = np.uint64(10), np.uint64(100), np.uint64(10_000)
_PAIRS, _FOURS, _EIGHTS = (
    np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF), np.uint64(0xFFFFFFFF),
)  # fmt: skip
_DIGITS = np.uint64(0x0F0F0F0F0F0F0F0F)


class Lines(NamedTuple):
    """Whole lines in one buffer that begins with a newline; line i is data[starts[i]:ends[i]]."""

    data: Bytes
    stop: int
    """What is behind is padding."""
    starts: Numbers
    ends: Numbers


def split(data: Bytes, stop: int) -> Lines:
    r"""Split what is behind the first byte and before `stop` at \n, \r\n and \r, as Spark does."""
    body = data[:stop]
    breaks = np.flatnonzero(body == _NEWLINE)
    if (body == _RETURN).any():
        alone = np.flatnonzero((body == _RETURN) & (data[1 : stop + 1] != _NEWLINE))
        breaks = np.union1d(breaks, alone)
    starts, ends = breaks[:-1] + 1, breaks[1:]
    ended = (data[ends - 1] == _RETURN) & (data[ends] == _NEWLINE) & (ends > starts)
    return Lines(data, stop, starts, ends - ended)


class _Template(NamedTuple):
    """What lines say that differ in the digits and lengths of their numbers."""

    kind: int
    side: int
    run: list[int]
    """Of each number, which run of digits it is; -1 for none."""
    sign: list[int]
    text: list[int]
    """Of each text that is always the same, its number."""
    cut: list[tuple["_Anchor", "_Anchor"] | None]
    """Of each other text, from where to where it is."""


_Anchor = tuple[int, int]
"""How many runs of digits end before a place, and how far behind the last of them it is."""


class _Shapes:
    """What is known of each shape; number 0 is of lines that say nothing."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.slow: set[int] = set()
        """Shapes that are left to `lines.parse`."""
        self.wide: set[int] = set()
        """Shapes with a number of more digits than a word holds."""
        self.cut: set[int] = set()
        """Shapes with a text that differs from line to line."""
        self._room = 0
        self.count = 0
        self.rows = np.empty(0, ROW)
        """What all lines of a shape say alike."""
        self.bracket = np.empty(0, np.int64)
        """Where the time begins."""
        self.last = np.empty((0, len(_ALL_NUMBERS)), np.int64)
        """Where a number's word begins: at its last digit less seven bytes."""
        self.over = np.empty((0, len(_ALL_NUMBERS)), np.uint64)
        """How many bits of that word are before the number."""
        self.sign = np.empty((0, len(_ALL_NUMBERS)), np.int64)
        self.base = np.empty((0, len(_ALL_NUMBERS)), np.int64)
        """NONE for numbers that are not said, whose sign is 0."""
        self.lengths = np.empty((0, len(_ALL_NUMBERS)), np.int64)
        self.begins = np.empty((0, len(TEXTS)), np.int64)
        self.sizes = np.empty((0, len(TEXTS)), np.int64)
        """Where texts are that differ from line to line, and how long; 0 for others."""
        self.add()

    def add(self) -> int:
        """Make room for one more, which says nothing yet; return its number."""
        if self.count == self._room:
            self._room = max(2 * self._room, 64)
            for name, old in list(vars(self).items()):
                if isinstance(old, np.ndarray):
                    wider = np.zeros((self._room, *old.shape[1:]), old.dtype)
                    wider[: self.count] = old[: self.count]
                    setattr(self, name, wider)
        at = self.count
        self.rows[at] = empty(1)[0]
        self.base[at] = NONE
        self.count += 1
        return at


class Parser:
    """Lines to rows; keeps what it has learned of shapes, templates, seconds and ISRs."""

    def __init__(self, zone: tzinfo, texts: Texts) -> None:
        self._zone = zone
        self._texts = texts
        self._known = _Shapes()
        self._templates: dict[bytes, _Template | None] = {}
        self._seconds: dict[bytes, int] = {}
        self._isrs: dict[bytes, int] = {}

    def parse(self, block: Lines) -> Rows:
        """Return a row for each line, of kind UNREAD where it is none of a state-change log."""
        if not len(block.starts):
            return empty(0)
        shapes, used = self._shapes(block)
        known = self._known
        rows = known.rows.take(shapes)
        self._put_times(rows, block, shapes)
        self._put_numbers(rows, block, shapes)
        if not known.wide.isdisjoint(used):
            self._put_wide_numbers(rows, block, shapes)
        if not known.cut.isdisjoint(used):
            for column, name in enumerate(TEXTS):
                self._put_texts(rows, name, column, block, shapes, used)
        unread = (rows["broker"] == NONE) | (rows["time_ms"] == NONE)
        rows["kind"][unread] = KIND[e.UNREAD]
        slow = np.isin(shapes, list(known.slow)) if known.slow else np.zeros(len(rows), np.bool_)
        if int(block.data.max()) >= 128:
            odd = np.flatnonzero(block.data >= 128)
            slow[np.searchsorted(block.starts, odd, "right") - 1] = True
        for at in np.flatnonzero(slow).tolist():
            self._put_slowly(rows, at, block)
        return rows

    def _shapes(self, block: Lines) -> tuple[Numbers, list[int]]:
        """Return the shape of each line, as `_Shapes` numbers them, and those that there are."""
        data = block.data
        digits = data - np.uint8(_ZERO)
        masked = data - digits * (digits <= 9).view(np.uint8)
        offsets = np.append(block.starts, block.stop).astype(np.int32)
        array = pa.BinaryArray.from_buffers(
            pa.binary(), len(block.starts), [None, pa.py_buffer(offsets), pa.py_buffer(masked)]
        )
        encoded = array.dictionary_encode()
        places = encoded.indices.to_numpy()
        if self._known.count >= MOST_SHAPES:
            self._known = _Shapes()
            self._templates = {}
        known = self._known.numbers
        names = encoded.dictionary.to_pylist()
        numbers = [known.get(name) for name in names]
        if None in numbers:
            highest = np.maximum.accumulate(places)
            first = np.flatnonzero(np.diff(highest, prepend=-1))  # numbered as they appear
            for place, name in enumerate(names):
                if numbers[place] is None:
                    at = first[place]
                    line = data[block.starts[at] : block.ends[at]].tobytes()
                    numbers[place] = known[name] = self._learn(line)
        found = np.array(numbers, np.int64)
        return found[places], found.tolist()

    def _learn(self, line: bytes) -> int:
        """Return the number of a new shape, by its first line; 0 if it says nothing."""
        if not line.isascii():
            return 0
        key = _DIGIT.sub(b"0", line[:_HEAD]) + _RUN.sub(b"0", line[_HEAD:])
        if key not in self._templates:
            self._templates[key] = self._match(line)
        template = self._templates[key]
        if template is None:
            return 0
        known = self._known
        at = known.add()
        runs = [run.span() for run in _RUN.finditer(line)]
        # A number that is too long, or that a text's end cuts in two.
        if template is _SLOW or any(
            runs[run][1] - runs[run][0] > _LONGEST_NUMBER for run in template.run if run >= 0
        ):
            known.slow.add(at)
            return at
        row = known.rows[at]
        row["kind"], row["side"] = template.kind, template.side
        known.bracket[at] = line.startswith(_BRACKET)
        for column, (run, sign) in enumerate(zip(template.run, template.sign, strict=True)):
            if run < 0:
                continue
            begin, end = runs[run]
            known.last[at, column] = end - _WORD
            known.lengths[at, column] = end - begin
            known.over[at, column] = _WORD * max(_WORD - (end - begin), 0)
            known.sign[at, column], known.base[at, column] = sign, 0
            if end - begin > _WORD:
                known.wide.add(at)
        for column, (name, cut) in enumerate(zip(TEXTS, template.cut, strict=True)):
            row[name] = template.text[column]
            if cut is not None:
                begin, end = (runs[n - 1][1] + more if n else more for n, more in cut)
                known.begins[at, column], known.sizes[at, column] = begin, end - begin
                known.cut.add(at)
        return at

    def _match(self, line: bytes) -> _Template | None:
        """Match a line; return what all like it say, None for nothing."""
        text = line.decode("ascii")
        match = lines.match(text.rstrip("\r\n"))
        if match is None:
            return None
        kind, found = match
        runs = [run.span() for run in _RUN.finditer(line)]
        spans = lines.spans(found)
        run, sign = [-1] * len(_ALL_NUMBERS), [1] * len(_ALL_NUMBERS)
        for column, name in enumerate(_ALL_NUMBERS):
            if name in spans:
                begin, end = spans[name]
                if line[begin : begin + 1] == b"-":
                    begin, sign[column] = begin + 1, -1
                if (begin, end) not in runs:
                    return _SLOW
                run[column] = runs.index((begin, end))
        fixed = [NO_TEXT] * len(TEXTS)
        cuts: list[tuple[_Anchor, _Anchor] | None] = [None] * len(TEXTS)
        for column, name in enumerate(TEXTS):
            if name in spans:
                begin, end = spans[name]
                first, last = _anchor(runs, begin), _anchor(runs, end)
                if first is None or last is None:
                    return _SLOW
                if first[0] == last[0]:
                    said: str | None = text[begin:end]
                    fixed[column] = self._texts.number(
                        lines.isr_text(text[begin:end]) if name == "isr" else said
                    )
                else:
                    cuts[column] = first, last
        role = text[slice(*spans["role"])]
        side = SIDE[e.CONTROLLER if role == "Controller" else e.BROKER]
        return _Template(KIND[kind], side, run, sign, fixed, cuts)

    def _put_times(self, rows: Rows, block: Lines, shapes: Numbers) -> None:
        """Write when each line was written; NONE where that is no time."""
        begins = block.starts + self._known.bracket[shapes]
        words = _words(block.data)
        # `2026-11-`, `22 16:00`, and `0:00,000`, of which the latter half are milliseconds.
        first, second, third = (_taken(words, begins + at) for at in (0, 8, 15))
        ms = third >> np.uint64(40)
        ms = (
            (ms & np.uint64(15)) * _HUNDRED
            + (ms >> np.uint64(8) & np.uint64(15)) * _TEN
            + (ms >> np.uint64(16) & np.uint64(15))
        )
        third &= _EIGHTS
        changed = np.empty(len(rows), np.bool_)
        changed[0] = True
        changed[1:] = first[1:] != first[:-1]
        changed[1:] |= second[1:] != second[:-1]
        changed[1:] |= third[1:] != third[:-1]
        at = np.flatnonzero(changed)
        data = block.data
        seconds = [self._second(data[b : b + _TIME].tobytes()) for b in begins[at].tolist()]
        times = np.repeat(np.array(seconds, np.int64), np.diff(at, append=len(rows)))
        rows["time_ms"] = np.where(times == NONE, NONE, times + ms.astype(np.int64))

    def _second(self, written: bytes) -> int:
        """Return milliseconds since 1970 of `2026-11-22 16:00:00`; NONE for no time."""
        found = self._seconds.get(written)
        if found is None:
            ms = lines.second_ms(written.decode("latin-1"), self._zone)
            if len(self._seconds) >= MOST_SHAPES:
                self._seconds.clear()
            found = self._seconds[written] = NONE if ms is None else ms
        return found

    def _put_numbers(self, rows: Rows, block: Lines, shapes: Numbers) -> None:
        """Write all numbers, the last eight digits of longer ones: eight digits are a word."""
        known = self._known
        places = known.last.take(shapes, axis=0)
        places += block.starts[:, None]
        word = _taken(_words(block.data), places)
        over = known.over.take(shapes, axis=0)
        word >>= over
        word <<= over
        word &= _DIGITS
        word = word * _TEN + (word >> np.uint64(8)) & _PAIRS
        word = word * _HUNDRED + (word >> np.uint64(16)) & _FOURS
        word = word * _MYRIAD + (word >> np.uint64(32)) & _EIGHTS
        value = word.view(np.int64) * known.sign.take(shapes, axis=0)
        value += known.base.take(shapes, axis=0)
        for column, name in enumerate(_ALL_NUMBERS):
            rows[name] = value[:, column]

    def _put_wide_numbers(self, rows: Rows, block: Lines, shapes: Numbers) -> None:
        """Write the numbers that a word does not hold."""
        known = self._known
        for column, name in enumerate(_ALL_NUMBERS):
            length = known.lengths[shapes, column]
            said = np.flatnonzero(length > _WORD)
            if not len(said):
                continue
            length = length[said]
            last = block.starts[said] + known.last[shapes[said], column] + _WORD - 1
            value = np.zeros(len(said), np.int64)
            for back in range(int(length.max())):
                more = np.flatnonzero(length > back)
                digit = block.data[last[more] - back] - np.uint8(_ZERO)
                value[more] += digit.astype(np.int64) * 10**back
            value *= known.sign[shapes[said], column]
            if name not in LONG_NUMBERS:
                value[(value <= NONE) | (value >= 1 << 31)] = NONE
            rows[name][said] = value

    def _put_texts(
        self, rows: Rows, name: str, column: int, block: Lines, shapes: Numbers,
        used: Sequence[int],
    ) -> None:  # fmt: skip
        """Write the texts of a column that differ from line to line."""
        known = self._known
        sizes = known.sizes[shapes, column]
        number = self._isr if name == "isr" else self._text
        for size in np.unique(known.sizes[used, column]).tolist():
            if not size:
                continue
            which = np.flatnonzero(sizes == size)
            begins = block.starts[which] + known.begins[shapes[which], column]
            texts = _windows(block.data, size)[begins]
            array = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(size), len(which), [None, pa.py_buffer(texts)]
            )
            encoded = array.dictionary_encode()
            found = [number(raw) for raw in encoded.dictionary.to_pylist()]
            rows[name][which] = np.array(found, np.int32)[encoded.indices.to_numpy()]

    def _text(self, raw: bytes) -> int:
        return self._texts.number(raw.decode("ascii"))

    def _isr(self, raw: bytes) -> int:
        found = self._isrs.get(raw)
        if found is None:
            if len(self._isrs) >= MOST_SHAPES:
                self._isrs.clear()
            text = lines.isr_text(raw.decode("ascii"))
            found = self._isrs[raw] = self._texts.number(text)
        return found

    def _put_slowly(self, rows: Rows, at: int, block: Lines) -> None:
        raw = block.data[block.starts[at] : block.ends[at]].tobytes()
        event = lines.parse(raw.decode("utf-8", "replace"), self._zone)
        rows[at] = empty(1)[0]
        if event is not None and not put(rows, at, event, self._texts):
            rows["kind"][at] = KIND[e.UNREAD]


_SLOW = _Template(0, 0, [], [], [], [])
"""Of lines that are left to `lines.parse`."""


def _anchor(runs: Sequence[tuple[int, int]], at: int) -> _Anchor | None:
    """Return the anchor of a place; None inside a run."""
    before = [run for run in runs if run[1] <= at]
    if len(before) < len(runs) and runs[len(before)][0] < at:
        return None
    return len(before), at - (before[-1][1] if before else 0)


def _windows(data: Bytes, size: int) -> npt.NDArray[np.void]:
    """Return so many bytes from each place on."""
    return np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))


def _words(data: Bytes) -> npt.NDArray[np.void]:
    return _windows(data, _WORD)


def _taken(words: npt.NDArray[np.void], places: Numbers) -> Words:
    """Return words, the first of their bytes being the lowest."""
    return words[places].view("<u8").astype(np.uint64, copy=False)
