"""Rows: events as numpy has them, many at once, their texts as numbers.

Invariants: pure; NONE stands for a number that is not said, NO_TEXT for a text; a text's number
means something only together with the `Texts` it was given by.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.events import Event

Rows: TypeAlias = npt.NDArray[np.void]
Numbers: TypeAlias = npt.NDArray[np.int64]

NONE = -(1 << 31)
NO_TEXT = -1
_LARGEST = 10**18
LONG_NUMBERS = ("offset",)
NUMBERS = (
    "broker", "epoch", "partition", "leader", "leader_epoch", "version", "previous", "about",
)  # fmt: skip
TEXTS = ("topic", "level", "isr", "topic_id", "before", "after")
ROW = np.dtype(
    [
        ("time_ms", "<i8"),
        ("block", "<i8"),
        ("line", "<i8"),
        *[(name, "<i8") for name in LONG_NUMBERS],
        *[(name, "<i4") for name in (*NUMBERS, *TEXTS, "file")],
        ("kind", "u1"),
        ("side", "u1"),
    ]
)
"""One event of `events.Event`. `file` is a text; (`block`, `line`) say where in it."""

KINDS = (
    e.UNREAD, e.LED, e.FOLLOWED, e.STOPPED, e.ASKED, e.REFUSED, e.CACHED, e.DECIDED, e.SENT,
    e.MOVED, e.KNOWN, e.GONE, e.CAME, e.CONTROLLER_ELECTED, e.OTHER, e.DROPPED,
)  # fmt: skip
SIDES = (e.BROKER, e.CONTROLLER)
KIND = {name: number for number, name in enumerate(KINDS)}
SIDE = {name: number for number, name in enumerate(SIDES)}


class Texts:
    """Texts by number, each of them once."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        for name in names:
            self.number(name)

    def number(self, text: str | None) -> int:
        """Return the number of a text, a new one if it has none."""
        if text is None:
            return NO_TEXT
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.names)
            self.names.append(text)
        return found

    def find(self, text: str) -> int:
        """Return the number of a text, or one that no row has."""
        return self._numbers.get(text, NONE)


def empty(count: int) -> Rows:
    """Return rows that say nothing, of kind UNREAD."""
    rows = np.empty(count, ROW)
    for name in ("time_ms", "block", "line", "kind", "side"):
        rows[name] = 0
    for name in (*LONG_NUMBERS, *NUMBERS):
        rows[name] = NONE
    for name in (*TEXTS, "file"):
        rows[name] = NO_TEXT
    return rows


def put(rows: Rows, at: int, event: Event, texts: Texts) -> bool:
    """Write one event to a row, but for its file and place; False if its time does not fit."""
    row = rows[at]
    if not (-_LARGEST < event.time_ms < _LARGEST and abs(event.broker) < -NONE):
        return False
    row["time_ms"], row["kind"], row["side"] = event.time_ms, KIND[event.kind], SIDE[event.side]
    for name in (*LONG_NUMBERS, *NUMBERS):
        value = getattr(event, name)
        largest = _LARGEST if name in LONG_NUMBERS else -NONE
        row[name] = NONE if value is None or abs(value) >= largest else value
    for name in TEXTS:
        row[name] = texts.number(getattr(event, name))
    return True


def of_kinds(rows: Any, kinds: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Tell which rows, or those of a `packed.Table`, are of one of these kinds."""
    wanted = np.zeros(len(KINDS), np.bool_)
    wanted[[KIND[kind] for kind in kinds]] = True
    return wanted[rows["kind"]]  # type: ignore[no-any-return]


def runs(keys: Numbers) -> Numbers:
    """Return where each run of equal numbers begins, and the end of all."""
    if not len(keys):
        return np.zeros(1, np.int64)
    return np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1, [len(keys)]))


def joined(columns: Sequence[npt.NDArray[np.int32]]) -> Numbers:
    """Return a number for each row, the same where all of the columns are alike.

    Numbered by first appearance.
    """
    import pyarrow as pa

    if not len(columns[0]):
        return np.zeros(0, np.int64)
    packed = np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int32))
    width = packed.shape[1] * 4
    array = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(packed), [None, pa.py_buffer(packed)]
    )
    return array.dictionary_encode().indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]
