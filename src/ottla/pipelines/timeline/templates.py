"""Templates: many lines of state-change.log as rows, by what lines like them have said.

Who may call: `reading`. Invariants: what comes out is what `lines.parse` gives, line by line. Lines
that differ in nothing but the digits of their numbers have one template: each run of digits is a
`0` in it. Only the first line of a template is matched against `forms`; it says which runs of
digits, and which text between them, are the columns of all. That holds because no form tells one
digit from another, or a short number from a long one (the time is looked at by itself), and
because a form's number never ends inside a run. A line with bytes beyond ASCII, a column that ends
inside a run, and a number of more than 18 digits are left to `lines.parse`.
"""

import re
from collections.abc import Sequence
from datetime import tzinfo
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline import lines
from ottla.pipelines.timeline.rows import (
    KIND,
    LONG_NUMBERS,
    NONE,
    NUMBERS,
    SIDE,
    TEXTS,
    Numbers,
    Rows,
    Texts,
    empty,
    put,
)

Bytes: TypeAlias = npt.NDArray[np.uint8]

PADDING = 32
"""Bytes that must follow the last line, so that a time may be looked for in any line."""
MOST_TEMPLATES = 50_000
"""Then they are forgotten, and learned again: 20 MB at 300 bytes a line."""
_ALL_NUMBERS = (*NUMBERS, *LONG_NUMBERS)
_LONGEST_NUMBER = 18
_ZERO, _NEWLINE, _RETURN, _BRACKET = b"0\n\r["
_MARKS = {4: b"-", 7: b"-", 10: b" ", 13: b":", 16: b":", 19: b","}
_TIME = 23
"""Length of `2026-11-22 16:00:00,000`."""
_DIGITS = [at for at in range(_TIME) if at not in _MARKS]
_WEIGHTS = np.zeros((len(_DIGITS), 2))
_WEIGHTS[:14, 0] = 10.0 ** np.arange(13, -1, -1)
_WEIGHTS[14:, 1] = (100, 10, 1)
_RUN = re.compile(rb"[0-9]+")
_IGNORED, _SLOW = 0, -1


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


class _Arrays(NamedTuple):
    """What is known of each template."""

    kind: npt.NDArray[np.uint8]
    side: npt.NDArray[np.uint8]
    run: npt.NDArray[np.int32]
    """Of each number, which run of digits it is; -1 for none."""
    sign: Numbers
    text: npt.NDArray[np.int32]
    """Of each text that is always the same, its number."""
    cut: npt.NDArray[np.int32]
    """Of each other text, from where to where it is: two anchors."""


class _Learned:
    """All templates; number 0 is of those that are no lines of a state-change log."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self._new: list[tuple[object, ...]] = []
        self._arrays: _Arrays | None = None
        self._count = 0
        self.add(0, 0, _NO_NUMBERS, _NO_NUMBERS, _NO_TEXTS, [_NO_CUT] * len(TEXTS))

    def add(self, *what: object) -> int:
        """Take in the columns of `_Arrays` for one template; return its number."""
        self._new.append(what)
        self._count += 1
        return self._count - 1

    def arrays(self) -> _Arrays:
        if self._new:
            columns = zip(zip(*self._new, strict=True), _KINDS_OF, strict=True)
            new = _Arrays(*(np.array(column, kind) for column, kind in columns))
            old = self._arrays
            if old is not None:
                pairs: Any = zip(old, new, strict=True)
                new = _Arrays(*map(np.concatenate, pairs))
            self._arrays = new
            self._new = []
        assert self._arrays is not None
        return self._arrays


_KINDS_OF = (np.uint8, np.uint8, np.int32, np.int64, np.int32, np.int32)
_NO_CUT = (-1, 0, 0, 0)
_NO_NUMBERS, _NO_TEXTS = [-1] * len(_ALL_NUMBERS), [-1] * len(TEXTS)


class _Runs(NamedTuple):
    """Runs of digits: where they begin and end, and the first of each line."""

    begins: Numbers
    ends: Numbers
    first: Numbers


class Parser:
    """Lines to rows; keeps what it has learned of templates, seconds and ISRs."""

    def __init__(self, zone: tzinfo, texts: Texts) -> None:
        self._zone = zone
        self._texts = texts
        self._known = _Learned()
        self._seconds: dict[int, int] = {}
        self._isrs: dict[bytes, int] = {}

    def parse(self, block: Lines) -> Rows:
        """Return a row for each line, of kind UNREAD where it is none of a state-change log."""
        rows = empty(len(block.starts))
        if not len(rows):
            return rows
        data = block.data
        timed = self._put_times(rows, block)
        runs, templates = _templates(block)
        slow = np.zeros(len(rows), np.bool_)
        if int(data.max()) >= 128:
            odd = np.flatnonzero(data >= 128)
            slow[np.searchsorted(block.starts, odd, "right") - 1] = True
        usable = timed & ~slow
        chosen = np.flatnonzero(usable)
        numbers = self._numbers(block, templates, chosen)
        slow[chosen[numbers == _SLOW]] = True
        taken = numbers > _IGNORED
        chosen, numbers = chosen[taken], numbers[taken]
        known = self._known.arrays()
        rows["kind"][chosen] = known.kind[numbers]
        rows["side"][chosen] = known.side[numbers]
        for column, name in enumerate(_ALL_NUMBERS):
            self._put_numbers(rows, name, chosen, numbers, known, column, data, runs, slow)
        for column, name in enumerate(TEXTS):
            self._put_texts(rows, name, chosen, numbers, known, column, block, runs)
        rows["kind"][rows["broker"] == NONE] = KIND[e.UNREAD]
        for at in np.flatnonzero(slow & timed).tolist():
            self._put_slowly(rows, at, block)
        return rows

    def _put_times(self, rows: Rows, block: Lines) -> npt.NDArray[np.bool_]:
        """Tell which lines begin with a time."""
        data = block.data
        begins = block.starts + (data[block.starts] == _BRACKET)
        heads = np.lib.stride_tricks.sliding_window_view(data, _TIME)[begins]
        digits = heads[:, _DIGITS] - np.uint8(_ZERO)
        timed = digits.max(axis=1) <= 9
        for at, mark in _MARKS.items():
            timed &= heads[:, at] == mark[0]
        found = digits.astype(np.float64) @ _WEIGHTS
        seconds, ms = found[:, 0].astype(np.int64), found[:, 1].astype(np.int64)
        seconds[~timed] = -1
        changed = np.flatnonzero(np.diff(seconds, prepend=-2))
        times = np.array([self._second(s) for s in seconds[changed].tolist()], np.int64)
        times = np.repeat(times, np.diff(changed, append=len(seconds)))
        timed &= times != NONE
        rows["time_ms"] = np.where(timed, times + ms, 0)
        return timed  # type: ignore[no-any-return]

    def _second(self, digits: int) -> int:
        """Return milliseconds since 1970 of 20261122160000; NONE for no time."""
        found = self._seconds.get(digits)
        if found is None:
            text = f"{digits:014d}"
            day = f"{text[:4]}-{text[4:6]}-{text[6:8]}"
            ms = lines.second_ms(f"{day} {text[8:10]}:{text[10:12]}:{text[12:]}", self._zone)
            if len(self._seconds) >= MOST_TEMPLATES:
                self._seconds.clear()
            found = self._seconds[digits] = NONE if ms is None or digits < 0 else ms
        return found

    def _numbers(self, block: Lines, templates: pa.Array, chosen: Numbers) -> Numbers:
        """Return for each of the chosen lines which template it has, as `_Learned` numbers them."""
        if not len(chosen):
            return np.zeros(0, np.int64)
        if len(chosen) < len(templates):
            templates = templates.take(pa.array(chosen))
        encoded = templates.dictionary_encode()
        places = encoded.indices.to_numpy()
        known = self._known.numbers
        if len(known) >= MOST_TEMPLATES:
            self._known = _Learned()
            known = self._known.numbers
        names = encoded.dictionary.to_pylist()
        numbers = [known.get(name) for name in names]
        if None in numbers:
            highest = np.maximum.accumulate(places)
            first = np.flatnonzero(np.diff(highest, prepend=-1))  # numbered as they appear
            for place, name in enumerate(names):
                if numbers[place] is None:
                    at = chosen[first[place]]
                    line = block.data[block.starts[at] : block.ends[at]].tobytes()
                    numbers[place] = known[name] = self._learn(line)
        return np.array(numbers, np.int64)[places]  # type: ignore[no-any-return]

    def _learn(self, line: bytes) -> int:
        """Match a line; return the number of what is known then, _IGNORED or _SLOW."""
        text = line.decode("ascii")
        match = lines.match(text.rstrip("\r\n"))
        if match is None:
            return _IGNORED
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
        fixed, cuts = [-1] * len(TEXTS), [_NO_CUT] * len(TEXTS)
        for column, name in enumerate(TEXTS):
            if name in spans:
                begin, end = spans[name]
                ends = [_anchor(runs, begin), _anchor(runs, end)]
                if ends[0] is None or ends[1] is None:
                    return _SLOW
                if ends[0][0] == ends[1][0]:
                    said: str | None = text[begin:end]
                    fixed[column] = self._texts.number(
                        lines.isr_text(text[begin:end]) if name == "isr" else said
                    )
                else:
                    cuts[column] = (*ends[0], *ends[1])
        role = text[slice(*spans["role"])]
        side = SIDE[e.CONTROLLER if role == "Controller" else e.BROKER]
        return self._known.add(KIND[kind], side, run, sign, fixed, cuts)

    def _put_numbers(
        self, rows: Rows, name: str, chosen: Numbers, numbers: Numbers, known: _Arrays,
        column: int, data: Bytes, runs: _Runs, slow: npt.NDArray[np.bool_],
    ) -> None:  # fmt: skip
        run = known.run[numbers, column]
        said = np.flatnonzero(run >= 0)
        if not len(said):
            return
        place = runs.first[chosen[said]] + run[said]
        last = runs.ends[place] - 1
        length = last + 1 - runs.begins[place]
        value = (data[last] - np.uint8(_ZERO)).astype(np.int64)
        longest = int(length.max())
        for back in range(1, min(longest, _LONGEST_NUMBER)):
            more = np.flatnonzero(length > back)
            digit = data[last[more] - back] - np.uint8(_ZERO)
            value[more] += digit.astype(np.int64) * 10**back
        value *= known.sign[numbers[said], column]
        if name not in LONG_NUMBERS and longest > 9:
            value[(value <= NONE) | (value >= 1 << 31)] = NONE
        if longest > _LONGEST_NUMBER:
            slow[chosen[said[length > _LONGEST_NUMBER]]] = True
        rows[name][chosen[said]] = value

    def _put_texts(
        self, rows: Rows, name: str, chosen: Numbers, numbers: Numbers, known: _Arrays,
        column: int, block: Lines, runs: _Runs,
    ) -> None:  # fmt: skip
        rows[name][chosen] = known.text[numbers, column]
        cuts = known.cut[numbers, column]
        said = np.flatnonzero(cuts[:, 0] >= 0)
        if not len(said):
            return
        which, cuts = chosen[said], cuts[said]
        begins = _places(block, runs, which, cuts[:, 0], cuts[:, 1])
        ends = _places(block, runs, which, cuts[:, 2], cuts[:, 3])
        encoded = _slices(block.data, begins, ends).dictionary_encode()
        number = self._isr if name == "isr" else self._text
        found = [number(raw) for raw in encoded.dictionary.to_pylist()]
        rows[name][which] = np.array(found, np.int32)[encoded.indices.to_numpy()]

    def _text(self, raw: bytes) -> int:
        return self._texts.number(raw.decode("ascii"))

    def _isr(self, raw: bytes) -> int:
        found = self._isrs.get(raw)
        if found is None:
            if len(self._isrs) >= MOST_TEMPLATES:
                self._isrs.clear()
            text = lines.isr_text(raw.decode("ascii"))
            found = self._isrs[raw] = self._texts.number(text)
        return found

    def _put_slowly(self, rows: Rows, at: int, block: Lines) -> None:
        raw = block.data[block.starts[at] : block.ends[at]].tobytes()
        event = lines.parse(raw.decode("utf-8", "replace"), self._zone)
        if event is None:
            rows["kind"][at] = KIND[e.UNREAD]
        else:
            put(rows, at, event, self._texts)


def _anchor(runs: Sequence[tuple[int, int]], at: int) -> tuple[int, int] | None:
    """Return how many runs end before a place, and how far it is from there; None inside a run."""
    before = [run for run in runs if run[1] <= at]
    if len(before) < len(runs) and runs[len(before)][0] < at:
        return None
    return len(before), at - (before[-1][1] if before else 0)


def _places(
    block: Lines, runs: _Runs, which: Numbers, count: npt.NDArray[np.int32],
    further: npt.NDArray[np.int32],
) -> Numbers:  # fmt: skip
    """Return the place of an anchor in each of some lines."""
    last = runs.first[which] + count - 1
    if not len(runs.ends):
        return block.starts[which] + further
    begins = np.where(count > 0, runs.ends[np.maximum(last, 0)], block.starts[which])
    return np.asarray(begins + further, np.int64)


def _templates(block: Lines) -> tuple[_Runs, pa.Array]:
    """Return the runs of digits, and each line with every run as one `0`."""
    data, starts = block.data, block.starts
    plain = (data - np.uint8(_ZERO)) > 9
    changes = np.flatnonzero(plain[1:] != plain[:-1]) + 1  # it begins and ends with newlines
    begins, ends = changes[::2], changes[1::2]
    first = np.searchsorted(begins, starts)
    dropped = np.concatenate(([0], np.cumsum(ends - begins - 1)))
    plain[begins] = True
    text = data[plain]
    text[begins - dropped[:-1]] = _ZERO
    offsets = np.append(starts - dropped[first], block.stop - dropped[-1]).astype(np.int32)
    array = pa.BinaryArray.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )
    return _Runs(begins, ends, first), array


def _slices(data: Bytes, begins: Numbers, ends: Numbers) -> pa.Array:
    """Return data[begin:end] of each pair, as an array of Arrow."""
    lengths = ends - begins
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    at = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(begins),
        [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[at])],
    )  # fmt: skip
